// Each fault gives its verdict and no other; no healthy job gives one.

#include "daemon/doctor/doctor.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/doctor/job_builder.h"

namespace gradgate {
namespace {

using testing::EachWindow;
using ::testing::ElementsAre;
using testing::End;
using ::testing::HasSubstr;
using testing::HealthyJob;
using testing::JobShape;
using testing::Message;
using testing::RankOf;
using testing::Stand;
using testing::Wait;
using testing::WindowOf;

constexpr auto kMs = [](int ms) { return absl::Milliseconds(ms); };
constexpr auto kS = [](int s) { return absl::Seconds(s); };

std::string Text(const v1::Verdict& verdict) {
  return absl::StrJoin({verdict.headline(), absl::StrJoin(verdict.evidence(), "\n"), absl::StrJoin(verdict.advice(), "\n")},
                       "\n");
}

std::vector<v1::VerdictKind> Kinds(const std::vector<v1::Verdict>& verdicts) {
  std::vector<v1::VerdictKind> kinds;
  for (const v1::Verdict& verdict : verdicts) kinds.push_back(verdict.kind());
  return kinds;
}

struct Case {
  const char* name;
  v1::VerdictKind kind;
  v1::Severity severity;
  std::vector<int> ranks;
  const char* says;  // somewhere in the verdict
  std::function<void(Evidence&)> spoil;
  JobShape shape = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class EachFault : public ::testing::TestWithParam<Case> {};

TEST_P(EachFault, GivesItsVerdictAndNoOther) {
  const Case& c = GetParam();
  Evidence evidence = HealthyJob(c.shape);
  c.spoil(evidence);
  const std::vector<v1::Verdict> verdicts = Diagnose(evidence);
  ASSERT_FALSE(verdicts.empty());
  const v1::Verdict& first = verdicts.front();
  EXPECT_EQ(first.kind(), c.kind) << Text(first);
  EXPECT_EQ(first.severity(), c.severity) << Text(first);
  EXPECT_EQ(std::vector<int>(first.ranks().begin(), first.ranks().end()), c.ranks) << Text(first);
  EXPECT_THAT(Text(first), HasSubstr(c.says));
  EXPECT_FALSE(first.evidence().empty());
  EXPECT_FALSE(first.advice().empty());
  if (c.severity > v1::SEVERITY_NOTICE || c.kind == v1::VERDICT_KIND_WAITING) {
    EXPECT_THAT(Kinds(verdicts), ElementsAre(c.kind));
  } else {
    EXPECT_THAT(Kinds(verdicts), ElementsAre(c.kind, v1::VERDICT_KIND_HEALTHY));
  }
}

// Ranks 0 and 2 have issued bucket 1 of the open window and wait.
void OthersWait(Evidence& e, absl::Duration idle) {
  Wait(RankOf(e, 0), idle);
  Wait(RankOf(e, 2), idle - kMs(3));
}

// Rank 0 does something between windows; the others are in an all-reduce of the script.
void Evaluate(Evidence& e, absl::Duration idle) {
  for (int rank : {0, 1, 2}) Stand(RankOf(e, rank), idle, 0);
  for (int rank : {1, 2}) {
    RankOf(e, rank).mutable_progress()->set_in_flight_count(1);
    RankOf(e, rank).mutable_progress()->set_other_issued_count(1);
    RankOf(e, rank).mutable_stats()->mutable_collectives(0)->set_other_issued_count(1);
  }
}

const Case kStandstills[] = {
    {"Hung",
     v1::VERDICT_KIND_HUNG,
     v1::SEVERITY_CRITICAL,
     {1},
     "window 40: ranks 0, 2 have waited 16 s for rank 1",
     [](Evidence& e) { OthersWait(e, kS(16)), Stand(RankOf(e, 1), kS(17), 3); }},
    {"HungAtASecondBucket",
     v1::VERDICT_KIND_HUNG,
     v1::SEVERITY_CRITICAL,
     {1},
     "first missing is gradient collective 2",
     [](Evidence& e) {
       Wait(RankOf(e, 0), kS(16), 2), Wait(RankOf(e, 2), kS(16), 2), Stand(RankOf(e, 1), kS(16), 4);
       RankOf(e, 1).mutable_progress()->set_gradient_issued_count(1);
     }},
    {"HungForOneThatMoves",
     v1::VERDICT_KIND_HUNG,
     v1::SEVERITY_CRITICAL,
     {1},
     "last seen to move 200 ms ago",
     [](Evidence& e) { OthersWait(e, kS(16)), Stand(RankOf(e, 1), kMs(200), 3); }},
    {"HungForOneBetweenWindows",
     v1::VERDICT_KIND_HUNG,
     v1::SEVERITY_CRITICAL,
     {1},
     "has not begun the window",
     [](Evidence& e) { OthersWait(e, kS(16)), Stand(RankOf(e, 1), kS(40), 0); }},
    {"HungForOneThatFinished",
     v1::VERDICT_KIND_HUNG,
     v1::SEVERITY_CRITICAL,
     {1},
     "left the training",
     [](Evidence& e) { OthersWait(e, kS(16)), Stand(RankOf(e, 1), kS(17), 0), End(RankOf(e, 1), v1::STATE_FINISHED, kS(16)); }},
    {"HungWithAllArrived",
     v1::VERDICT_KIND_HUNG,
     v1::SEVERITY_CRITICAL,
     {},
     "a collective that every rank has issued",
     [](Evidence& e) { OthersWait(e, kS(16)), Wait(RankOf(e, 1), kS(16)); }},
    {"StoppedInTheFirstWindow",
     v1::VERDICT_KIND_STOPPED,
     v1::SEVERITY_CRITICAL,
     {1},
     "rank 1 is stopped by a signal, and last moved 20 s ago",
     [](Evidence& e) { Stand(RankOf(e, 1), kS(20), 1), Wait(RankOf(e, 0), kS(20)), RankOf(e, 1).set_process_state("T"); },
     {.windows = 0}},
    {"StoppedJustNow",
     v1::VERDICT_KIND_STOPPED,
     v1::SEVERITY_CRITICAL,
     {1},
     "let rank 1 go on: kill -CONT 4001 on host-a",
     [](Evidence& e) { RankOf(e, 1).set_process_state("T"); }},
    {"StoppedAlone",
     v1::VERDICT_KIND_STOPPED,
     v1::SEVERITY_CRITICAL,
     {0},
     "kill -CONT 4000",
     [](Evidence& e) { RankOf(e, 0).set_process_state("T"); },
     {.ranks = 1}},
    {"HeldByADebugger",
     v1::VERDICT_KIND_STOPPED,
     v1::SEVERITY_WARNING,
     {1},
     "stopped by a debugger",
     [](Evidence& e) { Stand(RankOf(e, 1), kS(6), 1), RankOf(e, 1).set_process_state("t"); }},
    {"StoppedWhileTheOthersWait",
     v1::VERDICT_KIND_STOPPED,
     v1::SEVERITY_CRITICAL,
     {1},
     "ranks 0, 2 wait in a collective, for 16 s so far",
     [](Evidence& e) { OthersWait(e, kS(16)), Stand(RankOf(e, 1), kS(17), 3), RankOf(e, 1).set_process_state("T"); }},
    {"WaitingInTheFirstWindow",
     v1::VERDICT_KIND_WAITING,
     v1::SEVERITY_NOTICE,
     {1, 2},
     "not judged yet: rank 0 waits 20 s in a gradient reduction that ranks 1, 2 have not issued",
     [](Evidence& e) {
       for (int rank : {1, 2}) Stand(RankOf(e, rank), kS(20), 1);
       Wait(RankOf(e, 0), kS(20));
     },
     {.windows = 0}},
    {"StandingApartInTheFirstWindow",
     v1::VERDICT_KIND_WAITING,
     v1::SEVERITY_NOTICE,
     {},
     "no rank has moved for 20 s, and they stand at different micro-steps",
     [](Evidence& e) {
       for (int rank : {0, 1, 2}) Stand(RankOf(e, rank), kS(20), rank == 1 ? 1 : 2);
     },
     {.windows = 0}},
    {"AllStandAndOneHasBegunTheNextWindow",
     v1::VERDICT_KIND_WAITING,
     v1::SEVERITY_NOTICE,
     {},
     "not judged",
     [](Evidence& e) {
       for (int rank : {0, 1}) Stand(RankOf(e, rank), kS(600), 0);
       Stand(RankOf(e, 2), kS(600), 1), RankOf(e, 2).mutable_stats()->set_window_index(41);
     }},
    {"WaitingBetweenWindows",
     v1::VERDICT_KIND_WAITING,
     v1::SEVERITY_WARNING,
     {0},
     "ranks 1, 2 wait 10 min 00 s in an all_reduce that rank 0 has not issued",
     [](Evidence& e) { Evaluate(e, kS(600)); }},
    {"WaitingBetweenWindowsWhereWaitsAreLong",
     v1::VERDICT_KIND_WAITING,
     v1::SEVERITY_NOTICE,
     {0},
     "not judged yet: ranks 1, 2 wait 1 min 30 s",
     [](Evidence& e) { *RankOf(e, 1).mutable_wait_p99() = Message(kS(20)), Evaluate(e, kS(90)); }},
    {"StoppedThoughItHadArrived",
     v1::VERDICT_KIND_STOPPED,
     v1::SEVERITY_CRITICAL,
     {1},
     "stopped by a signal",
     [](Evidence& e) { OthersWait(e, kS(16)), Wait(RankOf(e, 1), kS(16)), RankOf(e, 1).set_process_state("T"); }},
    {"HungWhereEndsCannotBeSeen",
     v1::VERDICT_KIND_HUNG,
     v1::SEVERITY_CRITICAL,
     {1},
     "window 40",
     [](Evidence& e) {
       for (int rank : {0, 2}) Wait(RankOf(e, rank), kS(20)), RankOf(e, rank).mutable_progress()->set_in_flight_count(0);
       Stand(RankOf(e, 1), kS(20), 3);
     }},
    {"Lost",
     v1::VERDICT_KIND_RANK_LOST,
     v1::SEVERITY_CRITICAL,
     {1},
     "window 39 from its page: 4 micro-steps, 1 of 1 reduction",
     [](Evidence& e) { OthersWait(e, kS(20)), End(RankOf(e, 1), v1::STATE_LOST, kS(20)); }},
    {"LostAndTheOthersFailed",
     v1::VERDICT_KIND_RANK_LOST,
     v1::SEVERITY_CRITICAL,
     {1},
     "after that ranks 0, 2 ended with an error",
     [](Evidence& e) {
       End(RankOf(e, 1), v1::STATE_LOST, kS(70));
       for (int rank : {0, 2}) {
         End(RankOf(e, rank), v1::STATE_FAILED, kS(10));
         WindowOf(e, rank).mutable_window()->set_failed(true);
         RankOf(e, rank).mutable_stats()->mutable_totals()->set_refused_count(1);
       }
     }},
    {"LostAndTheOthersSawItAtOnce",
     v1::VERDICT_KIND_RANK_LOST,
     v1::SEVERITY_CRITICAL,
     {1},
     "after that ranks 0, 2 ended without a goodbye",
     [](Evidence& e) {
       End(RankOf(e, 1), v1::STATE_LOST, kMs(69'990));  // seen a little later than the others, which go by their sockets
       for (int rank : {0, 2}) {
         End(RankOf(e, rank), v1::STATE_LOST, kS(70));
         WindowOf(e, rank).mutable_window()->set_failed(true);
       }
     }},
    {"LostAndTheLauncherKilledTheOthers",
     v1::VERDICT_KIND_RANK_LOST,
     v1::SEVERITY_CRITICAL,
     {1},
     "ends on its node: first rank 1, rank 2 80 ms after it, rank 0 90 ms after it",
     [](Evidence& e) {
       End(RankOf(e, 1), v1::STATE_LOST, kS(12));
       End(RankOf(e, 2), v1::STATE_LOST, kMs(11'920)), End(RankOf(e, 0), v1::STATE_LOST, kMs(11'910));
     }},
    {"LostAndTheHostIsNamed",
     v1::VERDICT_KIND_RANK_LOST,
     v1::SEVERITY_CRITICAL,
     {1},
     "on host-a look for what killed rank 1",
     [](Evidence& e) { End(RankOf(e, 1), v1::STATE_LOST, kS(12)); }},
    {"LostTogetherOnTwoNodes",
     v1::VERDICT_KIND_RANK_LOST,
     v1::SEVERITY_CRITICAL,
     {1, 2},
     "ranks 1, 2 ended without a goodbye",
     [](Evidence& e) {
       End(RankOf(e, 1), v1::STATE_LOST, kS(12)), End(RankOf(e, 2), v1::STATE_LOST, kMs(11'500));
       v1::NodeEvidence other;
       other.set_node_name("b");
       *other.add_ranks() = RankOf(e, 2);
       e.nodes[0].mutable_ranks()->DeleteSubrange(2, 1);
       e.nodes.push_back(other);
     }},
    {"LostAndTheOthersSawItAndGoOn",
     v1::VERDICT_KIND_RANK_LOST,
     v1::SEVERITY_CRITICAL,
     {1},
     "ended without a goodbye",
     [](Evidence& e) {
       End(RankOf(e, 1), v1::STATE_LOST, kS(12));
       WindowOf(e, 0).mutable_window()->set_failed(true), End(RankOf(e, 0), v1::STATE_FINISHED, kS(11));
       WindowOf(e, 2).mutable_window()->set_failed(true);
       RankOf(e, 2).mutable_stats()->mutable_totals()->set_refused_count(1);
     }},
    {"FailedAndTheLauncherKilledTheOthers",
     v1::VERDICT_KIND_RANK_FAILED,
     v1::SEVERITY_CRITICAL,
     {2},
     "after that ranks 0, 1 ended without",
     [](Evidence& e) {
       End(RankOf(e, 2), v1::STATE_FAILED, kS(12));
       for (int rank : {0, 1}) End(RankOf(e, rank), v1::STATE_LOST, kMs(11'900));
     }},
    {"WindowFailed",
     v1::VERDICT_KIND_WINDOW_FAILED,
     v1::SEVERITY_CRITICAL,
     {0},
     "of window 39 failed",
     [](Evidence& e) { WindowOf(e, 0).mutable_window()->set_failed(true); }},
};
INSTANTIATE_TEST_SUITE_P(Standstills, EachFault, ::testing::ValuesIn(kStandstills), [](const auto& p) { return p.param.name; });

void MakeWasteful(v1::WindowEvidence& window) {
  window.mutable_window()->set_reduction_issued_count(4);
  window.mutable_window()->set_collective_issued_count(8);
  *window.mutable_window()->mutable_wait_duration() = Message(kMs(40));
  window.mutable_window()->set_mismatched(true);
}

// The last `windows` are under policy 9.
void Adopt(Evidence& e, int windows) {
  for (int rank : {0, 1, 2}) {
    for (int at = 0; at < windows; ++at) WindowOf(e, rank, at).mutable_window()->set_policy_version(9);
    RankOf(e, rank).mutable_stats()->set_policy_version(9);
  }
}

const Case kReductions[] = {
    {"Wasted",
     v1::VERDICT_KIND_WASTED_REDUCTIONS,
     v1::SEVERITY_WARNING,
     {0, 1, 2},
     "4 reductions per optimizer step where 1 would do",
     [](Evidence& e) { EachWindow(e, -1, MakeWasteful); }},
    {"WastedInAudit",
     v1::VERDICT_KIND_WASTED_REDUCTIONS,
     v1::SEVERITY_WARNING,
     {0, 1, 2},
     "gradgatectl policy set job-a enforcement=enforce mode=window",
     [](Evidence& e) {
       EachWindow(e, -1, MakeWasteful);
       e.nodes[0].mutable_job()->set_job_name("job-a");
       for (int rank : {0, 1, 2}) RankOf(e, rank).set_enforcement(v1::ENFORCEMENT_AUDIT);
     }},
    {"WastedCosts",
     v1::VERDICT_KIND_WASTED_REDUCTIONS,
     v1::SEVERITY_WARNING,
     {1},
     "costs 750 kB per optimizer step and rank, and 30 ms",
     [](Evidence& e) { EachWindow(e, 1, MakeWasteful); }},
    {"WastedWhereEndsAreNotSeen",
     v1::VERDICT_KIND_WASTED_REDUCTIONS,
     v1::SEVERITY_WARNING,
     {1},
     "costs 750 kB per optimizer step and rank; the time is not known here",
     [](Evidence& e) {
       EachWindow(e, 1, MakeWasteful);
       RankOf(e, 1).mutable_stats()->mutable_collectives(0)->set_unknown_count(9);
     }},
    {"WastedWhereWaitsAreNotSeen",
     v1::VERDICT_KIND_WASTED_REDUCTIONS,
     v1::SEVERITY_WARNING,
     {1},
     "costs 750 kB per optimizer step and rank; the time is not known here",
     [](Evidence& e) {
       EachWindow(e, 1, MakeWasteful);
       EachWindow(e, 1, [](auto& window) { *window.mutable_window()->mutable_wait_duration() = Message(kMs(1)); });
     }},
    {"WastedUnderThePolicyInForce",
     v1::VERDICT_KIND_WASTED_REDUCTIONS,
     v1::SEVERITY_WARNING,
     {0, 1, 2},
     "9 of the last 9 windows of single ranks, windows 37 to 39",
     [](Evidence& e) { EachWindow(e, -1, MakeWasteful), Adopt(e, 3); }},
    {"NotReducedBeforeThePolicyInForce",
     v1::VERDICT_KIND_NOT_REDUCED,
     v1::SEVERITY_CRITICAL,
     {2},
     "window 36",
     [](Evidence& e) {
       v1::RankWindow& window = *WindowOf(e, 2, 3).mutable_window();
       window.set_reduction_issued_count(0), window.set_last_reduction_at(0), window.set_mismatched(true);
       Adopt(e, 3);
     }},
    {"WastedByOperation",
     v1::VERDICT_KIND_WASTED_REDUCTIONS,
     v1::SEVERITY_WARNING,
     {0, 1, 2},
     "dp all_reduce: 8 gradient collectives per optimizer step, 2 intended",
     [](Evidence& e) {
       EachWindow(e, -1, MakeWasteful);
       for (int rank : {0, 1, 2}) RankOf(e, rank).mutable_stats()->mutable_collectives(0)->set_gradient_issued_count(8 * 40);
     }},
    {"NeverReduced",
     v1::VERDICT_KIND_NOT_REDUCED,
     v1::SEVERITY_CRITICAL,
     {2},
     "no reduction at all over 4 micro-steps",
     [](Evidence& e) {
       v1::RankWindow& window = *WindowOf(e, 2).mutable_window();
       window.set_reduction_issued_count(0), window.set_last_reduction_at(0), window.set_mismatched(true);
     }},
    {"WrongPosition",
     v1::VERDICT_KIND_NOT_REDUCED,
     v1::SEVERITY_CRITICAL,
     {0, 1, 2},
     "micro-steps up to 3, the step came after 4",
     [](Evidence& e) { EachWindow(e, -1, [](auto& window) { window.mutable_window()->set_last_reduction_at(3); }); }},
    {"OneGroupLeftOut",
     v1::VERDICT_KIND_NOT_REDUCED,
     v1::SEVERITY_CRITICAL,
     {0},
     "1 reductions where 2 are needed",
     [](Evidence& e) { WindowOf(e, 0).mutable_window()->set_reduction_intended_count(2); }},
    {"Late",
     v1::VERDICT_KIND_REDUCED_LATE,
     v1::SEVERITY_NOTICE,
     {0, 1, 2},
     "reduced at the step",
     [](Evidence& e) { EachWindow(e, -1, [](auto& window) { window.mutable_window()->set_late(true); }); }},
    {"Unstepped",
     v1::VERDICT_KIND_UNSTEPPED,
     v1::SEVERITY_WARNING,
     {0, 1, 2},
     "no optimizer step followed",
     [](Evidence& e) { EachWindow(e, -1, [](auto& window) { window.mutable_window()->set_unstepped(true); }); }},
    {"Overridden",
     v1::VERDICT_KIND_OVERRIDDEN,
     v1::SEVERITY_WARNING,
     {1},
     "against the policy",
     [](Evidence& e) { RankOf(e, 1).set_override_count(3); }},
    {"Refused",
     v1::VERDICT_KIND_STEP_REFUSED,
     v1::SEVERITY_WARNING,
     {1},
     "refused since the start: 2",
     [](Evidence& e) { RankOf(e, 1).mutable_stats()->mutable_totals()->set_refused_count(2); }},
    {"Logging",
     v1::VERDICT_KIND_LOGGING_COLLECTIVES,
     v1::SEVERITY_WARNING,
     {0, 1, 2},
     "4 small all_reduce per optimizer step",
     [](Evidence& e) {
       for (int rank : {0, 1, 2}) {
         v1::CollectiveStats& cell = *RankOf(e, rank).mutable_stats()->mutable_collectives(0);
         cell.set_other_issued_count(160), cell.set_other_bytes(160 * 4);
       }
     }},
};
INSTANTIATE_TEST_SUITE_P(Reductions, EachFault, ::testing::ValuesIn(kReductions), [](const auto& p) { return p.param.name; });

void Shorten(v1::WindowEvidence& window) {
  window.mutable_window()->set_micro_step_count(3);
  window.mutable_window()->set_last_reduction_at(3);
}
void SpreadMicroSteps(v1::WindowEvidence& window) { window.mutable_window()->set_min_micro_step_count(3); }

const Case kRanks[] = {
    {"AnotherNInEqualWindows",
     v1::VERDICT_KIND_RANKS_APART,
     v1::SEVERITY_WARNING,
     {1},
     "micro-steps 3 on rank 1, 4 on ranks 0, 2",
     [](Evidence& e) {
       EachWindow(e, 1, Shorten), EachWindow(e, -1, SpreadMicroSteps);
       EachWindow(e, -1, [](auto& window) { window.mutable_window()->set_disagreed(true); });
     }},
    {"AnotherNWithoutBallot",
     v1::VERDICT_KIND_RANKS_APART,
     v1::SEVERITY_WARNING,
     {1},
     "brings another number of micro-steps",
     [](Evidence& e) {
       EachWindow(e, 1, Shorten);
       EachWindow(e, -1, [](auto& window) { window.mutable_window()->set_max_micro_step_count(0); });
     }},
    {"AnotherNInVariableWindows",
     v1::VERDICT_KIND_RANKS_APART,
     v1::SEVERITY_NOTICE,
     {1},
     "declared variable",
     [](Evidence& e) { EachWindow(e, 1, Shorten), EachWindow(e, -1, SpreadMicroSteps); }},
    {"WindowsApart",
     v1::VERDICT_KIND_RANKS_APART,
     v1::SEVERITY_CRITICAL,
     {2},
     "are 5 windows apart",
     [](Evidence& e) { RankOf(e, 2).mutable_stats()->set_window_index(45); }},
    {"Disagreed",
     v1::VERDICT_KIND_RANKS_DISAGREED,
     v1::SEVERITY_CRITICAL,
     {0, 1, 2},
     "parity",
     [](Evidence& e) {
       for (int rank : {0, 1, 2}) WindowOf(e, rank, 3).mutable_window()->set_disagreed(true);
     }},
    {"AnotherShim",
     v1::VERDICT_KIND_RANKS_DIFFER,
     v1::SEVERITY_WARNING,
     {2},
     "shim version: 0.1.0 on ranks 0, 1, 0.2.0 on rank 2",
     [](Evidence& e) { RankOf(e, 2).mutable_stats()->set_shim_version("0.2.0"); }},
    {"AnotherEnforcement",
     v1::VERDICT_KIND_RANKS_DIFFER,
     v1::SEVERITY_WARNING,
     {0},
     "enforcement: audit on rank 0, enforce on ranks 1, 2",
     [](Evidence& e) { RankOf(e, 0).set_enforcement(v1::ENFORCEMENT_AUDIT); }},
    {"AnotherConfiguration",
     v1::VERDICT_KIND_RANKS_DIFFER,
     v1::SEVERITY_WARNING,
     {0},
     "configuration hash",
     [](Evidence& e) { RankOf(e, 0).set_config_hash(8); }},
    {"AnotherMode",
     v1::VERDICT_KIND_RANKS_DIFFER,
     v1::SEVERITY_WARNING,
     {1},
     "mode in window 39: every_micro_step on rank 1",
     [](Evidence& e) { WindowOf(e, 1).mutable_window()->set_sync_mode(v1::SYNC_MODE_EVERY_MICRO_STEP); }},
    {"AnotherPolicy",
     v1::VERDICT_KIND_RANKS_DIFFER,
     v1::SEVERITY_WARNING,
     {1},
     "policy in window 39: 0 on ranks 0, 2, 5 on rank 1",
     [](Evidence& e) { WindowOf(e, 1).mutable_window()->set_policy_version(5); }},
    {"NotStaged",
     v1::VERDICT_KIND_POLICY_NOT_ADOPTED,
     v1::SEVERITY_NOTICE,
     {1},
     "policy 9 waits for rank 1",
     [](Evidence& e) {
       for (int rank : {0, 2}) RankOf(e, rank).set_policy_staged_version(9);
     }},
    {"Rejected",
     v1::VERDICT_KIND_POLICY_NOT_ADOPTED,
     v1::SEVERITY_WARNING,
     {1},
     "groups that shard and groups that replicate",
     [](Evidence& e) {
       for (int rank : {0, 2}) RankOf(e, rank).set_policy_staged_version(9);
       RankOf(e, 1).set_policy_rejected_version(9), RankOf(e, 1).set_policy_rejection(1);
     }},
};
INSTANTIATE_TEST_SUITE_P(Ranks, EachFault, ::testing::ValuesIn(kRanks), [](const auto& p) { return p.param.name; });

// Rank 1 arrives last by 20 ms; the others see that in what they wait.
void MakeLate(Evidence& e) {
  for (int rank : {0, 2}) {
    EachWindow(e, rank, [](auto& window) {
      *window.mutable_ballot_duration() = Message(kMs(23));
      *window.mutable_gradient_duration() = Message(kMs(28));
      *window.mutable_window()->mutable_exposed_duration() = Message(kMs(30));
    });
  }
}

const Case kTimes[] = {
    {"SlowCompute",
     v1::VERDICT_KIND_STRAGGLER,
     v1::SEVERITY_WARNING,
     {1},
     "all wait 20 ms in each window for rank 1, in compute",
     [](Evidence& e) {
       MakeLate(e);
       EachWindow(e, 1, [](auto& w) { *w.mutable_window()->mutable_suppressed_median_duration() = Message(kMs(26)); });
     }},
    {"SlowInput",
     v1::VERDICT_KIND_STRAGGLER,
     v1::SEVERITY_WARNING,
     {1},
     "for rank 1, between micro-steps",
     [](Evidence& e) { MakeLate(e), EachWindow(e, 1, [](auto& w) { *w.mutable_micro_step_duration() = Message(kMs(70)); }); }},
    {"SlowBetweenWindows",
     v1::VERDICT_KIND_STRAGGLER,
     v1::SEVERITY_WARNING,
     {1},
     "for rank 1, between windows",
     [](Evidence& e) { MakeLate(e), EachWindow(e, 1, [](auto& w) { *w.mutable_gap_duration() = Message(kMs(22)); }); }},
    {"BehindASlowLink",
     v1::VERDICT_KIND_SLOW_COMMUNICATION,
     v1::SEVERITY_WARNING,
     {},
     "collectives end 20 ms later on rank 1",
     MakeLate},
    {"SlowSomewhere",
     v1::VERDICT_KIND_STRAGGLER,
     v1::SEVERITY_WARNING,
     {1},
     "where is not known",
     [](Evidence& e) { MakeLate(e), EachWindow(e, 1, [](auto& w) { w.clear_gap_duration(); }); }},
    {"SlowWhereEveryMicroStepReduces",
     v1::VERDICT_KIND_STRAGGLER,
     v1::SEVERITY_WARNING,
     {1},
     "cannot be told apart",
     [](Evidence& e) {
       MakeLate(e), EachWindow(e, -1, [](auto& w) { w.mutable_window()->clear_suppressed_median_duration(); });
     }},
    {"SlowWhereEveryMicroStepReducesAndWaitsApart",
     v1::VERDICT_KIND_STRAGGLER,
     v1::SEVERITY_WARNING,
     {1},
     "for rank 1, in compute",
     [](Evidence& e) {
       MakeLate(e), EachWindow(e, -1, [](auto& w) { w.mutable_window()->clear_suppressed_median_duration(); });
       EachWindow(e, 1, [](auto& w) {
         *w.mutable_micro_step_duration() = Message(kMs(110)), *w.mutable_window_duration() = Message(kMs(120));
       });
     }},
    {"SlowWithoutBallot",
     v1::VERDICT_KIND_STRAGGLER,
     v1::SEVERITY_WARNING,
     {1},
     "inside the longest gradient collective",
     [](Evidence& e) {
       MakeLate(e), EachWindow(e, -1, [](auto& window) { window.clear_ballot_duration(); });
       EachWindow(e, 1, [](auto& w) { *w.mutable_window()->mutable_suppressed_median_duration() = Message(kMs(26)); });
     }},
    {"SlowWithoutEvents",
     v1::VERDICT_KIND_STRAGGLER,
     v1::SEVERITY_WARNING,
     {1},
     "inside synchronisation",
     [](Evidence& e) { MakeLate(e), EachWindow(e, -1, [](auto& window) { window.set_events_exact(false); }); }},
    {"ALittleSlowButShownTwice",
     v1::VERDICT_KIND_STRAGGLER,
     v1::SEVERITY_WARNING,
     {1},
     "7 % of a window",
     [](Evidence& e) {
       for (int rank : {0, 2}) EachWindow(e, rank, [](auto& w) { *w.mutable_ballot_duration() = Message(kMs(10)); });
       EachWindow(e, 1, [](auto& w) { *w.mutable_window()->mutable_suppressed_median_duration() = Message(kMs(22)); });
     }},
    {"Slowed",
     v1::VERDICT_KIND_SLOW_COMMUNICATION,
     v1::SEVERITY_WARNING,
     {},
     "take 48 ms where they took 8 ms",
     [](Evidence& e) { EachWindow(e, -1, [](auto& window) { *window.mutable_gradient_duration() = Message(kMs(48)); }); }},
};
INSTANTIATE_TEST_SUITE_P(Times, EachFault, ::testing::ValuesIn(kTimes), [](const auto& p) { return p.param.name; });

const Case kSights[] = {
    {"UnseenByThisNode",
     v1::VERDICT_KIND_RANKS_UNSEEN,
     v1::SEVERITY_NOTICE,
     {3, 4},
     "3 of 5 ranks are seen by this daemon",
     [](Evidence& e) {
       RankOf(e, 0).set_world_size(5);
       RankOf(e, 1).set_world_size(5);
       RankOf(e, 2).set_world_size(5);
     }},
    {"UnseenByAll",
     v1::VERDICT_KIND_RANKS_UNSEEN,
     v1::SEVERITY_WARNING,
     {1},
     "by any daemon",
     [](Evidence& e) {
       e.other_nodes_asked = true;
       e.nodes[0].mutable_ranks()->DeleteSubrange(1, 1);
     }},
    {"UnseenOfAYoungJobWhoseWindowsClose",
     v1::VERDICT_KIND_RANKS_UNSEEN,
     v1::SEVERITY_WARNING,
     {1},
     "the others live: they voted in the ballot of window 39",
     [](Evidence& e) {
       e.other_nodes_asked = true;
       for (int rank : {0, 2}) *RankOf(e, rank).mutable_age() = Message(kS(3));
       e.nodes[0].mutable_ranks()->DeleteSubrange(1, 1);
     }},
    {"NodeSilent",
     v1::VERDICT_KIND_NODE_SILENT,
     v1::SEVERITY_WARNING,
     {},
     "node b?[31m did not answer",
     [](Evidence& e) {
       v1::NodeAnswer& answer = e.answers.emplace_back();
       answer.set_node_name("b\x1b[31m"), answer.set_error("deadline");
     }},
    {"StoreUnreachable",
     v1::VERDICT_KIND_STORE_UNREACHABLE,
     v1::SEVERITY_WARNING,
     {},
     "etcd://a:1",
     [](Evidence& e) { e.nodes[0].set_store_error("etcd://a:1: refused"); }},
    {"StoreUnreachableSinceAWholeSecond",
     v1::VERDICT_KIND_STORE_UNREACHABLE,
     v1::SEVERITY_WARNING,
     {},
     "(since 2026-11-30T19:01:02Z; what was known then is still used)",
     [](Evidence& e) {
       e.nodes[0].set_store_error(
           "etcd://etcd.example:2379: no answer within 3 s: failed to connect to all addresses "
           "(since 2026-11-30T19:01:02Z; what was known then is still used)");
     }},
    {"EventsMissed",
     v1::VERDICT_KIND_RECORDS_MISSED,
     v1::SEVERITY_NOTICE,
     {2},
     "500 events",
     [](Evidence& e) { RankOf(e, 2).set_event_missed_count(500); }},
    {"PageErrors",
     v1::VERDICT_KIND_RECORDS_MISSED,
     v1::SEVERITY_NOTICE,
     {0},
     "1 record torn or invalid",
     [](Evidence& e) { RankOf(e, 0).set_page_error_count(1); }},
};
INSTANTIATE_TEST_SUITE_P(Sights, EachFault, ::testing::ValuesIn(kSights), [](const auto& p) { return p.param.name; });

struct HealthyCase {
  const char* name;
  std::function<void(Evidence&)> change;
  JobShape shape = {};
};
void PrintTo(const HealthyCase& c, std::ostream* out) { *out << c.name; }

class NoFalseAlarm : public ::testing::TestWithParam<HealthyCase> {};

TEST_P(NoFalseAlarm, IsHealthy) {
  Evidence evidence = HealthyJob(GetParam().shape);
  GetParam().change(evidence);
  const std::vector<v1::Verdict> verdicts = Diagnose(evidence);
  ASSERT_THAT(Kinds(verdicts), ElementsAre(v1::VERDICT_KIND_HEALTHY)) << Text(verdicts.front());
  EXPECT_EQ(verdicts[0].severity(), v1::SEVERITY_OK);
  EXPECT_FALSE(verdicts[0].evidence().empty());
}

void All(Evidence& e, const std::function<void(v1::RankEvidence&)>& change) {
  for (v1::NodeEvidence& node : e.nodes) {
    for (v1::RankEvidence& rank : *node.mutable_ranks()) change(rank);
  }
}

// Windows of 10 ms, whose gradients took 1 ms and take `gradient` now.
void MakeShort(Evidence& e, absl::Duration gradient) {
  EachWindow(e, -1, [&](auto& window) {
    *window.mutable_window_duration() = Message(kMs(10)), *window.mutable_gradient_duration() = Message(gradient);
  });
  All(e, [](auto& rank) { *rank.mutable_early_gradient_duration() = Message(kMs(1)); });
}

const HealthyCase kHealthy[] = {
    {"AsMade", [](Evidence&) {}},
    {"OneRank",
     [](Evidence& e) {
       EachWindow(e, 0, [](auto& w) { w.mutable_window()->set_reduction_issued_count(0); });
       Wait(RankOf(e, 0), kS(600));
     },
     {.ranks = 1}},
    {"Finished",
     [](Evidence& e) { All(e, [](auto& rank) { Stand(rank, kS(900), 0), End(rank, v1::STATE_FINISHED, kS(900)); }); }},
    {"WaitingForLessThanIsTold",
     [](Evidence& e) { Wait(RankOf(e, 0), kMs(14'900)), Wait(RankOf(e, 2), kMs(14'900)), Stand(RankOf(e, 1), kS(14), 3); }},
    {"WaitsAreLongInThisJob",
     [](Evidence& e) {
       *RankOf(e, 1).mutable_wait_p99() = Message(kS(20));
       Wait(RankOf(e, 0), kS(95)), Wait(RankOf(e, 2), kS(95)), Stand(RankOf(e, 1), kS(95), 3);
     }},
    {"CompilingInTheFirstWindow", [](Evidence& e) { All(e, [](auto& rank) { Stand(rank, kS(240), 1); }); }, {.windows = 0}},
    {"EvaluatingBetweenWindows", [](Evidence& e) { All(e, [](auto& rank) { Stand(rank, kS(600), 0); }); }},
    {"SavingForAShortTimeWhileTheOthersWait", [](Evidence& e) { Evaluate(e, kS(14)); }},
    {"ATraceThatTakesAMoment", [](Evidence& e) { RankOf(e, 1).set_process_state("t"); }},
    {"AllComputingForLong", [](Evidence& e) { All(e, [](auto& rank) { Stand(rank, kS(600), 2); }); }},
    {"AuditThatReducesOnce", [](Evidence& e) { All(e, [](auto& rank) { rank.set_enforcement(v1::ENFORCEMENT_AUDIT); }); }},
    {"VariableWindowsThatDifferNowAndThen",
     [](Evidence& e) {
       for (int at = 0; at < 10; ++at) Shorten(WindowOf(e, at % 3, at)), SpreadMicroSteps(WindowOf(e, at % 3, at));
     }},
    {"PartialWindowAtAnEpochsEndReducedLate",
     [](Evidence& e) {
       All(e, [](auto& rank) {
         v1::RankWindow& window = *rank.mutable_windows(10)->mutable_window();
         window.set_kind(v1::WINDOW_KIND_PARTIAL), window.set_micro_step_count(2), window.set_last_reduction_at(2),
             window.set_late(true);
       });
     }},
    {"WastefulAndUnsteppedUntilAPolicyWasAdopted",
     [](Evidence& e) {
       EachWindow(e, -1, MakeWasteful), Adopt(e, 3);
       EachWindow(e, -1, [](auto& window) { window.mutable_window()->set_unstepped(true); });
       for (int rank : {0, 1, 2}) {
         for (int at = 0; at < 3; ++at) {
           v1::RankWindow& window = *WindowOf(e, rank, at).mutable_window();
           window.set_mismatched(false), window.set_reduction_issued_count(1), window.set_unstepped(false);
         }
       }
     }},
    {"OneThatScalersSkipped",
     [](Evidence& e) { All(e, [](auto& rank) { rank.mutable_windows(3)->mutable_window()->set_unstepped(true); }); }},
    {"DeclaredExtra",
     [](Evidence& e) { All(e, [](auto& rank) { rank.mutable_windows(0)->mutable_window()->set_reduction_issued_count(4); }); }},
    {"LossLoggedOncePerStep",
     [](Evidence& e) {
       All(e, [](auto& rank) {
         rank.mutable_stats()->mutable_collectives(0)->set_other_issued_count(40);
         rank.mutable_stats()->mutable_collectives(0)->set_other_bytes(160);
       });
     }},
    {"StatisticsOfBatchNorm",
     [](Evidence& e) {
       All(e, [](auto& rank) {
         rank.mutable_stats()->mutable_collectives(0)->set_other_issued_count(1600);
         rank.mutable_stats()->mutable_collectives(0)->set_other_bytes(1600 * 2052);
       });
     }},
    {"NoiseOfAFewWindows",
     [](Evidence& e) {
       for (int at = 0; at < 8; ++at) *WindowOf(e, at % 2, at).mutable_ballot_duration() = Message(kMs(60));
     }},
    {"SlowCollectivesInABitMoreThanHalfOfShortWindows",
     [](Evidence& e) {
       MakeShort(e, kMs(1));
       for (int at = 0; at < 11; ++at) {
         for (int rank : {0, 1, 2}) *WindowOf(e, rank, at).mutable_gradient_duration() = Message(kMs(45));
       }
     }},
    {"SlowedByLittleThanksToShortWindows", [](Evidence& e) { MakeShort(e, kMs(13)); }},
    {"EndsALittleLaterOnOneRank",
     [](Evidence& e) {
       for (int rank : {0, 2}) {
         EachWindow(e, rank, [](auto& window) {
           *window.mutable_ballot_duration() = Message(kMs(18));
           *window.mutable_window()->mutable_exposed_duration() = Message(kMs(30));
         });
       }
     }},
    {"OneRankThatIsEarly",
     [](Evidence& e) {
       EachWindow(e, 0, [](auto& w) {
         *w.mutable_ballot_duration() = Message(kMs(30)), *w.mutable_window()->mutable_exposed_duration() = Message(kMs(30));
       });
     }},
    {"OneRankThatIsLateBehindLongComputing",
     [](Evidence& e) {
       MakeLate(e), EachWindow(e, -1, [](auto& w) { *w.mutable_window()->mutable_exposed_duration() = Message(kMs(1)); });
     }},
    {"UnevenWorkOfTwoRanks",
     [](Evidence& e) {
       for (int at = 0; at < 14; ++at) {
         v1::WindowEvidence& window = WindowOf(e, 1, at);
         Shorten(window), SpreadMicroSteps(window);
         *window.mutable_ballot_duration() = Message(kMs(30));
         *window.mutable_window()->mutable_exposed_duration() = Message(kMs(30));
       }
     },
     {.ranks = 2}},
    {"AWindowThatWasDiscardedUnreduced",
     [](Evidence& e) {
       All(e, [](auto& rank) {
         v1::RankWindow& window = *rank.mutable_windows(3)->mutable_window();
         window.set_unstepped(true), window.set_reduction_issued_count(0), window.set_last_reduction_at(0);
       });
     }},
    {"StandingApartForLessThanAWindowTakes",
     [](Evidence& e) {
       for (int rank : {0, 1, 2}) Stand(RankOf(e, rank), kS(40), rank == 1 ? 1 : 2);
       *WindowOf(e, 0).mutable_window_duration() = Message(kS(60));
     }},
    {"RanksThatGather",
     [](Evidence& e) {
       All(e, [](auto& rank) { *rank.mutable_age() = Message(kS(3)); });
       e.nodes[0].mutable_ranks()->DeleteSubrange(1, 1);
     },
     {.windows = 0}},
    {"AWindowApartWhileItCloses", [](Evidence& e) { RankOf(e, 2).mutable_stats()->set_window_index(41); }},
    {"NothingAtAll",
     [](Evidence& e) {
       e = Evidence();
       e.nodes.emplace_back();
     }},
};
INSTANTIATE_TEST_SUITE_P(Jobs, NoFalseAlarm, ::testing::ValuesIn(kHealthy), [](const auto& p) { return p.param.name; });

TEST(Doctor, TellsASlowedLinkOnceAndBlamesNobody) {
  Evidence evidence = HealthyJob();
  MakeLate(evidence);
  EachWindow(evidence, -1, [](auto& window) { *window.mutable_gradient_duration() = Message(kMs(75)); });
  const std::vector<v1::Verdict> verdicts = Diagnose(evidence);
  ASSERT_THAT(Kinds(verdicts), ElementsAre(v1::VERDICT_KIND_SLOW_COMMUNICATION));
  EXPECT_TRUE(verdicts[0].ranks().empty());
  EXPECT_THAT(Text(verdicts[0]), HasSubstr("take 75 ms where they took 8 ms"));
}

TEST(Doctor, SaysSinceWhenAPolicyIsInForce) {
  Evidence evidence = HealthyJob();
  Adopt(evidence, 3);
  EXPECT_THAT(Text(Diagnose(evidence)[0]), HasSubstr("the last 3 looked at, under policy 9 since window 37"));
}

TEST(Doctor, TellsTheWorstFirst) {
  Evidence evidence = HealthyJob();
  EachWindow(evidence, -1, MakeWasteful);
  RankOf(evidence, 2).set_event_missed_count(500);
  OthersWait(evidence, kS(16)), Stand(RankOf(evidence, 1), kS(17), 3);
  EXPECT_THAT(Kinds(Diagnose(evidence)),
              ElementsAre(v1::VERDICT_KIND_HUNG, v1::VERDICT_KIND_WASTED_REDUCTIONS, v1::VERDICT_KIND_RECORDS_MISSED));
}

}  // namespace
}  // namespace gradgate
