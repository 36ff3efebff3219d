#include "daemon/planner/measure.h"

#include <map>
#include <random>

#include "client/planner/answer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/planner/job.h"

namespace gradgate::planner {
namespace {

using ::testing::Contains;
using testing::FakeJob;
using testing::FakeWindow;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SetSeconds;

Measured Read(const FakeJob& job, const Numbers& given = {}) {
  const auto measured = MeasureJob(job.stats, job.windows, given);
  EXPECT_TRUE(measured.ok()) << measured.status();
  return measured.value_or(Measured{});
}

absl::Status Refusal(const FakeJob& job, const Numbers& given = {}) {
  return MeasureJob(job.stats, job.windows, given).status();
}

v1::PlanSyncResponse Planned(const FakeJob& job, const v1::PlanSyncRequest& request = {}) {
  const auto response = PlanJob(request, job.stats, job.windows);
  EXPECT_TRUE(response.ok()) << response.status();
  return response.value_or(v1::PlanSyncResponse{});
}

const v1::ModePlan& ModeOf(const v1::PlanSyncResponse& response, v1::SyncMode mode, bool kept = false) {
  for (const v1::ModePlan& plan : response.plan().modes()) {
    if (plan.sync_mode() == mode && (plan.reshard() == v1::RESHARD_WINDOW) == kept) return plan;
  }
  ADD_FAILURE() << mode << " is not among the modes";
  return response.plan().modes(0);
}

// c = 1 s, s = 0.5 s, 0.3 s beside the micro-steps.
FakeWindow Window(v1::SyncMode mode = v1::SYNC_MODE_WINDOW) {
  return {.suppressed = 1, .boundary = 1.5, .period = 4.8, .mode = mode};
}

FakeJob PlainJob() {
  FakeJob job(4, 4, v1::SYNC_MODE_WINDOW);
  job.CloseMany(6, Window());
  for (int rank = 0; rank < 4; ++rank) {
    job.Reduce(rank, v1::GROUP_ROLE_DP, v1::COLLECTIVE_OP_ALL_REDUCE, 6, 18, 4'000'000);
    job.stats.mutable_ranks(rank)->set_host_name(rank < 2 ? "a" : "b");
  }
  return job;
}

TEST(Measure, WindowsOfPlainRanksTellAll) {
  const FakeJob job = PlainJob();
  const Measured measured = Read(job);
  const Numbers& n = measured.question.numbers;
  EXPECT_NEAR(*n.compute_seconds, 1, 1e-9);
  EXPECT_NEAR(*n.sync_seconds, 0.5, 1e-9);
  EXPECT_NEAR(*n.other_seconds, 0.3, 1e-6);
  EXPECT_EQ(n.rank_count, 4);
  EXPECT_EQ(n.node_count, 2);
  EXPECT_EQ(n.shard_count, 1);
  EXPECT_EQ(n.accumulate, 4);
  EXPECT_EQ(n.collective_count, 3);
  EXPECT_EQ(n.parameter_count, 3e6);
  EXPECT_EQ(n.present, (Mode{Sync::kWindow, false}));
  EXPECT_TRUE(measured.question.alternatives.empty());
  const v1::PlanSyncResponse response = Planned(job);
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_EVERY_MICRO_STEP).step_seconds(), 6.3, 1e-6);
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_WINDOW).step_seconds(), 4.8, 1e-6);
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_WINDOW).min_step_seconds(), 4.8, 1e-6);
  EXPECT_TRUE(ModeOf(response, v1::SYNC_MODE_WINDOW).present());
  EXPECT_EQ(response.job().job_name(), "job");
  EXPECT_EQ(response.policy(), "");
  ASSERT_EQ(response.measurements_size(), 3);
  EXPECT_EQ(response.measurements(0).what(), "a micro-step that does not reduce");
  EXPECT_EQ(response.measurements(0).sample_count(), 20);  // five windows of four ranks; the first warms up
  EXPECT_EQ(response.measurements(2).sample_count(), 16);
}

TEST(Measure, MediansShrugOffAnOddWindow) {
  FakeJob job = PlainJob();
  job.Close({.suppressed = 9, .boundary = 30, .period = 4.8});
  job.CloseMany(2, Window());
  EXPECT_NEAR(*Read(job).question.numbers.compute_seconds, 1, 1e-9);
  EXPECT_NEAR(*Read(job).question.numbers.sync_seconds, 0.5, 1e-9);
}

TEST(Measure, SpreadIsToldWithEachMeasurement) {
  FakeJob job(2, 4, v1::SYNC_MODE_WINDOW);
  for (const double c : {1.0, 0.8, 0.9, 1.0, 1.1, 1.2}) job.Close({.suppressed = c, .boundary = 2, .period = 6});
  const Measured measured = Read(job);
  EXPECT_NEAR(measured.measurements[0].seconds(), 1, 1e-9);
  EXPECT_NEAR(measured.measurements[0].spread_share(), 0.1, 1e-9);
}

TEST(Measure, OnlyWindowsAsTheNewestAreTaken) {
  FakeJob job = PlainJob();
  FakeWindow other = Window();
  other.suppressed = 0;  // every micro-step reduced
  other.boundary = 7;
  other.exposed = 8;
  job.CloseMany(10, other);
  job.CloseMany(3, Window());
  EXPECT_NEAR(*Read(job).question.numbers.compute_seconds, 1, 1e-9);
  EXPECT_EQ(Read(job).measurements[0].sample_count(), 3 * 4 + 5 * 4);
}

TEST(Measure, WindowsUnderAnotherPolicyAreNot) {
  FakeJob job = PlainJob();
  for (v1::Window& window : job.windows) {
    for (v1::RankWindow& w : *window.mutable_ranks()) w.set_policy_version(7);
  }
  job.CloseMany(4, {.suppressed = 2, .boundary = 2.5, .period = 9});
  EXPECT_NEAR(*Read(job).question.numbers.compute_seconds, 2, 1e-9);
  EXPECT_EQ(Read(job).measurements[0].sample_count(), 16);
}

TEST(Measure, PeriodsAreOfWindowsThatFollowEachOther) {
  FakeJob job(2, 4, v1::SYNC_MODE_WINDOW);
  job.CloseMany(9, Window());
  for (size_t i = 1; i < job.windows.size(); ++i) job.windows.erase(job.windows.begin() + static_cast<ptrdiff_t>(i));
  EXPECT_EQ(Read(job).question.numbers.other_seconds, std::nullopt);  // what lies between is not known
}

TEST(Measure, NodesWithDifferentNumbersOfRanksAreNotCounted) {
  FakeJob job = PlainJob();
  job.stats.mutable_ranks(2)->set_host_name("a");
  EXPECT_EQ(Read(job).question.numbers.node_count, std::nullopt);
  EXPECT_THAT(Read(job).notes, Contains(HasSubstr("as if all ranks were on one node")));
  EXPECT_THAT(Read(PlainJob()).notes, Not(Contains(HasSubstr("as if all ranks"))));
}

TEST(Measure, PartialFailedAndDisagreedWindowsAreNot) {
  FakeJob job = PlainJob();
  for (int i = 0; i < 3; ++i) {
    job.Close({.suppressed = 50, .boundary = 60, .period = 4.8});
    for (v1::RankWindow& w : *job.windows[0].mutable_ranks()) {
      if (i == 0) w.set_kind(v1::WINDOW_KIND_PARTIAL);
      if (i == 1) w.set_failed(true);
      if (i == 2) w.set_disagreed(true);
    }
  }
  EXPECT_EQ(Read(job).measurements[0].sample_count(), 20);
}

TEST(Measure, TooFewWindowsAreRefusedWithWhatIsMissing) {
  FakeJob job(2, 4, v1::SYNC_MODE_WINDOW);
  const auto refused = [](int windows) {
    return "the job has closed " + std::to_string(windows) +
           " full windows of its present mode, beside its first, and 3 are needed of every rank; ask again after some more, or "
           "give "
           "numbers and no job";
  };
  EXPECT_EQ(Refusal(job).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Refusal(job).message(), refused(0));
  job.CloseMany(3, Window());
  EXPECT_EQ(Refusal(job).message(), refused(2));
  job.Close(Window());
  EXPECT_TRUE(Refusal(job).ok());
  job.windows[0].mutable_ranks()->RemoveLast();  // rank 1 is behind
  EXPECT_EQ(Refusal(job).message(), refused(2));
}

TEST(Measure, AStragglersTimesAreTaken) {
  FakeJob job(4, 4, v1::SYNC_MODE_WINDOW);
  job.CloseMany(6, {.suppressed = 1, .boundary = 1.8, .period = 5}, {1, 1, 1.3, 1});
  const Measured measured = Read(job);
  EXPECT_NEAR(*measured.question.numbers.compute_seconds, 1.3, 1e-9);
  EXPECT_NEAR(*measured.question.numbers.sync_seconds, 0.5, 1e-9);  // the others' 0.8 are waiting
  EXPECT_THAT(measured.notes, Contains(HasSubstr("rank 2 computes 30 % longer than the median")));
  FakeJob even(4, 4, v1::SYNC_MODE_WINDOW);
  even.CloseMany(6, {.suppressed = 1, .boundary = 1.8, .period = 5}, {1, 1, 1.04, 1});
  EXPECT_NEAR(*Read(even).question.numbers.compute_seconds, 1, 1e-9);
}

TEST(Measure, GivenNumbersStandInThePlaceOfMeasuredOnes) {
  Numbers given;
  given.compute_seconds = 2;
  given.accumulate = 16;
  given.node_count = 1;
  given.parameter_count = 5;
  given.other_seconds = 0;
  const Numbers n = Read(PlainJob(), given).question.numbers;
  EXPECT_EQ(n.compute_seconds, 2);
  EXPECT_EQ(n.accumulate, 16);
  EXPECT_EQ(n.node_count, 1);
  EXPECT_EQ(n.parameter_count, 5);
  EXPECT_EQ(n.other_seconds, 0);
  EXPECT_NEAR(*n.sync_seconds, 0.5, 1e-9);
  given.sync_seconds = 3;
  EXPECT_EQ(Read(PlainJob(), given).question.numbers.sync_seconds, 3);
  given.rank_count = -1;
  EXPECT_EQ(Refusal(PlainJob(), given).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Measure, RanksOfOtherNodesAreMissedAloud) {
  FakeJob job = PlainJob();
  job.stats.mutable_job()->set_world_size(8);
  const Measured measured = Read(job);
  EXPECT_EQ(measured.question.numbers.rank_count, 8);
  EXPECT_EQ(measured.question.numbers.node_count, std::nullopt);
  EXPECT_THAT(measured.notes, Contains(HasSubstr("measured on 4 of 8 ranks")));
  EXPECT_THAT(Read(PlainJob()).notes, Not(Contains(HasSubstr("measured on"))));
}

// --- Every micro-step reduces.

FakeJob EveryJob(double tail) {
  FakeJob job(2, 4, v1::SYNC_MODE_EVERY_MICRO_STEP);
  job.CloseMany(6, {.boundary = 1.5, .exposed = 4 * tail, .period = 6.2, .mode = v1::SYNC_MODE_EVERY_MICRO_STEP});
  return job;
}

TEST(Measure, EveryMicroStepLeavesComputingOpen) {
  FakeJob job = EveryJob(0.4);
  for (int rank = 0; rank < 2; ++rank) {
    v1::CollectiveStats* c = job.Reduce(rank, v1::GROUP_ROLE_DP, v1::COLLECTIVE_OP_ALL_REDUCE, 24, 48, 100);
    c->set_completed_count(48);
    SetSeconds(48 * 0.3, c->mutable_total_duration());  // 0.6 s a reduction
  }
  const Measured measured = Read(job);
  EXPECT_NEAR(*measured.question.numbers.sync_seconds, 0.4, 1e-9);
  EXPECT_NEAR(*measured.question.numbers.compute_seconds, 1.1, 1e-9);
  const v1::PlanSyncResponse response = Planned(job);
  const v1::ModePlan& every = ModeOf(response, v1::SYNC_MODE_EVERY_MICRO_STEP);
  EXPECT_NEAR(every.step_seconds(), 6.2, 1e-6);
  EXPECT_NEAR(every.min_step_seconds(), 6.2, 1e-6);
  EXPECT_NEAR(every.max_step_seconds(), 6.2, 1e-6);
  const v1::ModePlan& window = ModeOf(response, v1::SYNC_MODE_WINDOW);
  EXPECT_NEAR(window.step_seconds(), 4 * 1.1 + 0.4 + 0.2, 1e-6);
  EXPECT_NEAR(window.max_step_seconds(), 4 * 1.1 + 0.4 + 0.2, 1e-6);
  EXPECT_NEAR(window.min_step_seconds(), 4 * 0.9 + 0.6 + 0.2, 1e-6);
  EXPECT_EQ(response.policy(), "mode=window enforcement=enforce");
  EXPECT_THAT(measured.notes, Contains(HasSubstr("computing alone is not seen")));
}

TEST(Measure, EveryMicroStepWithoutDurationsIsOpenToTheMicroStep) {
  const v1::ModePlan window = ModeOf(Planned(EveryJob(0.4)), v1::SYNC_MODE_WINDOW);
  EXPECT_NEAR(window.min_step_seconds(), 1.5 + 0.2, 0.01);
  EXPECT_NEAR(window.max_step_seconds(), 5, 1e-6);
}

TEST(Measure, EveryMicroStepWithoutEndsIsRefused) {
  EXPECT_EQ(Refusal(EveryJob(0)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Refusal(EveryJob(0)).message()),
              HasSubstr("give compute-s or sync-s, or let the job run some windows"));
  Numbers given;
  given.sync_seconds = 0.7;
  EXPECT_NEAR(*Read(EveryJob(0), given).question.numbers.compute_seconds, 0.8, 1e-9);
  Numbers computing;
  computing.compute_seconds = 1.2;
  EXPECT_NEAR(*Read(EveryJob(0), computing).question.numbers.sync_seconds, 0.3, 1e-9);
  given.sync_seconds = 1.6;
  EXPECT_EQ(Refusal(EveryJob(0), given).code(), absl::StatusCode::kInvalidArgument);
}

// --- Windows reduced at the step.

TEST(Measure, ALateReductionMayHideInABackward) {
  FakeJob job(2, 4, v1::SYNC_MODE_WINDOW);
  job.CloseMany(6, {.suppressed = 1, .boundary = 1.5, .exposed = 1.5, .period = 5.5, .late = true});
  const v1::PlanSyncResponse response = Planned(job);
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_WINDOW).step_seconds(), 5.5, 1e-6);
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_WINDOW).min_step_seconds(), 4.5, 1e-6);
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_EVERY_MICRO_STEP).min_step_seconds(), 6, 1e-6);
}

// --- Sharded.

// One reduction a window of four modules, 28 all-gathers a window, or four.
FakeJob FullJob(int gathers) {
  FakeJob job(2, 4, v1::SYNC_MODE_WINDOW);
  job.CloseMany(6, Window());
  for (int rank = 0; rank < 2; ++rank) {
    job.Reduce(rank, v1::GROUP_ROLE_SHARD, v1::COLLECTIVE_OP_REDUCE_SCATTER, 6, 24, 1'000'000);
    v1::CollectiveStats* c = job.Reduce(rank, v1::GROUP_ROLE_SHARD, v1::COLLECTIVE_OP_ALL_GATHER, 0, 0, 0);
    c->set_other_issued_count(6 * gathers);
  }
  return job;
}

TEST(Measure, FullShardingHasItsGathersInComputing) {
  const FakeJob job = FullJob(28);
  const Measured measured = Read(job);
  EXPECT_EQ(measured.question.numbers.shard_count, 2);
  EXPECT_EQ(measured.question.numbers.parameter_count, 1e6);
  EXPECT_EQ(measured.question.numbers.present, (Mode{Sync::kWindow, false}));
  const v1::PlanSyncResponse response = Planned(job);
  const v1::ModePlan& kept = ModeOf(response, v1::SYNC_MODE_WINDOW, true);
  EXPECT_NEAR(kept.max_step_seconds(), 4.8, 1e-6);              // no gathers at all
  EXPECT_NEAR(kept.min_step_seconds(), 0.5 + 0.5 + 0.3, 1e-6);  // nothing but gathers: one forward's is left
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_WINDOW).min_step_seconds(), 4.8, 1e-6);
}

TEST(Measure, GathersOwnTimesBoundWhatTheyAdd) {
  FakeJob job = FullJob(28);
  for (int rank = 0; rank < 2; ++rank) {
    v1::CollectiveStats& c = *job.stats.mutable_ranks(rank)->mutable_collectives(1);
    c.set_completed_count(6 * 28);
    SetSeconds(6 * 28 * 0.05, c.mutable_total_duration());  // 0.35 s a micro-step
  }
  const v1::PlanSyncResponse response = Planned(job);
  const v1::ModePlan& kept = ModeOf(response, v1::SYNC_MODE_WINDOW, true);
  EXPECT_NEAR(kept.min_step_seconds(), 4 * 0.65 + 0.175 + 0.5 + 0.3, 1e-6);
  EXPECT_NEAR(kept.max_step_seconds(), 4.8, 1e-6);
}

TEST(Measure, KeptParametersAreTold) {
  const Measured measured = Read(FullJob(4));
  EXPECT_EQ(measured.question.numbers.present, (Mode{Sync::kWindow, true}));
  EXPECT_THAT(measured.notes, Contains(HasSubstr("is not seen while they are kept")));
}

TEST(Measure, GivenGathersAreTakenOutOfComputing) {
  Numbers given;
  given.gather_forward_seconds = 0.2;
  given.gather_backward_seconds = 0.3;
  const Measured measured = Read(FullJob(28), given);
  EXPECT_NEAR(*measured.question.numbers.compute_seconds, 0.5, 1e-9);
  EXPECT_TRUE(measured.question.alternatives.empty());
  given.gather_backward_seconds = 0.9;
  EXPECT_EQ(Refusal(FullJob(28), given).code(), absl::StatusCode::kInvalidArgument);
}

// Two shards, four replicas; the reduce-scatter is handed everything, the all-reduce half of it.
FakeJob HybridJob(v1::SyncMode mode, int64_t shard_bytes = 1'000'000) {
  FakeJob job(8, 4, mode);
  job.CloseMany(6, Window(mode));
  const int64_t passes = mode == v1::SYNC_MODE_WINDOW ? 6 : 24;
  for (int rank = 0; rank < 8; ++rank) {
    job.Reduce(rank, v1::GROUP_ROLE_SHARD, v1::COLLECTIVE_OP_REDUCE_SCATTER, passes, passes * 4, shard_bytes);
    job.Reduce(rank, v1::GROUP_ROLE_REPLICATE, v1::COLLECTIVE_OP_ALL_REDUCE, 6, 24, 500'000);
  }
  return job;
}

TEST(Measure, WindowReplicaShowsTheAllReduce) {
  const FakeJob job = HybridJob(v1::SYNC_MODE_WINDOW_REPLICA);
  const Measured measured = Read(job);
  EXPECT_EQ(measured.question.numbers.shard_count, 2);
  EXPECT_NEAR(*measured.question.numbers.replica_sync_seconds, 0.5, 1e-9);
  EXPECT_EQ(measured.question.numbers.present, (Mode{Sync::kReplica, false}));
  const v1::PlanSyncResponse response = Planned(job);
  const v1::ModePlan& every = ModeOf(response, v1::SYNC_MODE_EVERY_MICRO_STEP);
  EXPECT_NEAR(every.min_step_seconds(), 6.3, 1e-6);
  EXPECT_NEAR(every.max_step_seconds(), 6.3, 1e-6);
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_WINDOW).max_step_seconds(), 4.8, 1e-6);
  EXPECT_LT(ModeOf(response, v1::SYNC_MODE_WINDOW).min_step_seconds(), 4.8);
}

TEST(Measure, ReduceScattersOwnTimeBoundsWhatWindowSaves) {
  FakeJob job = HybridJob(v1::SYNC_MODE_WINDOW_REPLICA);
  for (int rank = 0; rank < 8; ++rank) {
    v1::CollectiveStats& c = *job.stats.mutable_ranks(rank)->mutable_collectives(0);
    c.set_completed_count(96);
    SetSeconds(96 * 0.05, c.mutable_total_duration());  // 0.2 s a reduction
  }
  Numbers given;
  given.gather_forward_seconds = given.gather_backward_seconds = 0;
  v1::PlanSyncRequest request;
  *request.mutable_numbers() = ToMessage(given);
  EXPECT_NEAR(ModeOf(Planned(job, request), v1::SYNC_MODE_WINDOW).min_step_seconds(), 4.8 - 3 * 0.2, 1e-6);
}

TEST(Measure, WindowOfHybridShardingShowsBothStagesTogether) {
  FakeJob job = HybridJob(v1::SYNC_MODE_WINDOW);
  v1::PlanSyncResponse response = Planned(job);
  const v1::ModePlan& replica = ModeOf(response, v1::SYNC_MODE_WINDOW_REPLICA);
  EXPECT_NEAR(replica.min_step_seconds(), 4.8, 1e-6);
  EXPECT_NEAR(replica.max_step_seconds(), 6.3, 1e-6);
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_EVERY_MICRO_STEP).step_seconds(), 6.3, 1e-6);
  for (int rank = 0; rank < 8; ++rank) {
    for (int i = 0; i < 2; ++i) {
      v1::CollectiveStats& c = *job.stats.mutable_ranks(rank)->mutable_collectives(i);
      c.set_completed_count(24);
      SetSeconds(24 * (i == 0 ? 0.025 : 0.075), c.mutable_total_duration());
    }
  }
  response = Planned(job);  // they share it as their own times do: a quarter, three quarters
  EXPECT_NEAR(ModeOf(response, v1::SYNC_MODE_WINDOW_REPLICA).step_seconds(), 4.8 + 3 * 0.125, 1e-6);
}

TEST(Measure, ShardsThatBytesDoNotTellAreAskedFor) {
  const FakeJob job = HybridJob(v1::SYNC_MODE_WINDOW_REPLICA, 1'500'000);  // three shards of eight ranks
  EXPECT_EQ(Refusal(job).message(),
            "how many ranks share one copy of the parameters cannot be told from the bytes that were reduced; give shards");
  Numbers given;
  given.shard_count = 4;
  EXPECT_EQ(Read(job, given).question.numbers.shard_count, 4);
}

// --- The whole answer.

TEST(PlanJob, WhatIfsStartFromMeasurements) {
  v1::PlanSyncRequest request;
  request.mutable_numbers()->set_link_bytes_per_second(1e9);
  request.mutable_numbers()->set_intra_bytes_per_second(1e10);
  request.add_what_ifs()->set_accumulate(8);
  request.add_what_ifs()->set_link_bytes_per_second(5e8);
  const v1::PlanSyncResponse response = Planned(PlainJob(), request);
  ASSERT_EQ(response.what_ifs_size(), 2);
  EXPECT_EQ(response.what_ifs(0).label(), "accumulate=8");
  EXPECT_NEAR(response.what_ifs(0).modes(1).step_seconds(), 8 + 0.5 + 0.3, 1e-6);
  EXPECT_NEAR(response.what_ifs(0).relative_throughput(), 8 / 8.8 / (4 / 4.8), 1e-6);
  EXPECT_EQ(response.what_ifs(1).label(), "link-gbit=4");
  EXPECT_GT(response.what_ifs(1).modes(1).step_seconds(), 4.8);
}

TEST(PlanJob, HostileRecordsGiveErrorsOrFiniteNumbers) {
  FakeJob job = PlainJob();
  for (v1::Window& window : job.windows) {
    for (v1::RankWindow& w : *window.mutable_ranks()) {
      w.mutable_boundary_duration()->set_seconds(INT64_MAX / 2);
      w.mutable_suppressed_median_duration()->set_seconds(INT64_MAX / 4);
      w.mutable_exposed_duration()->set_seconds(INT64_MAX / 4);
      w.mutable_begin_time()->set_seconds(w.rank() * 1'000'000'000LL);
    }
  }
  for (v1::RankStats& rank : *job.stats.mutable_ranks()) {
    rank.mutable_roles(0)->set_issued_count(1);
    rank.mutable_collectives(0)->set_gradient_bytes(INT64_MAX);
  }
  EXPECT_EQ(PlanJob({}, job.stats, job.windows).status().code(), absl::StatusCode::kInvalidArgument);
}

// Whatever trainers publish: an error, or finite numbers whose bounds hold the value. The seed is printed.
TEST(PlanJob, AnyMeasurementsAreAnsweredOrRefused) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return std::uniform_int_distribution(0, n - 1)(random); };
  const double kSeconds[] = {0, 1e-9, 1e-3, 0.5, 1, 3, 1e5};
  const auto seconds = [&] { return kSeconds[below(std::size(kSeconds))]; };
  constexpr v1::SyncMode kModes[] = {v1::SYNC_MODE_EVERY_MICRO_STEP, v1::SYNC_MODE_WINDOW, v1::SYNC_MODE_WINDOW_REPLICA};
  int answered = 0;
  for (int i = 0; i < 5000 && !::testing::Test::HasFailure(); ++i) {
    const v1::SyncMode mode = kModes[below(3)];
    FakeJob job(1 + below(8), 1 + below(4), mode);
    const FakeWindow window{seconds(), seconds(), seconds(), seconds(), mode, below(4) == 0};
    job.CloseMany(3 + below(5), window, {1, 1 + 0.5 * below(2)});
    for (int rank = 0; rank < job.stats.ranks_size(); ++rank) {
      const int kinds = below(8);
      const auto reduce = [&](int bit, v1::GroupRole role, v1::CollectiveOp op) {
        if ((kinds >> bit & 1) == 0) return;
        v1::CollectiveStats* c = job.Reduce(rank, role, op, below(20), below(50), below(1000));
        c->set_completed_count(below(2) * below(50));
        c->set_other_issued_count(below(50));
        SetSeconds(seconds(), c->mutable_total_duration());
      };
      reduce(0, v1::GROUP_ROLE_DP, v1::COLLECTIVE_OP_ALL_REDUCE);
      reduce(1, v1::GROUP_ROLE_SHARD, v1::COLLECTIVE_OP_REDUCE_SCATTER);
      reduce(1, v1::GROUP_ROLE_SHARD, v1::COLLECTIVE_OP_ALL_GATHER);
      reduce(2, v1::GROUP_ROLE_REPLICATE, v1::COLLECTIVE_OP_ALL_REDUCE);
    }
    const auto response = PlanJob({}, job.stats, job.windows);
    if (!response.ok()) {
      EXPECT_TRUE(absl::IsFailedPrecondition(response.status()) || absl::IsInvalidArgument(response.status()))
          << response.status();
      continue;
    }
    ++answered;
    for (const v1::ModePlan& plan : response->plan().modes()) {
      EXPECT_TRUE(std::isfinite(plan.step_seconds()) && plan.step_seconds() > 0) << seed << job.stats.ShortDebugString();
      EXPECT_LE(plan.min_step_seconds(), plan.step_seconds());
      EXPECT_GE(plan.max_step_seconds(), plan.step_seconds());
    }
  }
  EXPECT_GT(answered, 300) << seed;
}

}  // namespace
}  // namespace gradgate::planner
