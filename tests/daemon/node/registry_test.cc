#include "daemon/node/registry.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/node/rejection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using ::testing::ElementsAre;
using testing::FakeIdentity;
using testing::FakePage;
using ::testing::HasSubstr;

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

constexpr uint32_t kUid = 1000;

class RegistryTest : public ::testing::Test {
 protected:
  Registration Connect(const FakePage& page, uint32_t uid = kUid) {
    const auto registration = registry_.Register(uid, page.Map());
    EXPECT_TRUE(registration.ok()) << registration.status();
    return registration.value_or(Registration{});
  }

  JobStatsView Stats(const std::string& selector = "job") {
    const auto stats = registry_.GetJobStats(selector);
    EXPECT_TRUE(stats.ok()) << stats.status();
    return stats.ok() ? *stats : JobStatsView{};
  }

  std::vector<uint64_t> Indices(const std::string& selector, std::optional<uint64_t> from, bool newest_first, size_t limit) {
    std::vector<uint64_t> indices;
    const auto windows = registry_.ListWindows(*registry_.FindJob(selector), from, newest_first, limit);
    for (const WindowView& window : *windows) indices.push_back(window.window_index);
    return indices;
  }

  FakeClock clock_;
  Registry registry_{{.window_history = 8, .max_ended_jobs = 2, .max_ranks_per_job = 2}, &clock_};
};

std::string RunId(char byte) { return std::string(16, byte); }

TEST_F(RegistryTest, AnswersAreCurrentWithoutATick) {
  FakePage page({.rank = 1});
  Connect(page);
  page.page().totals.micro_step_count.store(12);
  page.CloseWindow();
  const JobStatsView stats = Stats();
  ASSERT_EQ(stats.ranks.size(), 1u);
  EXPECT_EQ(stats.ranks[0].counters.totals.micro_step_count, 12u);
  EXPECT_EQ(stats.ranks[0].identity.rank, 1u);
  EXPECT_EQ(stats.job.window_count, 1u);
  EXPECT_EQ(stats.job.state, RankState::kRunning);
  EXPECT_EQ(Indices("job", {}, false, 10).size(), 1u);
}

TEST_F(RegistryTest, RejectsABadPage) {
  FakePage page({});
  page.page().header.layout_hash = 1;
  EXPECT_EQ(RejectionOf(registry_.Register(kUid, page.Map()).status()), Rejection::kPageLayout);
  EXPECT_TRUE(registry_.ListJobs().empty());
}

TEST_F(RegistryTest, GoodbyeIsFinishedAndEndOfFileIsLost) {
  FakePage page0({.rank = 0}), page1({.rank = 1});
  const auto rank0 = Connect(page0), rank1 = Connect(page1);
  registry_.End(rank0.connection, Ending::kGoodbye);
  EXPECT_EQ(Stats().job.state, RankState::kRunning);
  clock_.Advance(absl::Seconds(3));
  const auto lost = registry_.End(rank1.connection, Ending::kDisconnected);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->state, RankState::kLost);
  const JobStatsView stats = Stats();
  EXPECT_EQ(stats.job.state, RankState::kLost);
  EXPECT_EQ(stats.job.end_time, clock_.Now());
  EXPECT_EQ(stats.ranks[0].state, RankState::kFinished);
  EXPECT_EQ(registry_.GetNode().lost_count, 1u);
  EXPECT_FALSE(registry_.End(rank1.connection, Ending::kGoodbye).has_value()) << "an ended connection is ignored";
}

TEST_F(RegistryTest, FailedGoodbyeIsFailed) {
  FakePage page({});
  registry_.End(Connect(page).connection, Ending::kGoodbyeFailed);
  EXPECT_EQ(Stats().job.state, RankState::kFailed);
  EXPECT_EQ(Stats().job.rank_counts[static_cast<size_t>(RankState::kFailed)], 1u);
}

TEST_F(RegistryTest, ClosedPageAtEndOfFileIsFinished) {
  FakePage page({});
  const auto rank = Connect(page);
  page.page().totals.closed.store(1);
  registry_.End(rank.connection, Ending::kDisconnected);
  EXPECT_EQ(Stats().job.state, RankState::kFinished);
  EXPECT_EQ(registry_.GetNode().lost_count, 0u);
}

TEST_F(RegistryTest, PageIsReadOneLastTimeBeforeTheRankEnds) {
  FakePage page({});
  const auto rank = Connect(page);
  page.CloseWindow();
  page.page().totals.step_count.store(1);
  page.TearWindow();  // killed in the middle of the next
  registry_.End(rank.connection, Ending::kDisconnected);
  page.page().totals.step_count.store(99);  // too late
  EXPECT_EQ(Stats().ranks[0].counters.totals.step_count, 1u);
  EXPECT_EQ(Indices("job", {}, false, 10).size(), 1u);
  EXPECT_EQ(registry_.GetNode().page_errors.window_torn_count, 1u);
}

TEST_F(RegistryTest, DuplicateLiveRankIsRefusedAndTheFirstStays) {
  FakePage first({}), second({});
  Connect(first);
  const absl::Status refused = registry_.Register(kUid, second.Map()).status();
  EXPECT_EQ(RejectionOf(refused), Rejection::kRankDuplicate);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 0 of run 1111"));
  first.page().totals.step_count.store(5);
  EXPECT_EQ(Stats().ranks[0].counters.totals.step_count, 5u);
}

TEST_F(RegistryTest, AnotherUserMayHaveTheSameRank) {
  FakePage first({}), second({});
  Connect(first, 1);
  Connect(second, 2);
  EXPECT_EQ(registry_.ListJobs().size(), 2u);
}

TEST_F(RegistryTest, ReconnectGoesOnCounting) {
  FakePage page({});
  const auto before = Connect(page);
  page.CloseWindow();
  page.AddEvent(EventKind::kMicroStepBegin);
  registry_.Tick();
  registry_.End(before.connection, Ending::kDisconnected);
  EXPECT_EQ(Stats().job.state, RankState::kLost);
  page.CloseWindow();
  const auto after = Connect(page);
  EXPECT_EQ(after.slot, before.slot);
  EXPECT_NE(after.connection, before.connection);
  const JobStatsView stats = Stats();
  EXPECT_EQ(stats.ranks.size(), 1u);
  EXPECT_EQ(stats.job.state, RankState::kRunning);
  EXPECT_EQ(stats.job.end_time, std::nullopt);
  EXPECT_EQ(stats.ranks[0].counters.totals.window_full_count, 2u);
  EXPECT_EQ(stats.ranks[0].event_read_count, 1u) << "events are not read twice";
  EXPECT_EQ(registry_.GetNode().histograms.window_duration.count, 2u) << "windows are not observed twice";
}

TEST_F(RegistryTest, NewProcessOfAnEndedRankReplacesIt) {
  FakePage old_page({});
  old_page.page().totals.step_count.store(50);
  registry_.End(Connect(old_page).connection, Ending::kDisconnected);
  FakePage new_page({.wall_time_ns = 1'700'000'100'000'000'000});
  new_page.page().identity.monotonic_ns += 5;
  new_page.page().totals.step_count.store(3);
  Connect(new_page);
  EXPECT_EQ(Stats().ranks[0].counters.totals.step_count, 3u);
  EXPECT_EQ(registry_.GetNode().page_errors.counters_backwards_count, 0u);
}

TEST_F(RegistryTest, BackwardsCountersAreCountedAndTheLastGoodOnesKept) {
  FakePage page({});
  Connect(page);
  page.page().totals.step_count.store(10);
  EXPECT_EQ(Stats().ranks[0].counters.totals.step_count, 10u);
  page.page().totals.step_count.store(9);
  EXPECT_EQ(Stats().ranks[0].counters.totals.step_count, 10u);
  EXPECT_EQ(registry_.GetNode().page_errors.counters_backwards_count, 2u);  // the query's and this one's
  page.page().totals.step_count.store(11);
  EXPECT_EQ(Stats().ranks[0].counters.totals.step_count, 11u);
}

TEST_F(RegistryTest, CountersOutOfRangeAreCountedAndTheLastGoodOnesKept) {
  FakePage page({});
  Connect(page);
  page.page().totals.step_count.store(UINT64_MAX);
  EXPECT_EQ(Stats().ranks[0].counters.totals.step_count, 0u);
  EXPECT_GT(registry_.GetNode().page_errors.counters_invalid_count, 0u);
}

TEST_F(RegistryTest, WindowsAreMergedOverRanks) {
  FakePage page0({.rank = 0}), page1({.rank = 1});
  const auto rank0 = Connect(page0);
  Connect(page1);
  page1.CloseWindow();
  page1.CloseWindow();
  page0.CloseWindow();
  auto windows = *registry_.ListWindows(*registry_.FindJob("job"), {}, false, 10);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_TRUE(windows[0].complete);
  ASSERT_EQ(windows[0].ranks.size(), 2u);
  EXPECT_EQ(windows[0].ranks[0].rank, 0u);
  EXPECT_FALSE(windows[1].complete);
  EXPECT_EQ(windows[1].ranks[0].rank, 1u);
  registry_.End(rank0.connection, Ending::kDisconnected);
  windows = *registry_.ListWindows(*registry_.FindJob("job"), {}, false, 10);
  EXPECT_FALSE(windows[1].complete) << "a rank that was connected has not closed it";
}

TEST_F(RegistryTest, HistoryIsBoundedAndPaged) {
  FakePage page({});
  Connect(page);
  for (int i = 0; i < 12; ++i) page.CloseWindow();
  EXPECT_THAT(Indices("job", {}, false, 3), ElementsAre(4, 5, 6));
  EXPECT_THAT(Indices("job", 10, false, 10), ElementsAre(10, 11));
  EXPECT_THAT(Indices("job", {}, true, 3), ElementsAre(11, 10, 9));
  EXPECT_THAT(Indices("job", 5, true, 10), ElementsAre(5, 4));
  EXPECT_THAT(Indices("job", 100, false, 10), ElementsAre());
}

TEST_F(RegistryTest, SelectorFindsByNameAndRunId) {
  FakePage old_run({.run_id_bytes = RunId('\x11')});
  FakePage new_run({.run_id_bytes = RunId('\x12'), .wall_time_ns = 1'700'000'500'000'000'000});
  Connect(new_run);
  Connect(old_run);
  EXPECT_EQ(Stats("job").job.run_id.substr(0, 2), "12") << "the last started";
  EXPECT_EQ(Stats("111111").job.run_id.substr(0, 2), "11");
  EXPECT_EQ(Stats(std::string(32, '1')).job.run_id, std::string(32, '1'));
  EXPECT_EQ(registry_.GetJobStats("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(registry_.GetJobStats("11111").status().code(), absl::StatusCode::kNotFound) << "five digits are too few";
  EXPECT_EQ(registry_.GetJobStats("nobody").status().code(), absl::StatusCode::kNotFound);
  FakePage similar({.run_id_bytes = std::string(4, '\x11') + std::string(12, '\x22')});
  Connect(similar, 7);
  const absl::Status ambiguous = registry_.GetJobStats("111111").status();
  EXPECT_EQ(ambiguous.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ambiguous.message()), HasSubstr("give more digits"));
}

TEST_F(RegistryTest, AnotherUsersJobOfTheSameNameShadowsNobodys) {
  FakePage own({.run_id_bytes = RunId('\x11')}), other({.run_id_bytes = RunId('\x12')});
  Connect(own);
  Connect(other, kUid + 1);
  const absl::Status ambiguous = registry_.GetJobStats("job").status();
  EXPECT_EQ(ambiguous.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ambiguous.message()),
              HasSubstr(absl::StrCat(kUid, "/job (run 111111111111), ", kUid + 1, "/job (run 121212121212)")));
  EXPECT_THAT(std::string(ambiguous.message()), HasSubstr("--user UID"));
  EXPECT_EQ(Stats(absl::StrCat(kUid, "/job")).job.user_id, kUid);
  EXPECT_EQ(Stats(absl::StrCat(kUid + 1, "/job")).job.user_id, kUid + 1);
  EXPECT_EQ(registry_.GetJobStats(absl::StrCat(kUid + 2, "/job")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(registry_.GetJobStats(absl::StrCat(kUid, "/")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Stats("111111").job.run_id.substr(0, 2), "11");
}

TEST_F(RegistryTest, WhoClaimsAnothersRunHidesItFromNobodyWhoNamesTheUser) {
  FakePage own({}), squatter({.world_size = 1}), later({.job_name = absl::StrCat(kUid, "/job"), .run_id_bytes = RunId('\x12')});
  Connect(own);
  Connect(squatter, kUid + 1);
  Connect(later, kUid + 1);
  const std::string run(32, '1');
  const absl::Status ambiguous = registry_.GetJobStats(run).status();
  EXPECT_EQ(ambiguous.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ambiguous.message()), HasSubstr(absl::StrCat("claim the run \"", run, "\": ", kUid, "/", run)));
  EXPECT_EQ(Stats(absl::StrCat(kUid, "/", run)).job.user_id, kUid);
  EXPECT_EQ(Stats(absl::StrCat(kUid + 1, "/111111")).job.user_id, kUid + 1);
  EXPECT_EQ(Stats(absl::StrCat(kUid, "/job")).job.user_id, kUid) << "whatever another calls his";
  EXPECT_EQ(Stats(absl::StrCat(kUid + 1, "/", kUid, "/job")).job.run_id.substr(0, 2), "12");
  const auto watch = registry_.StartWatch(absl::StrCat(kUid, "/job"), std::nullopt);
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_EQ(watch->job_id, Stats(absl::StrCat(kUid, "/job")).job.id);
}

TEST_F(RegistryTest, PoliciesInForceOfKnownLaunches) {
  FakePage first({}), second({.rank = 1}), unknown({.job_name = "unknown", .run_id_bytes = RunId('\x12')});
  for (FakePage* page : {&first, &second}) page->page().identity.launch_id[0] = 0xab;
  Connect(first);
  Connect(second);
  Connect(unknown);
  EXPECT_EQ(Stats("job").job.launch_id, "ab" + std::string(30, '0'));
  EXPECT_EQ(Stats("unknown").job.launch_id, "");
  EXPECT_TRUE(registry_.ListPoliciesInForce().empty());
  second.page().totals.policy_version = 7;
  unknown.page().totals.policy_version = 8;
  registry_.Tick();
  const auto in_force = registry_.ListPoliciesInForce();
  ASSERT_EQ(in_force.size(), 1u);
  EXPECT_EQ(in_force[0].job.job_name, "job");
  EXPECT_EQ(in_force[0].launch_id, "ab" + std::string(30, '0'));
  EXPECT_EQ(in_force[0].version, 7u);
}

TEST_F(RegistryTest, RanksOfAJobAreBounded) {
  FakePage a({.rank = 0, .world_size = 8}), b({.rank = 1, .world_size = 8}), c({.rank = 2, .world_size = 8});
  Connect(a);
  registry_.End(Connect(b).connection, Ending::kGoodbye);
  EXPECT_EQ(RejectionOf(registry_.Register(kUid, c.Map()).status()), Rejection::kRankLimit);
}

TEST_F(RegistryTest, EndedJobsGoByTimeAndByNumber) {
  std::vector<std::unique_ptr<FakePage>> pages;
  for (char run = 1; run <= 3; ++run) {
    pages.push_back(std::make_unique<FakePage>(FakeIdentity{.run_id_bytes = RunId(run)}));
    registry_.End(Connect(*pages.back()).connection, Ending::kGoodbye);
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(registry_.ListJobs().size(), 2u) << "two ended jobs are kept";
  EXPECT_EQ(registry_.GetJobStats("010101").status().code(), absl::StatusCode::kNotFound);
  clock_.Advance(absl::Hours(1));
  registry_.Tick();
  EXPECT_TRUE(registry_.ListJobs().empty());
}

TEST_F(RegistryTest, SlotIsNotReusedWhileItsSeriesLinger) {
  FakePage first({.run_id_bytes = RunId(1)}), second({.run_id_bytes = RunId(2)}), third({.run_id_bytes = RunId(3)});
  const auto ended = Connect(first);
  registry_.End(ended.connection, Ending::kGoodbye);
  clock_.Advance(absl::Minutes(4));
  EXPECT_NE(Connect(second).slot, ended.slot);
  EXPECT_EQ(registry_.GetNode().ranks.size(), 2u);
  clock_.Advance(absl::Minutes(1));
  const NodeView node = registry_.GetNode();
  ASSERT_EQ(node.ranks.size(), 1u) << "the ended rank's series are gone, the job is still there";
  EXPECT_EQ(registry_.ListJobs().size(), 2u);
  EXPECT_EQ(Connect(third).slot, ended.slot);
}

TEST_F(RegistryTest, WatcherSeesWindowsThatAllRunningRanksClosed) {
  FakePage page0({.rank = 0}), page1({.rank = 1});
  const auto rank0 = Connect(page0), rank1 = Connect(page1);
  page0.CloseWindow();
  page1.CloseWindow();
  WatchPosition from_start = *registry_.StartWatch("job", 0), from_now = *registry_.StartWatch("job", {});
  EXPECT_EQ(registry_.NextForWatch(from_start)->window->window_index, 0u);
  EXPECT_FALSE(registry_.NextForWatch(from_now)->window.has_value());
  page0.CloseWindow();
  registry_.Tick();
  EXPECT_FALSE(registry_.NextForWatch(from_now)->window.has_value()) << "rank 1 has not closed window 1";
  registry_.End(rank0.connection, Ending::kGoodbye);
  registry_.End(rank1.connection, Ending::kDisconnected);
  const WatchStep step = *registry_.NextForWatch(from_now);
  ASSERT_TRUE(step.window.has_value()) << "the job ended inside it";
  EXPECT_EQ(step.window->window_index, 1u);
  EXPECT_FALSE(step.window->complete);
  const WatchStep end = *registry_.NextForWatch(from_now);
  ASSERT_TRUE(end.ended_job.has_value());
  EXPECT_EQ(end.ended_job->state, RankState::kLost);
}

TEST_F(RegistryTest, SlowWatcherIsToldWhatItMissed) {
  FakePage page({});
  Connect(page);
  page.CloseWindow();
  WatchPosition position = *registry_.StartWatch("job", 0);
  EXPECT_EQ(registry_.NextForWatch(position)->window->window_index, 0u);
  for (int i = 0; i < 12; ++i) page.CloseWindow();
  registry_.Tick();
  const WatchStep step = *registry_.NextForWatch(position);
  EXPECT_EQ(step.window->window_index, 5u);
  EXPECT_EQ(step.skipped_count, 4u);
  EXPECT_EQ(registry_.NextForWatch(position)->skipped_count, 0u);
}

TEST_F(RegistryTest, GenerationGrowsWithNews) {
  FakePage page({});
  const auto rank = Connect(page);
  const uint64_t quiet = registry_.generation();
  registry_.Tick();
  EXPECT_EQ(registry_.generation(), quiet);
  page.CloseWindow();
  registry_.Tick();
  EXPECT_GT(registry_.generation(), quiet);
  const uint64_t before_end = registry_.generation();
  registry_.End(rank.connection, Ending::kGoodbye);
  EXPECT_GT(registry_.generation(), before_end);
}

}  // namespace
}  // namespace gradgate
