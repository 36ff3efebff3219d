#include "daemon/policy/policy_state.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/types.h"

namespace gradgate {
namespace {

using ::testing::HasSubstr;

// A rank in a few letters: A adopted 7, a adopted 6, S staged 7, s staged 6, R rejected 7, r rejected 6 and staged 7, -
// nothing;
// "!" behind it: it has ended.
v1::PolicyStatus Job(const std::string& ranks, int32_t world_size) {
  v1::PolicyStatus status;
  status.mutable_job()->set_world_size(world_size);
  status.mutable_job()->set_state(v1::STATE_RUNNING);
  status.mutable_proposed()->set_version(7);
  for (const char place : ranks) {
    if (place == '!') {
      status.mutable_ranks(status.ranks_size() - 1)->set_state(v1::STATE_LOST);
      continue;
    }
    v1::RankPolicy& rank = *status.add_ranks();
    rank.set_rank(status.ranks_size() - 1);
    rank.set_state(v1::STATE_RUNNING);
    if (place == 'A' || place == 'a') {
      rank.set_adopted_version(place == 'A' ? 7 : 6);
      rank.set_adopted_window_index(40);
    }
    if (place == 'S' || place == 's') rank.set_staged_version(place == 'S' ? 7 : 6);
    if (place == 'R' || place == 'r') {
      rank.set_rejected_version(place == 'R' ? 7 : 6);
      rank.set_rejection(v1::POLICY_REJECTION_FIXED);
    }
    if (place == 'r') rank.set_staged_version(7);
  }
  return status;
}

TEST(Judge, Table) {
  struct Case {
    const char* ranks;
    int32_t world_size;
    v1::PolicyState state;
    const char* detail;
  };
  const Case cases[] = {
      {"AAAA", 4, v1::POLICY_STATE_ADOPTED, "in force on all ranks from window 40 on"},
      {"AAA!A", 4, v1::POLICY_STATE_ADOPTED, "in force on all ranks"},
      {"AASA", 4, v1::POLICY_STATE_STAGED, "the next ballot"},
      {"SSSS", 4, v1::POLICY_STATE_STAGED, "every rank has it"},
      {"SrSS", 4, v1::POLICY_STATE_STAGED, "every rank has it"},
      {"SsSS", 4, v1::POLICY_STATE_PROPOSED, "rank 1 has not read it yet"},
      {"S-S-", 4, v1::POLICY_STATE_PROPOSED, "ranks 1, 3 have not read it yet"},
      {"aaaa", 4, v1::POLICY_STATE_PROPOSED, "ranks 0, 1, 2, 3 have not read it yet"},
      {"AA", 4, v1::POLICY_STATE_PROPOSED, "the ranks seen have it; 2 of 4 ranks are not seen from here"},
      {"SS-", 4, v1::POLICY_STATE_PROPOSED, "rank 2 has not read it yet: that is done at the end of a window; 1 of 4"},
      {"SRSS", 4, v1::POLICY_STATE_REJECTED, "rejected by rank 1: this cannot change while it runs there"},
      {"RS", 4, v1::POLICY_STATE_REJECTED, "rejected by rank 0"},
      {"AARA", 4, v1::POLICY_STATE_REJECTED, "rejected by rank 2"},
      {"SSR!S", 4, v1::POLICY_STATE_STAGED, "every rank has it"},
      {"A!A!", 2, v1::POLICY_STATE_ADOPTED, "in force on all ranks from window 40 on"},
      {"a!A!", 2, v1::POLICY_STATE_PROPOSED, "has not read it yet"},
      {"", 2, v1::POLICY_STATE_PROPOSED, "no rank of the job runs; 2 of 2 ranks are not seen"},
  };
  for (const Case& c : cases) {
    v1::PolicyStatus status = Job(c.ranks, c.world_size);
    status.set_detail("of before");
    status.set_adopted_window_index(99);
    Judge(&status);
    EXPECT_EQ(v1::PolicyState_Name(status.state()), v1::PolicyState_Name(c.state)) << c.ranks;
    EXPECT_THAT(status.detail(), HasSubstr(c.detail)) << c.ranks;
    EXPECT_EQ(status.adopted_window_index(), c.state == v1::POLICY_STATE_ADOPTED ? 40 : 0) << c.ranks;
  }
}

TEST(Judge, WithoutAProposalThereIsNoState) {
  v1::PolicyStatus status = Job("aa", 2);
  status.mutable_proposed()->Clear();
  Judge(&status);
  EXPECT_EQ(status.state(), v1::POLICY_STATE_UNSPECIFIED);
  EXPECT_THAT(status.detail(), HasSubstr("version 6 in force, which the store does not have"));
  status = Job("--", 2);
  status.mutable_proposed()->Clear();
  Judge(&status);
  EXPECT_THAT(status.detail(), HasSubstr("no policy was proposed"));
}

TEST(Judge, ReasonsAreToldApartAndManyRanksAreCut) {
  v1::PolicyStatus status = Job(std::string(20, 'R') + "RR", 22);
  status.mutable_ranks(21)->set_rejection(v1::POLICY_REJECTION_HOOK_HELD);
  Judge(&status);
  EXPECT_THAT(status.detail(), HasSubstr("rank 21: the trainer's own communication hook"));
  EXPECT_THAT(status.detail(), HasSubstr("14, 15 and 5 more: this cannot change"));
}

TEST(Judge, SilentNodesAreNamed) {
  v1::PolicyStatus status = Job("S", 2);
  v1::NodeAnswer& node = *status.add_nodes();
  node.set_node_name("n2");
  node.set_error("no route");
  status.add_nodes()->set_answered(true);
  Judge(&status);
  EXPECT_EQ(status.state(), v1::POLICY_STATE_PROPOSED);
  EXPECT_THAT(status.detail(), HasSubstr("; no answer from n2 (no route)"));
}

TEST(ToRankPolicy, TakesWhatThePageSays) {
  RankView view;
  view.identity.rank = 3;
  view.state = RankState::kRunning;
  TotalsValues& totals = view.counters.totals;
  totals.policy_version = 5;
  totals.policy_adopted_window = 17;
  totals.policy_staged_version = 6;
  totals.policy_rejected_version = 4;
  totals.policy_rejection = static_cast<uint64_t>(PolicyRejection::kHookHeld);
  const v1::RankPolicy rank = ToRankPolicy(view, "n1");
  EXPECT_EQ(rank.rank(), 3);
  EXPECT_EQ(rank.node_name(), "n1");
  EXPECT_EQ(rank.adopted_version(), 5);
  EXPECT_EQ(rank.adopted_window_index(), 17);
  EXPECT_EQ(rank.staged_version(), 6);
  EXPECT_EQ(rank.rejected_version(), 4);
  EXPECT_EQ(rank.rejection(), v1::POLICY_REJECTION_HOOK_HELD);
  EXPECT_EQ(rank.state(), v1::STATE_RUNNING);
}

// A page may say anything.
TEST(ToRankPolicy, HostileNumbersStayInRange) {
  RankView view;
  TotalsValues& totals = view.counters.totals;
  totals.policy_version = totals.policy_adopted_window = totals.policy_staged_version = ~uint64_t{0};
  totals.policy_rejected_version = totals.policy_rejection = ~uint64_t{0};
  const v1::RankPolicy rank = ToRankPolicy(view, "n1");
  EXPECT_EQ(rank.adopted_version(), INT64_MAX);
  EXPECT_EQ(rank.adopted_window_index(), INT64_MAX);
  EXPECT_EQ(rank.staged_version(), INT64_MAX);
  EXPECT_EQ(rank.rejected_version(), INT64_MAX);
  EXPECT_EQ(static_cast<uint32_t>(rank.rejection()), kPolicyRejectionCount);
}

TEST(ToRankPolicy, RejectionsHaveTheSameNumbersOnBothSides) {
  EXPECT_EQ(kPolicyRejectionCount, static_cast<uint32_t>(v1::PolicyRejection_ARRAYSIZE));
  EXPECT_EQ(static_cast<int>(PolicyRejection::kNoReplicas), v1::POLICY_REJECTION_NO_REPLICAS);
  EXPECT_EQ(static_cast<int>(PolicyRejection::kFixed), v1::POLICY_REJECTION_FIXED);
  EXPECT_EQ(static_cast<int>(RankState::kRunning) + 1, v1::STATE_RUNNING);
  EXPECT_EQ(static_cast<int>(RankState::kLost) + 1, v1::STATE_LOST);
}

}  // namespace
}  // namespace gradgate
