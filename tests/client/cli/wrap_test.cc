#include "client/cli/wrap.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate::cli {
namespace {

using ::testing::ElementsAre;

TEST(Width, CountsCodePoints) {
  EXPECT_EQ(Width("Zürich µ±…"), 10u);
  EXPECT_EQ(Width(""), 0u);
}

TEST(Break, AtSpacesThenBehindCommasThenWhereItMust) {
  EXPECT_THAT(Break("", 3), ElementsAre(""));
  EXPECT_THAT(Break("ab cd", 5), ElementsAre("ab cd"));
  EXPECT_THAT(Break("ab cd", 4), ElementsAre("ab", "cd"));
  EXPECT_THAT(Break("ab,cd,ef", 6), ElementsAre("ab,cd,", "ef"));
  EXPECT_THAT(Break("ab,cd", 2), ElementsAre("ab", ",", "cd"));
  EXPECT_THAT(Break("üüüü", 3), ElementsAre("üüü", "ü"));
}

TEST(WrapLines, BreaksOnlyLinesThatAreTooWide) {
  EXPECT_EQ(WrapLines("short\n\nab cd ef\n", 6), "short\n\nab cd\n  ef\n");
  EXPECT_EQ(WrapLines("ab cd ef", 0), "ab cd ef");
  EXPECT_EQ(WrapLines("  - ab cd", 7), "  - ab\n    cd");
  EXPECT_EQ(WrapLines("aa  bb  cc", 7), "aa  bb\n  cc");
}

TEST(WrapLines, NeverBreaksAWordOrACommand) {
  EXPECT_EQ(WrapLines("x averylongword y", 6), "x\n  averylongword\n  y");
  EXPECT_EQ(WrapLines("change it with: gradgatectl policy set x mode=window", 20),
            "change it with:\n  gradgatectl policy set x mode=window");
  EXPECT_EQ(WrapLines("now: gradgatectl policy set x mode=window; or when it starts next", 28),
            "now:\n  gradgatectl policy set x mode=window;\n  or when it starts next");
  EXPECT_EQ(WrapLines("make one with `gradgatectl certs a` or another way", 28),
            "make one with\n  `gradgatectl certs a` or\n  another way");
}

TEST(WrapLines, HangsAsFarAsItIsTold) {
  EXPECT_EQ(WrapLines("NOTE  ab cd ef\n  gh ij\n", 8, 6), "NOTE  ab\n      cd\n      ef\n  gh ij\n");
}

// Whatever the text, nothing is lost, and no broken line is wider but for single words.
TEST(WrapLines, LosesNothing) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto words = [](const std::string& text) {
    std::string kept;
    for (const char c : text) kept.append(c == ' ' || c == '\n' ? 0 : 1, c);
    return kept;
  };
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t i = random() % 60; i > 0; --i) text += std::string(1, "ab  ,-µ"[random() % 6]);
    const size_t width = 1 + random() % 20;
    EXPECT_EQ(words(WrapLines(text, width)), words(text));
    std::string joined;
    for (const std::string& line : Break(text, width)) {
      EXPECT_LE(Width(line), width);
      joined += line;
    }
    EXPECT_EQ(words(joined), words(text));
  }
}

}  // namespace
}  // namespace gradgate::cli
