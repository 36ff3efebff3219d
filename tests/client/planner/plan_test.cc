// What modes cost against formulas and against what others measured.

#include "client/planner/plan.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Answer Planned(const Question& question) {
  const auto answer = MakePlan(question);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.value_or(Answer{});
}

std::map<std::string, double> Steps(const Plan& plan) {
  std::map<std::string, double> seconds;
  for (const ModeCost& cost : plan.modes) seconds[Name(cost.mode)] = cost.step_seconds;
  return seconds;
}

const ModeCost& CostIn(const Plan& plan, const std::string& name) {
  for (const ModeCost& cost : plan.modes) {
    if (Name(cost.mode) == name) return cost;
  }
  ADD_FAILURE() << name << " is not among the modes";
  return plan.modes.front();
}

Numbers Sized(double ranks, double nodes, double shards, double accumulate) {
  Numbers n;
  n.rank_count = ranks;
  n.node_count = nodes;
  n.shard_count = shards;
  n.accumulate = accumulate;
  return n;
}

// Two nodes of eight A100, Ethernet between them: 88.8 s, and 54.3 to 54.9 s with the all-reduce deferred.
Numbers Cosmos() {
  Numbers n = Sized(16, 2, 8, 4);
  n.compute_seconds = 10.8;
  n.sync_seconds = 11.4;
  return n;
}

TEST(Plan, CosmosTakes54SecondsInsteadOf89) {
  const Answer answer = Planned({.numbers = Cosmos()});
  auto steps = Steps(answer.plan);
  EXPECT_DOUBLE_EQ(steps["every_micro_step"], 88.8);
  EXPECT_DOUBLE_EQ(steps["window_replica"], 54.6);
  EXPECT_DOUBLE_EQ(steps["window"], 54.6);
  const ModeCost& best = answer.plan.best();
  EXPECT_EQ(best.mode, (Mode{Sync::kReplica, false}));
  EXPECT_NEAR(best.speedup, 1.63, 0.005);
  EXPECT_NEAR(best.exposed_seconds, 11.4, 1e-9);
  EXPECT_EQ(answer.policy, "mode=window_replica enforcement=enforce");
  EXPECT_EQ(
      answer.advice,
      "change to window_replica, 1.63 times as fast: 54.6 s a step instead of 88.8 s: a step waits 11.4 s for its collectives "
      "instead of 45.6 s");
}

TEST(Plan, HybridShardingOverASlowLink) {
  // Measured: 4.15, 2.09, 1.93 s, from c = 0.37, of which 0.053 is the reduce-scatter inside the node, and s = 0.67.
  Numbers n = Sized(4, 2, 2, 4);
  n.compute_seconds = 0.317;
  n.shard_sync_seconds = 0.053;
  n.replica_sync_seconds = 0.67;
  auto steps = Steps(Planned({.numbers = n}).plan);
  EXPECT_NEAR(steps["every_micro_step"], 4.15, 0.1 * 4.15);
  EXPECT_NEAR(steps["window_replica"], 2.09, 0.1 * 2.09);
  EXPECT_NEAR(steps["window"], 1.93, 0.1 * 1.93);
  EXPECT_DOUBLE_EQ(steps["window_replica"], 4 * (0.317 + 0.053) + 0.67);
  EXPECT_DOUBLE_EQ(steps["window"], 4 * 0.317 + 0.053 + 0.67);
}

TEST(Plan, FullShardingOverASlowLink) {
  // Measured: 6.48, 4.28, 1.46 s.
  Numbers n = Sized(2, 2, 2, 4);
  n.compute_seconds = 0.081;
  n.gather_forward_seconds = n.gather_backward_seconds = 0.403;
  n.shard_sync_seconds = 0.733;
  const Plan plan = Planned({.numbers = n}).plan;
  auto steps = Steps(plan);
  EXPECT_NEAR(steps["every_micro_step"], 6.48, 0.01);
  EXPECT_NEAR(steps["window"], 4.28, 0.01);
  EXPECT_NEAR(steps["window, parameters kept"], 1.46, 0.01);
  EXPECT_EQ(plan.best().mode, (Mode{Sync::kWindow, true}));
}

TEST(Plan, EveryModeIsItsFormula) {
  const double c = 1, a = 0.3, b = 0.4, g = 0.5, r = 0.7, other = 0.11, N = 5;
  Numbers n = Sized(8, 2, 4, N);
  n.compute_seconds = c;
  n.gather_forward_seconds = a;
  n.gather_backward_seconds = b;
  n.shard_sync_seconds = g;
  n.replica_sync_seconds = r;
  n.other_seconds = other;
  auto hybrid = Steps(Planned({.numbers = n}).plan);
  EXPECT_DOUBLE_EQ(hybrid["every_micro_step"], N * (c + a + b + g + r) + other);
  EXPECT_DOUBLE_EQ(hybrid["window_replica"], N * (c + a + b + g) + r + other);
  EXPECT_DOUBLE_EQ(hybrid["window"], N * (c + a + b) + g + r + other);
  EXPECT_DOUBLE_EQ(hybrid["window_replica, parameters kept"], N * (c + g) + a + r + other);
  EXPECT_DOUBLE_EQ(hybrid["window, parameters kept"], N * c + a + g + r + other);
  EXPECT_EQ(hybrid.size(), 5u);
  n.shard_count = 8;
  n.replica_sync_seconds.reset();
  auto full = Steps(Planned({.numbers = n}).plan);
  EXPECT_DOUBLE_EQ(full["every_micro_step"], N * (c + a + b + g) + other);
  EXPECT_DOUBLE_EQ(full["window"], N * (c + a + b) + g + other);
  EXPECT_DOUBLE_EQ(full["every_micro_step, parameters kept"], N * (c + g) + a + other);
  EXPECT_DOUBLE_EQ(full["window, parameters kept"], N * c + a + g + other);
  EXPECT_EQ(full.size(), 4u);
  Numbers plain = Sized(8, 2, 1, N);
  plain.compute_seconds = c;
  plain.sync_seconds = r;
  auto none = Steps(Planned({.numbers = plain}).plan);
  EXPECT_DOUBLE_EQ(none["every_micro_step"], N * (c + r));
  EXPECT_DOUBLE_EQ(none["window"], N * c + r);
  EXPECT_EQ(none.size(), 2u);
}

TEST(Plan, ExposedIsWhatAStepWaits) {
  Numbers n = Sized(8, 2, 1, 4);
  n.compute_seconds = 1;
  n.sync_seconds = 0.5;
  n.other_seconds = 3;
  const Plan plan = Planned({.numbers = n}).plan;
  EXPECT_DOUBLE_EQ(CostIn(plan, "every_micro_step").exposed_seconds, 2);
  EXPECT_DOUBLE_EQ(CostIn(plan, "window").exposed_seconds, 0.5);
  EXPECT_DOUBLE_EQ(CostIn(plan, "window").speedup, 9.0 / 7.5);
}

TEST(Plan, CountsReductionsCollectivesAndBytes) {
  Numbers n = Cosmos();
  n.parameter_count = 8e9;
  n.parameter_element_bytes = 2;
  n.collective_count = 4;
  const Plan plan = Planned({.numbers = n}).plan;
  const ModeCost &every = CostIn(plan, "every_micro_step"), &replica = CostIn(plan, "window_replica");
  const ModeCost &window = CostIn(plan, "window"), &kept = CostIn(plan, "window, parameters kept");
  EXPECT_EQ(every.reduction_count, 8);
  EXPECT_EQ(replica.reduction_count, 5);
  EXPECT_EQ(window.reduction_count, 2);
  EXPECT_EQ(kept.reduction_count, 2);
  // 7 all-gathers a micro-step with four modules, 4 a window where parameters are kept.
  EXPECT_EQ(every.collective_count, 4 * 8 + 28);
  EXPECT_EQ(window.collective_count, 4 * 2 + 28);
  EXPECT_EQ(kept.collective_count, 4 * 2 + 4);
  // Between nodes: of 8 shards each 2 · 1/2 of 4 GB, in every micro-step or once.
  EXPECT_DOUBLE_EQ(every.inter_bytes, 4 * 32e9);
  EXPECT_DOUBLE_EQ(window.inter_bytes, 32e9);
  // Inside: 7/8 of 16 GB for each pass of gathers, of 32 GB for the reduce-scatter.
  EXPECT_DOUBLE_EQ(every.intra_bytes, 4 * 1.75 * 14e9 + 4 * 28e9);
  EXPECT_DOUBLE_EQ(kept.intra_bytes, 14e9 + 28e9);
}

TEST(Plan, MemoryIsStateGradientsAndWhatTheWindowHolds) {
  Numbers n = Cosmos();
  n.parameter_count = 8e9;
  n.parameter_element_bytes = 2;
  n.collective_count = 40;
  n.activation_bytes = 5e9;
  n.memory_limit_bytes = 60e9;
  const Plan plan = Planned({.numbers = n}).plan;
  const double rest = 8e9 * (12 + 4) / 8 + 2 * 8e9 * (2 + 4) / 40 + 5e9;
  const ModeCost &replica = CostIn(plan, "window_replica"), &window = CostIn(plan, "window");
  EXPECT_DOUBLE_EQ(replica.memory_bytes, rest);
  EXPECT_EQ(replica.fits, true);
  EXPECT_DOUBLE_EQ(window.deferred_gradient_bytes, 8e9 * 4 * 7 / 8);
  EXPECT_DOUBLE_EQ(window.memory_bytes, rest + 28e9);
  EXPECT_EQ(window.fits, true);  // 51.4 of 54
  const ModeCost& kept = CostIn(plan, "window, parameters kept");
  EXPECT_DOUBLE_EQ(kept.kept_parameter_bytes, 16e9);
  EXPECT_DOUBLE_EQ(kept.memory_bytes, rest + 28e9 + 16e9);
  EXPECT_EQ(kept.fits, false);
}

TEST(Plan, WindowsOfOneMicroStepDeferNothing) {
  Numbers n = Cosmos();
  n.accumulate = 1;
  n.parameter_count = 8e9;
  const Plan plan = Planned({.numbers = n}).plan;
  EXPECT_EQ(CostIn(plan, "window").deferred_gradient_bytes, 0);
  EXPECT_DOUBLE_EQ(CostIn(plan, "window").memory_bytes, CostIn(plan, "every_micro_step").memory_bytes);
  EXPECT_DOUBLE_EQ(CostIn(plan, "window, parameters kept").kept_parameter_bytes, 32e9);
}

TEST(Plan, MeasuredMemoryIsOfThePresentMode) {
  Numbers n = Cosmos();
  n.parameter_count = 8e9;
  n.memory_used_bytes = 50e9;
  n.present = Mode{Sync::kWindow, false};
  const Plan plan = Planned({.numbers = n}).plan;
  EXPECT_DOUBLE_EQ(CostIn(plan, "window").memory_bytes, 50e9);
  EXPECT_DOUBLE_EQ(CostIn(plan, "window_replica").memory_bytes, 22e9);
  EXPECT_DOUBLE_EQ(CostIn(plan, "window, parameters kept").memory_bytes, 82e9);
}

TEST(Plan, WithoutParametersMemoryIsUnknown) {
  const Plan plan = Planned({.numbers = Cosmos()}).plan;
  EXPECT_EQ(CostIn(plan, "window").memory_bytes, 0);
  EXPECT_EQ(CostIn(plan, "window").fits, std::nullopt);
  EXPECT_EQ(CostIn(plan, "window").collective_count, 0);
}

TEST(Best, TakesWhatFitsAndSaysWhatWouldBeFaster) {
  Numbers n = Sized(8, 1, 8, 4);
  n.compute_seconds = 1;
  n.gather_forward_seconds = n.gather_backward_seconds = 0.2;
  n.shard_sync_seconds = 0.5;
  n.parameter_count = 8e9;
  n.memory_limit_bytes = 80e9;
  const Answer answer = Planned({.numbers = n});
  EXPECT_EQ(answer.plan.best().mode, (Mode{Sync::kWindow, false}));
  EXPECT_THAT(answer.plan.why, HasSubstr("; window, parameters kept would take 4.70 s, but needs "));
  n.memory_limit_bytes = 1e9;
  const Answer none = Planned({.numbers = n});
  EXPECT_EQ(none.plan.best().mode, (Mode{Sync::kEvery, false}));
  EXPECT_THAT(none.advice, HasSubstr("stay with every_micro_step: no mode fits"));
  EXPECT_EQ(none.policy, "");
}

TEST(Best, OfEquallyFastModesTakesTheLeastMemory) {
  Numbers n = Cosmos();
  n.parameter_count = 8e9;
  n.memory_limit_bytes = 200e9;
  const Answer answer = Planned({.numbers = n});
  EXPECT_EQ(answer.plan.best().mode, (Mode{Sync::kReplica, false}));
  EXPECT_THAT(answer.plan.why, HasSubstr("; window is not faster and takes 26.1 GiB more"));
}

TEST(Best, StaysWhereNothingIsFasterByMoreThanTheTolerance) {
  Numbers n = Sized(8, 2, 1, 4);
  n.compute_seconds = 1;
  n.sync_seconds = 0.01;
  EXPECT_EQ(Planned({.numbers = n}).policy, "");
  EXPECT_EQ(Planned({.numbers = n, .tolerance = 0.001}).policy, "mode=window enforcement=enforce");
  EXPECT_EQ(Planned({.numbers = n}).advice, "stay with every_micro_step: no other mode that fits is faster by more than 1 %");
  n.accumulate = 1;
  n.sync_seconds = 1;
  EXPECT_EQ(Planned({.numbers = n}).advice,
            "stay with every_micro_step: with one micro-step per optimizer step there is nothing to defer");
}

TEST(Best, StaysWithAPresentModeThatIsAsGood) {
  Numbers n = Cosmos();
  n.present = Mode{Sync::kWindow, false};  // as fast as window_replica, and its memory is not known to be more
  EXPECT_EQ(Planned({.numbers = n}).policy, "");
  n.parameter_count = 8e9;
  EXPECT_EQ(Planned({.numbers = n}).policy, "mode=window_replica enforcement=enforce");
}

TEST(Best, PolicyReshardsWhereKeepingChanges) {
  Numbers n = Sized(2, 2, 2, 4);
  n.compute_seconds = 0.1;
  n.gather_forward_seconds = n.gather_backward_seconds = 0.4;
  n.shard_sync_seconds = 0.7;
  EXPECT_EQ(Planned({.numbers = n}).policy, "mode=window reshard=window enforcement=enforce");
  EXPECT_THAT(Planned({.numbers = n}).plan.why,
              HasSubstr("whether the memory is there is not known: give params and memory-gib"));
  n.present = Mode{Sync::kWindow, true};
  n.parameter_count = 1e9;
  n.memory_limit_bytes = 28e9;
  n.memory_used_bytes = 29e9;
  EXPECT_EQ(Planned({.numbers = n}).policy, "mode=window reshard=every_micro_step enforcement=enforce");
}

TEST(Alternatives, GiveTheBounds) {
  Question question{.numbers = Cosmos()};
  question.alternatives = {Cosmos(), Cosmos()};
  question.alternatives[0].sync_seconds = 8;
  question.alternatives[1].compute_seconds = 9;
  const Plan plan = Planned(question).plan;
  const ModeCost& window = CostIn(plan, "window");
  EXPECT_DOUBLE_EQ(window.step_seconds, 54.6);
  EXPECT_DOUBLE_EQ(window.min_step_seconds, 4 * 9 + 11.4);
  EXPECT_DOUBLE_EQ(window.max_step_seconds, 54.6);
  EXPECT_DOUBLE_EQ(CostIn(plan, "every_micro_step").min_step_seconds, 4 * (10.8 + 8));
}

struct BadCase {
  const char* what;
  void (*change)(Numbers&);
  absl::StatusCode code;
  const char* message;
};

TEST(Plan, BadNumbersAreNamedWithTheirRemedy) {
  using absl::StatusCode;
  const BadCase kCases[] = {
      {"shards", [](Numbers& n) { n.shard_count = 5; }, StatusCode::kInvalidArgument,
       "ranks is 16, which is no multiple of shards, 5; give shards that divide it"},
      {"nodes", [](Numbers& n) { n.node_count = 3; }, StatusCode::kInvalidArgument,
       "ranks is 16, which is no multiple of nodes, 3; give nodes that divide it"},
      {"ranks", [](Numbers& n) { n.rank_count = 16385; }, StatusCode::kInvalidArgument,
       "ranks: \"16385\" is not a whole number from 1 to 16384"},
      {"no ranks", [](Numbers& n) { n.rank_count.reset(); }, StatusCode::kFailedPrecondition,
       "ranks, the number of ranks, is not known; give it"},
      {"no N", [](Numbers& n) { n.accumulate.reset(); }, StatusCode::kFailedPrecondition,
       "accumulate, the micro-steps per optimizer step, is not known; give it"},
      {"no compute", [](Numbers& n) { n.compute_seconds.reset(); }, StatusCode::kFailedPrecondition,
       "compute-s, the seconds of a micro-step's computing, is not known; give it"},
      {"no sync", [](Numbers& n) { n.sync_seconds.reset(); }, StatusCode::kFailedPrecondition,
       "sync-s is not known; give it as it was measured, or params and link-gbit, from which it can be derived"},
      {"parts beyond the sum",
       [](Numbers& n) {
         n.shard_sync_seconds = 6;
         n.replica_sync_seconds = 7;
       },
       StatusCode::kInvalidArgument, "sync-s is 11.4, but its parts are 13 s; leave one of them out"},
      {"a part beyond the sum", [](Numbers& n) { n.shard_sync_seconds = 12; }, StatusCode::kInvalidArgument,
       "sync-s is 11.4, but its parts are 12 s; leave one of them out"},
      {"shards of plain ranks",
       [](Numbers& n) {
         n.shard_count = 1;
         n.gather_forward_seconds = 1;
       },
       StatusCode::kInvalidArgument,
       "shard-sync-s, gather-forward-s and gather-backward-s are of sharded parameters; give shards, the ranks that share "
       "them"},
      {"replicas of full sharding",
       [](Numbers& n) {
         n.shard_count = 16;
         n.replica_sync_seconds = 1;
       },
       StatusCode::kInvalidArgument, "replica-sync-s is 1, but parameters are sharded over all ranks; give it as shard-sync-s"},
      {"a mode that is not there",
       [](Numbers& n) {
         n.shard_count = 1;
         n.present = Mode{Sync::kReplica, false};
       },
       StatusCode::kInvalidArgument,
       "the present mode is window_replica, which needs shards and replicas, but shards is 1 of 16 ranks; give shards between "
       "1 and ranks"},
      {"half a reduction",
       [](Numbers& n) {
         n.sync_seconds.reset();
         n.shard_sync_seconds = 1;
       },
       StatusCode::kFailedPrecondition, "replica-sync-s, or sync-s, is not known; give what was measured"},
  };
  for (const BadCase& c : kCases) {
    Numbers n = Cosmos();
    c.change(n);
    const absl::Status status = MakePlan({.numbers = n}).status();
    EXPECT_EQ(status.code(), c.code) << c.what;
    EXPECT_EQ(status.message(), c.message) << c.what;
  }
}

TEST(Notes, SayWhatWasAssumed) {
  EXPECT_THAT(Planned({.numbers = Cosmos()}).notes,
              ElementsAre(HasSubstr("all-gathers whose seconds are not known are taken to be part of compute"),
                          HasSubstr("the reduce-scatter among shards is taken to be part of compute")));
  Numbers n = Sized(16, 2, 16, 4);
  n.compute_seconds = 1;
  n.parameter_count = 1e9;
  n.link_bytes_per_second = 12.5e9;
  EXPECT_THAT(Planned({.numbers = n}).notes, ElementsAre(HasSubstr("links inside nodes are taken to be no limit"),
                                                         HasSubstr("32 wrapped modules are assumed")));
  n.intra_bytes_per_second = 100e9;
  n.collective_count = 40;
  EXPECT_THAT(Planned({.numbers = n}).notes, Not(Contains(HasSubstr("assumed"))));
}

}  // namespace
}  // namespace gradgate::planner
