#include "shim/core/policy_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace gradgate {
namespace {

using Ticket = PolicyStage::Ticket;

SyncPolicy Policy(uint64_t version, uint64_t content_hash = 7) { return {.version = version, .content_hash = content_hash}; }

bool Take(PolicyStage& stage, const SyncPolicy& policy) {
  if (!stage.Offered(policy)) return false;
  stage.Accept();
  return true;
}

// One ballot in which every other rank says what this one does, or nothing.
void Ballot(PolicyStage& stage, bool others_alike = true) {
  const Ticket own = stage.Vote();
  stage.Read(others_alike ? own : Ticket{}, own);
}

bool Window(PolicyStage& stage, uint64_t next_window) {
  Ballot(stage);
  return stage.WindowClosed(next_window, false);
}

TEST(PolicyStage, NothingIsVotedForOrInForceAtFirst) {
  PolicyStage stage;
  EXPECT_EQ(stage.Vote().version, 0);
  EXPECT_EQ(stage.Vote().content_hash, 0);
  stage.Read({}, {});
  EXPECT_FALSE(stage.WindowClosed(1, false));
  EXPECT_EQ(stage.in_force().version, 0u);
  EXPECT_EQ(stage.waiting_version(), 0u);
  EXPECT_EQ(stage.rejected_version(), 0u);
  EXPECT_EQ(stage.rejection(), PolicyRejection::kNone);
}

TEST(PolicyStage, WhatAllVotedForIsInForceWithTheNextWindow) {
  PolicyStage stage;
  ASSERT_TRUE(stage.Offered(Policy(5, 9)));
  EXPECT_EQ(stage.unvetted().version, 5u);
  EXPECT_EQ(stage.waiting_version(), 0u);
  stage.Accept();
  EXPECT_EQ(stage.unvetted().version, 0u);
  EXPECT_EQ(stage.waiting_version(), 5u);
  const Ticket vote = stage.Vote();
  EXPECT_EQ(vote.version, 5);
  EXPECT_EQ(vote.content_hash, 9);
  stage.Read(vote, vote);
  EXPECT_EQ(stage.in_force().version, 0u) << "not inside the window whose ballot agreed on it";
  EXPECT_TRUE(stage.WindowClosed(3, false));
  EXPECT_EQ(stage.in_force().version, 5u);
  EXPECT_EQ(stage.in_force().content_hash, 9u);
  EXPECT_EQ(stage.adopted_window(), 3u);
  EXPECT_EQ(stage.waiting_version(), 0u);
  EXPECT_FALSE(Window(stage, 4)) << "taken up once";
  EXPECT_EQ(stage.adopted_window(), 3u);
}

TEST(PolicyStage, VersionAndContentMustBeEqualOnAllRanks) {
  struct Case {
    Ticket min, max;
    bool adopted;
  };
  for (const auto& [min, max, adopted] :
       {Case{{5, 7}, {5, 7}, true}, Case{{0, 0}, {5, 7}, false}, Case{{4, 7}, {5, 7}, false}, Case{{5, 7}, {6, 7}, false},
        Case{{5, 6}, {5, 7}, false}, Case{{5, 7}, {5, 8}, false}}) {
    PolicyStage stage;
    ASSERT_TRUE(Take(stage, Policy(5)));
    (void)stage.Vote();
    stage.Read(min, max);
    EXPECT_EQ(stage.WindowClosed(1, false), adopted) << min.version << " " << max.version << " " << max.content_hash;
    EXPECT_EQ(stage.waiting_version(), adopted ? 0u : 5u) << "it is voted for again";
  }
}

TEST(PolicyStage, ARankWithNothingAgreesOnNothing) {
  PolicyStage stage;
  (void)stage.Vote();
  stage.Read({}, {});
  ASSERT_TRUE(Take(stage, Policy(5)));
  EXPECT_FALSE(stage.WindowClosed(1, false));
  EXPECT_TRUE(Window(stage, 2));
}

TEST(PolicyStage, AVoteStandsUntilItIsRead) {
  PolicyStage stage;
  ASSERT_TRUE(Take(stage, Policy(5)));
  const Ticket first = stage.Vote();
  ASSERT_TRUE(Take(stage, Policy(6)));
  EXPECT_EQ(stage.Vote().version, 5) << "asked again";
  EXPECT_EQ(stage.waiting_version(), 6u);
  stage.Read(first, first);
  EXPECT_EQ(stage.Vote().version, 5) << "agreed on, and nothing replaces it before";
  stage.Read(first, first);
  EXPECT_TRUE(stage.WindowClosed(1, false));
  EXPECT_EQ(stage.in_force().version, 5u);
  EXPECT_EQ(stage.waiting_version(), 6u);
  EXPECT_TRUE(Window(stage, 2));
  EXPECT_EQ(stage.in_force().version, 6u);
}

TEST(PolicyStage, ANewerOneTakesThePlaceOfOneThatWaits) {
  PolicyStage stage;
  ASSERT_TRUE(Take(stage, Policy(5)));
  Ballot(stage, false);
  EXPECT_FALSE(stage.WindowClosed(1, false));
  ASSERT_TRUE(Take(stage, Policy(6)));
  EXPECT_EQ(stage.Vote().version, 6);
}

TEST(PolicyStage, AgreementOfAnEarlierBallotOfTheWindowStands) {
  PolicyStage stage;
  ASSERT_TRUE(Take(stage, Policy(5)));
  Ballot(stage);
  Ballot(stage, false);  // cannot be, but what was agreed is agreed
  EXPECT_TRUE(stage.WindowClosed(1, false));
}

TEST(PolicyStage, OnlyWhatIsAboveAllThatIsKnownIsTaken) {
  PolicyStage stage;
  ASSERT_TRUE(stage.Offered(Policy(5)));
  EXPECT_FALSE(stage.Offered(Policy(5))) << "unvetted";
  EXPECT_FALSE(stage.Offered(Policy(4)));
  stage.Accept();
  EXPECT_FALSE(stage.Offered(Policy(5))) << "accepted";
  (void)stage.Vote();
  EXPECT_FALSE(stage.Offered(Policy(5))) << "staged";
  stage.Read({5, 7}, {5, 7});
  EXPECT_TRUE(stage.WindowClosed(1, false));
  EXPECT_FALSE(stage.Offered(Policy(5))) << "in force";
  EXPECT_FALSE(stage.Offered(Policy(4, 8))) << "a store that was emptied takes nothing back";
  ASSERT_TRUE(stage.Offered(Policy(6)));
  stage.Reject(PolicyRejection::kFixed);
  EXPECT_FALSE(stage.Offered(Policy(6))) << "rejected";
  EXPECT_TRUE(stage.Offered(Policy(7)));
  EXPECT_FALSE(stage.Offered(Policy(0)));
  EXPECT_EQ(stage.unvetted().version, 7u);
}

TEST(PolicyStage, ARejectedOneIsNeverVotedForAndLeavesWhatWaits) {
  PolicyStage stage;
  ASSERT_TRUE(Take(stage, Policy(5)));
  ASSERT_TRUE(stage.Offered(Policy(6)));
  stage.Reject(PolicyRejection::kHookHeld);
  EXPECT_EQ(stage.rejected_version(), 6u);
  EXPECT_EQ(stage.rejection(), PolicyRejection::kHookHeld);
  EXPECT_EQ(stage.unvetted().version, 0u);
  EXPECT_EQ(stage.Vote().version, 5);
}

TEST(PolicyStage, AnAnswerToNothingChangesNothing) {
  PolicyStage stage;
  stage.Accept();
  stage.Reject(PolicyRejection::kFixed);
  EXPECT_EQ(stage.waiting_version(), 0u);
  EXPECT_EQ(stage.rejected_version(), 0u);
  EXPECT_EQ(stage.rejection(), PolicyRejection::kNone);
  ASSERT_TRUE(Take(stage, Policy(5)));
  stage.Accept();  // twice
  EXPECT_EQ(stage.waiting_version(), 5u);
}

TEST(PolicyStage, AloneItIsInForceWithTheNextWindow) {
  PolicyStage stage;
  EXPECT_FALSE(stage.WindowClosed(1, true));
  ASSERT_TRUE(Take(stage, Policy(5)));
  EXPECT_TRUE(stage.WindowClosed(2, true));
  EXPECT_EQ(stage.in_force().version, 5u);
  EXPECT_FALSE(stage.WindowClosed(3, true));
  ASSERT_TRUE(stage.Offered(Policy(6)));
  EXPECT_FALSE(stage.WindowClosed(4, true)) << "not vetted";
}

TEST(PolicyStage, KnownPolicyTable) {
  struct Case {
    const char* what;
    SyncPolicy policy;
    bool known;
  };
  const auto with = [](auto change) {
    SyncPolicy policy = Policy(1);
    change(policy);
    return policy;
  };
  const Case cases[] = {
      {"nothing set", Policy(1), true},
      {"the last mode", with([](auto& p) { p.sync_mode = SyncMode::kAuto; }), true},
      {"a mode too many", with([](auto& p) { p.sync_mode = SyncMode{5}; }), false},
      {"mode 255", with([](auto& p) { p.sync_mode = SyncMode{255}; }), false},
      {"the last wire", with([](auto& p) { p.wire_type = WireType::kFp16; }), true},
      {"a wire too many", with([](auto& p) { p.wire_type = WireType{4}; }), false},
      {"the last reshard", with([](auto& p) { p.reshard = Reshard::kWindow; }), true},
      {"a reshard too many", with([](auto& p) { p.reshard = Reshard{3}; }), false},
      {"audit", with([](auto& p) { p.enforcement = Enforcement::kAudit; }), true},
      {"enforce", with([](auto& p) { p.enforcement = Enforcement::kEnforce; }), true},
      {"off", with([](auto& p) { p.enforcement = Enforcement::kOff; }), false},
      {"enforcement 4", with([](auto& p) { p.enforcement = Enforcement{4}; }), false},
      {"4095 bytes", with([](auto& p) { p.bucket_bytes = 4095; }), false},
      {"4096 bytes", with([](auto& p) { p.bucket_bytes = 4096; }), true},
      {"1 TiB", with([](auto& p) { p.bucket_bytes = uint64_t{1} << 40; }), true},
      {"1 TiB and a byte", with([](auto& p) { p.bucket_bytes = (uint64_t{1} << 40) + 1; }), false},
  };
  for (const Case& c : cases) EXPECT_EQ(KnownPolicy(c.policy), c.known) << c.what;
}

// Ranks that hear of policies at any time and in any order, lose some, cannot carry out others, and hold ballots; all read one
// minimum and maximum, each when it comes to it.
class Ranks {
 public:
  Ranks(uint32_t seed, size_t count) : random_(seed), stages_(count) {}

  void Run(uint64_t windows) {
    for (uint64_t window = 0; window < windows; ++window) {
      for (uint32_t ballots = 1 + Below(3); ballots > 0; --ballots) OneBallot();
      Hear();
      std::vector<bool> adopted;
      for (PolicyStage& stage : stages_) {
        adopted.push_back(stage.WindowClosed(window + 1, false));
        if (Below(2) == 0) HearAt(stage);
      }
      Check(window, adopted);
    }
  }

  uint64_t adoptions() const { return adoptions_; }

 private:
  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  // Contents of one version differ only where a store was torn in two.
  void HearAt(PolicyStage& stage) {
    const uint64_t version = newest_ - std::min<uint64_t>(newest_ - 1, Below(3));
    if (!stage.Offered(Policy(version, torn_.count(version) != 0 ? 1 + Below(2) : 1))) return;
    if (Below(12) == 0) {
      stage.Reject(PolicyRejection::kFixed);
      never_.push_back(version);
    } else {
      stage.Accept();
    }
  }

  void Hear() {
    if (Below(6) == 0) {
      ++newest_;
      if (Below(5) == 0) torn_[newest_] = true;
    }
    for (PolicyStage& stage : stages_) {
      if (Below(3) == 0) HearAt(stage);
    }
  }

  void OneBallot() {
    Hear();
    Ticket min{INT64_MAX, INT64_MAX}, max{};
    std::vector<Ticket> votes;
    for (PolicyStage& stage : stages_) {
      votes.push_back(stage.Vote());
      min = {std::min(min.version, votes.back().version), std::min(min.content_hash, votes.back().content_hash)};
      max = {std::max(max.version, votes.back().version), std::max(max.content_hash, votes.back().content_hash)};
      if (Below(2) == 0) HearAt(stages_[Below(static_cast<uint32_t>(stages_.size()))]);
    }
    const bool alike = std::all_of(votes.begin(), votes.end(), [&](const Ticket& vote) {
      return vote.version != 0 && vote.version == votes[0].version && vote.content_hash == votes[0].content_hash;
    });
    if (alike && due_ == 0) due_ = static_cast<uint64_t>(votes[0].version);
    for (PolicyStage& stage : stages_) {
      stage.Read(min, max);
      if (Below(2) == 0) HearAt(stage);
    }
  }

  void Check(uint64_t window, const std::vector<bool>& adopted) {
    const PolicyStage& first = stages_[0];
    for (size_t rank = 0; rank < stages_.size(); ++rank) {
      const PolicyStage& stage = stages_[rank];
      ASSERT_EQ(adopted[rank], due_ != 0) << "window " << window << ", rank " << rank;
      ASSERT_EQ(stage.in_force().version, first.in_force().version) << "window " << window << ", rank " << rank;
      ASSERT_EQ(stage.in_force().content_hash, first.in_force().content_hash) << "window " << window << ", rank " << rank;
      ASSERT_EQ(stage.adopted_window(), first.adopted_window()) << "window " << window << ", rank " << rank;
    }
    ASSERT_GE(first.in_force().version, former_);
    if (due_ != 0) {
      ASSERT_EQ(first.in_force().version, due_) << "window " << window;
      ASSERT_EQ(first.adopted_window(), window + 1);
      ASSERT_EQ(std::count(never_.begin(), never_.end(), due_), 0) << "a rank has rejected it";
      ++adoptions_;
    }
    former_ = first.in_force().version;
    due_ = 0;
  }

  std::mt19937 random_;
  std::vector<PolicyStage> stages_;
  std::vector<uint64_t> never_;    // rejected by some rank
  std::map<uint64_t, bool> torn_;  // versions of two contents
  uint64_t newest_ = 1;
  uint64_t due_ = 0;  // agreed on in this window
  uint64_t former_ = 0;
  uint64_t adoptions_ = 0;
};

TEST(PolicyStage, AnyOrderOfEventsGivesAllRanksTheSame) {
  const uint32_t base = std::random_device{}();
  uint64_t adoptions = 0;
  for (uint32_t run = 0; run < 400; ++run) {
    SCOPED_TRACE("seed " + std::to_string(base + run));
    Ranks ranks(base + run, 1 + run % 5);
    ranks.Run(60);
    if (HasFatalFailure()) return;
    adoptions += ranks.adoptions();
  }
  EXPECT_GT(adoptions, 400u) << "seed " << base;
}

}  // namespace
}  // namespace gradgate
