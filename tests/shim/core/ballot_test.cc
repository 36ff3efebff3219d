#include "shim/core/ballot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace gradgate {
namespace {

BallotResult Reduce(const std::vector<Ballot>& ballots) {
  auto words = ballots[0].Encode();
  for (const Ballot& ballot : ballots) {
    const auto other = ballot.Encode();
    for (size_t i = 0; i < words.size(); ++i) words[i] = std::max(words[i], other[i]);
  }
  return BallotResult(words);
}

std::vector<int64_t> All(const std::vector<Ballot>& ballots) {
  std::vector<int64_t> all;
  for (const Ballot& ballot : ballots) {
    for (int64_t field : ballot.Fields()) all.push_back(field);
  }
  return all;
}

Ballot Of(int64_t window, int64_t micro_steps, int64_t contributes = 1, int64_t closes = 1) {
  return {.window = window, .round = 0, .mode = 2, .micro_steps = micro_steps, .contributes = contributes, .closes = closes};
}

TEST(Ballot, EqualRanksAgree) {
  const BallotResult result = Reduce({Of(7, 4), Of(7, 4), Of(7, 4)});
  EXPECT_FALSE(result.incompatible());
  EXPECT_FALSE(result.unequal());
  EXPECT_TRUE(result.any_contributes());
  EXPECT_TRUE(result.all_close());
  EXPECT_EQ(result.min().micro_steps, 4);
  EXPECT_EQ(result.max().window, 7);
}

TEST(Ballot, MinimumAndMaximumAreSeenByAll) {
  const BallotResult result = Reduce({Of(7, 4), Of(7, 3), Of(7, 0, 0)});
  EXPECT_TRUE(result.unequal());
  EXPECT_FALSE(result.incompatible());
  EXPECT_EQ(result.min().micro_steps, 0);
  EXPECT_EQ(result.max().micro_steps, 4);
  EXPECT_TRUE(result.any_contributes());
}

TEST(Ballot, AnotherWindowRoundOrModeIsIncompatible) {
  EXPECT_TRUE(Reduce({Of(7, 4), Of(8, 4)}).incompatible());
  Ballot round = Of(7, 4);
  round.round = 1;
  EXPECT_TRUE(Reduce({Of(7, 4), round}).incompatible());
  Ballot mode = Of(7, 4);
  mode.mode = 1;
  EXPECT_TRUE(Reduce({Of(7, 4), mode}).incompatible());
}

// Undefined behaviour is what this looks for, in builds that check for it.
TEST(Ballot, ValuesThatNoRankMeansAreReadAsTheyAre) {
  std::array<int64_t, Ballot::kWords> words{};
  words.fill(INT64_MIN);
  const BallotResult result(words);
  EXPECT_EQ(result.min().window, INT64_MIN);
  EXPECT_EQ(result.max().window, INT64_MIN);
  EXPECT_EQ(Of(INT64_MIN, 0).Encode()[Ballot::kFields], INT64_MIN);
}

TEST(Ballot, OneRankThatGoesOnKeepsTheWindowOpen) {
  EXPECT_FALSE(Reduce({Of(7, 3), Of(7, 3, 1, 0)}).all_close());
  EXPECT_FALSE(Reduce({Of(7, 3), Of(7, 3, 1, 0)}).unequal());
  EXPECT_FALSE(Reduce({Of(7, 3, 0), Of(7, 3, 0)}).any_contributes());
}

TEST(Ballot, DifferencesNameTheRanks) {
  EXPECT_EQ(DescribeDifferences(All({Of(7, 4), Of(7, 4), Of(7, 3), Of(7, 4)}), 4),
            "micro_steps: ranks [0, 1, 3] have 4, ranks [2] have 3");
  EXPECT_EQ(DescribeDifferences(All({Of(7, 4), Of(8, 0, 0)}), 2),
            "window: ranks [1] have 8, ranks [0] have 7; micro_steps: ranks [0] have 4, ranks [1] have 0; contributes: ranks "
            "[0] have 1, "
            "ranks [1] have 0");
  EXPECT_EQ(DescribeDifferences(All({Of(7, 4), Of(7, 4)}), 2), "");
}

TEST(Ballot, LongListsOfRanksAreCut) {
  std::vector<uint32_t> ranks(20);
  for (uint32_t i = 0; i < 20; ++i) ranks[i] = i;
  EXPECT_EQ(FormatRanks(ranks), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more]");
  EXPECT_EQ(FormatRanks({}), "[]");
}

}  // namespace
}  // namespace gradgate
