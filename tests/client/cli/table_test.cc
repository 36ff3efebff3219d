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

}  // namespace
}  // namespace gradgate::cli
