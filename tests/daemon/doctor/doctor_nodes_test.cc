// Evidence of more than one node, of jobs that begin or idle, and of trainers that tell nonsense.

#include <cstdint>
#include <vector>

#include "absl/strings/str_join.h"
#include "daemon/doctor/doctor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/doctor/job_builder.h"

namespace gradgate {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::End;
using ::testing::HasSubstr;
using testing::HealthyJob;
using testing::Message;
using ::testing::Not;
using testing::RankOf;
using testing::Stand;
using testing::Wait;

constexpr auto kS = [](int s) { return absl::Seconds(s); };

std::vector<v1::VerdictKind> Kinds(const std::vector<v1::Verdict>& verdicts) {
  std::vector<v1::VerdictKind> kinds;
  for (const v1::Verdict& verdict : verdicts) kinds.push_back(verdict.kind());
  return kinds;
}

TEST(DoctorEvidence, MergesNodesAndNamesTheNodeOfTheMissingRank) {
  Evidence evidence = HealthyJob();
  for (int rank : {0, 2}) Wait(RankOf(evidence, rank), kS(16));
  Stand(RankOf(evidence, 1), kS(17), 3);
  v1::NodeEvidence other;
  other.set_node_name("node-b");
  other.add_ranks()->Swap(evidence.nodes[0].mutable_ranks(1));
  evidence.nodes[0].mutable_ranks()->DeleteSubrange(1, 1);
  evidence.nodes.push_back(other);
  const std::vector<v1::Verdict> verdicts = Diagnose(evidence);
  ASSERT_THAT(Kinds(verdicts), ElementsAre(v1::VERDICT_KIND_HUNG));
  EXPECT_THAT(absl::StrJoin(verdicts[0].evidence(), "\n"), HasSubstr("rank 1 on host-a (node node-b), pid 4001"));
}

TEST(DoctorEvidence, NamesTheRankOfANodeThatIsCutOffAndBlamesNobodyElse) {
  Evidence evidence = HealthyJob();
  Wait(RankOf(evidence, 0), kS(16), 2);
  Wait(RankOf(evidence, 2), kS(16), 1);  // it lacks what rank 1 was to send for the first collective
  evidence.other_nodes_asked = true;
  evidence.nodes[0].mutable_ranks()->DeleteSubrange(1, 1);
  const std::vector<v1::Verdict> verdicts = Diagnose(evidence);
  ASSERT_THAT(Kinds(verdicts), ElementsAre(v1::VERDICT_KIND_HUNG, v1::VERDICT_KIND_RANKS_UNSEEN));
  EXPECT_THAT(verdicts[0].headline(), HasSubstr("ranks 0, 2 have waited 16 s for rank 1, which is not seen"));
  EXPECT_THAT(verdicts[0].ranks(), ElementsAre(1));
  EXPECT_THAT(verdicts[0].evidence(), Contains("not seen: rank 1"));
  EXPECT_THAT(verdicts[0].advice(), ElementsAre(HasSubstr("the node of rank 1")));
}

TEST(DoctorEvidence, TakesTheRunningOneOfARankThatTwoNodesKnow) {
  Evidence evidence = HealthyJob();
  v1::NodeEvidence other;
  *other.add_ranks() = RankOf(evidence, 1);
  End(*other.mutable_ranks(0), v1::STATE_LOST, kS(5));
  evidence.nodes.push_back(other);
  EXPECT_THAT(Kinds(Diagnose(evidence)), ElementsAre(v1::VERDICT_KIND_HEALTHY));
}

TEST(DoctorEvidence, TakesTheRunningOneWhicheverNodeIsFirst) {
  Evidence evidence = HealthyJob();
  v1::NodeEvidence first;
  *first.add_ranks() = RankOf(evidence, 1);
  End(*first.mutable_ranks(0), v1::STATE_LOST, kS(5));
  evidence.nodes.insert(evidence.nodes.begin(), first);
  EXPECT_THAT(Kinds(Diagnose(evidence)), ElementsAre(v1::VERDICT_KIND_HEALTHY));
}

// Two nodes answer at different instants, in which fast jobs close windows.
TEST(DoctorEvidence, AllowsNodesToBeReadAtDifferentInstants) {
  Evidence evidence = HealthyJob();
  v1::NodeEvidence other;
  *other.add_ranks() = RankOf(evidence, 2);
  other.mutable_ranks(0)->mutable_stats()->set_window_index(55);
  evidence.nodes[0].mutable_ranks()->DeleteSubrange(2, 1);
  evidence.nodes.push_back(other);
  EXPECT_THAT(Kinds(Diagnose(evidence)), ElementsAre(v1::VERDICT_KIND_HEALTHY));
  evidence.nodes[1].mutable_ranks(0)->mutable_stats()->set_window_index(80);
  EXPECT_THAT(Kinds(Diagnose(evidence)), Contains(v1::VERDICT_KIND_RANKS_APART));
}

TEST(DoctorEvidence, TakesAbsurdNumbers) {
  Evidence evidence = HealthyJob();
  for (v1::RankEvidence& rank : *evidence.nodes[0].mutable_ranks()) {
    rank.mutable_progress()->mutable_idle()->set_seconds(INT64_MAX);
    rank.mutable_wait_p99()->set_seconds(INT64_MIN);
    rank.set_world_size(INT32_MAX);
    rank.mutable_stats()->set_window_index(INT64_MAX);
    rank.mutable_stats()->set_rank(-5);
    rank.set_policy_rejected_version(INT64_MAX);
    rank.set_policy_rejection(-1);
  }
  EXPECT_FALSE(Diagnose(evidence).empty());
}

TEST(DoctorEvidence, TellsAHangInAFirstWindowAfterFiveMinutes) {
  Evidence evidence = HealthyJob({.windows = 0});
  Wait(RankOf(evidence, 0), kS(301));
  EXPECT_THAT(Kinds(Diagnose(evidence)), ElementsAre(v1::VERDICT_KIND_HUNG));
}

TEST(DoctorEvidence, NeverSaysThatNobodyWaitsWhereSomebodyMay) {
  Evidence waits = HealthyJob();
  *RankOf(waits, 1).mutable_wait_p99() = Message(kS(20));
  Wait(RankOf(waits, 0), kS(95)), Wait(RankOf(waits, 2), kS(95)), Stand(RankOf(waits, 1), kS(95), 3);
  EXPECT_THAT(absl::StrJoin(Diagnose(waits)[0].evidence(), "\n"), HasSubstr("in a collective: ranks 0, 2"));
  Evidence unseen = HealthyJob();
  for (v1::RankEvidence& rank : *unseen.nodes[0].mutable_ranks()) {
    Stand(rank, kS(150), 2), rank.mutable_stats()->mutable_collectives(0)->set_unknown_count(9);
  }
  EXPECT_THAT(absl::StrJoin(Diagnose(unseen)[0].evidence(), "\n"), HasSubstr("cannot be seen here"));
}

TEST(DoctorEvidence, NeverSaysThatRanksLiveWhichHaveEnded) {
  Evidence evidence = HealthyJob();
  evidence.other_nodes_asked = true;
  evidence.nodes[0].mutable_ranks()->DeleteSubrange(1, 1);
  for (v1::RankEvidence& rank : *evidence.nodes[0].mutable_ranks()) rank.mutable_stats()->set_state(v1::STATE_FINISHED);
  const auto verdicts = Diagnose(evidence);
  ASSERT_THAT(Kinds(verdicts), ElementsAre(v1::VERDICT_KIND_RANKS_UNSEEN));
  const std::string told = absl::StrJoin(verdicts[0].evidence(), "\n");
  EXPECT_THAT(told, HasSubstr("none of them runs"));
  EXPECT_THAT(told, Not(HasSubstr("live")));
}

TEST(DoctorEvidence, SaysSinceWhenAJobIsIdle) {
  Evidence evidence = HealthyJob();
  for (int rank : {0, 1, 2}) Stand(RankOf(evidence, rank), kS(150), 0);
  EXPECT_THAT(absl::StrJoin(Diagnose(evidence)[0].evidence(), "\n"),
              HasSubstr("idle for 2 min 30 s, all ranks between windows"));
}

}  // namespace
}  // namespace gradgate
