#include "shim/core/ballot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string_view>
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

TEST(Ballot, WhatOwnersSayIsNamedButForHeadroom) {
  Ballot one = Of(7, 4), two = Of(7, 4);
  one.headroom = 5;
  EXPECT_EQ(DescribeDifferences(All({one, two}), 2), "");
  one.skipped = 2;
  two.discard = 1;
  two.parity = 9;
  EXPECT_EQ(
      DescribeDifferences(All({one, two}), 2),
      "skipped: ranks [0] have 2, ranks [1] have 0; discard: ranks [1] have 1, ranks [0] have 0; parity: ranks [1] have 9, "
      "ranks [0] have 0");
  EXPECT_EQ(Reduce({one, two}).min().headroom, 0);
  EXPECT_EQ(Reduce({one, two}).max().headroom, 5);
}

TEST(Ballot, EveryFieldHasAnOwnNameAndPlace) {
  Ballot ballot;
  int64_t value = 1;
  for (int64_t* field : {&ballot.window, &ballot.round, &ballot.mode, &ballot.micro_steps, &ballot.contributes, &ballot.closes,
                         &ballot.divisor, &ballot.skipped, &ballot.discard, &ballot.out_of_data, &ballot.sums, &ballot.parity,
                         &ballot.headroom, &ballot.staged, &ballot.policy, &ballot.policy_hash}) {
    *field = value++;
  }
  const Ballot read = Reduce({ballot}).min();
  EXPECT_EQ(read.Fields(), ballot.Fields());
  std::set<std::string_view> names;
  for (uint32_t i = 0; i < Ballot::kFields; ++i) {
    EXPECT_EQ(ballot.Fields()[i], i + 1);
    names.insert(Ballot::FieldName(i));
  }
  EXPECT_EQ(names.size(), Ballot::kFields);
  EXPECT_EQ(Ballot::FieldName(Ballot::kHeadroomField), "headroom");
  EXPECT_EQ(Ballot::FieldName(Ballot::kFields), "unknown");
}

TEST(Ballot, DiffersOnWhatAPersonShouldHearOf) {
  const Ballot base = Of(7, 4);
  const auto differs = [&](int64_t Ballot::*field, bool equal) {
    Ballot other = base;
    other.*field += 1;
    return Reduce({base, other}).differs(equal);
  };
  for (int64_t Ballot::*field :
       {&Ballot::window, &Ballot::round, &Ballot::mode, &Ballot::skipped, &Ballot::discard, &Ballot::parity}) {
    EXPECT_TRUE(differs(field, false));
  }
  for (int64_t Ballot::*field :
       {&Ballot::closes, &Ballot::divisor, &Ballot::out_of_data, &Ballot::sums, &Ballot::headroom, &Ballot::staged}) {
    EXPECT_FALSE(differs(field, true));
  }
  EXPECT_TRUE(differs(&Ballot::micro_steps, true));
  EXPECT_FALSE(differs(&Ballot::micro_steps, false));
}

TEST(Ballot, LongListsOfRanksAreCut) {
  std::vector<uint32_t> ranks(20);
  for (uint32_t i = 0; i < 20; ++i) ranks[i] = i;
  EXPECT_EQ(FormatRanks(ranks), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more]");
  EXPECT_EQ(FormatRanks({}), "[]");
}

}  // namespace
}  // namespace gradgate
