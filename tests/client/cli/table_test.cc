#include "client/cli/table.h"

#include "gtest/gtest.h"

namespace gradgate::cli {
namespace {

TEST(Table, AlignsByCodePointAndTrimsLines) {
  Table table({{"name", Align::kLeft}, {"n"}, {"", Align::kLeft}});
  table.AddRow({"Zürich", "7", ""});
  table.AddRow({"x", "1234", "note"});
  const std::string rows = table.TakeRows();
  EXPECT_EQ(table.Header() + rows,
            "name       n\n"
            "------  ----\n"
            "Zürich     7\n"
            "x       1234  note\n");
}

TEST(Table, WidthsGrowAndNeverShrinkWhileRowsAreTaken) {
  Table table({{"n", Align::kRight, 3}, {"m"}});
  EXPECT_EQ(table.Header(),
            "  n  m\n"
            "---  -\n");
  table.AddRow({"12345", "1"});
  EXPECT_EQ(table.TakeRows(), "12345  1\n");
  table.AddRow({"1", "22"});
  EXPECT_EQ(table.TakeRows(), "    1  22\n");
  EXPECT_EQ(table.TakeRows(), "");
}

TEST(Table, LeavesOutTheLargestDropFirstAndSaysSo) {
  const auto table = [](size_t width) {
    Table made({{"name", Align::kLeft}, {"first", Align::kRight, 0, 2}, {"second", Align::kRight, 0, 1}, {"n"}}, width);
    made.AddRow({"x", "1", "2", "3"});
    return made.All();
  };
  const std::string whole = "name  first  second  n\n----  -----  ------  -\nx         1       2  3\n";
  EXPECT_EQ(table(0), whole);
  EXPECT_EQ(table(22), whole);
  EXPECT_EQ(table(21),
            "name  second  n\n----  ------  -\nx          2  3\n"
            "(left out: first; a wider terminal, a pipe or --json has all)\n");
  EXPECT_EQ(table(5),
            "name  n\n----  -\nx     3\n"
            "(left out: first, second; a wider terminal, a pipe or --json has all)\n");
}

TEST(Table, AColumnWithoutATitleTakesThatOfTheOneLeftOut) {
  Table table({{"name", Align::kLeft}, {"bytes", Align::kRight, 0, 1}, {"", Align::kLeft, 0, 0}}, 16);
  table.AddRow({"x", "1234567", "1.23 MB"});
  EXPECT_EQ(table.All(), "name    bytes\n----  -------\nx     1.23 MB\n");
}

TEST(Table, BreaksCellsBeforeItLeavesColumnsOut) {
  Table table({{"n"}, {"text", Align::kLeft, 0, 0, 6}, {"m", Align::kRight, 0, 1}}, 16);
  table.AddRow({"1", "some words and awordthatislong", "2"});
  table.AddRow({"3", "failed,mismatched", "4"});
  EXPECT_EQ(table.All(),
            "n  text        m\n"
            "-  ----------  -\n"
            "1  some words  2\n"
            "   and\n"
            "   awordthati\n"
            "   slong\n"
            "3  failed,     4\n"
            "   mismatched\n");
}

TEST(Table, WhatComesLaterKeepsToTheColumnsOfTheHeader) {
  Table table({{"n"}, {"m", Align::kRight, 5, 1}, {"text", Align::kLeft, 4, 0, 4}}, 12);
  EXPECT_EQ(table.Header(), "n  text\n-  ----\n");
  EXPECT_EQ(table.Note(), "(left out: m; a wider terminal, a pipe or --json has all)\n");
  table.AddRow({"1", "2", "some words, and more"});
  EXPECT_EQ(table.TakeRows(), "1  some\n   words,\n   and more\n");
}

}  // namespace
}  // namespace gradgate::cli
