#include "daemon/rpc/stats_answers.h"

#include <memory>
#include <string>
#include <vector>

#include "daemon/node/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using ::testing::ElementsAre;
using testing::FakeIdentity;
using testing::FakePage;
using ::testing::SizeIs;

class StatsServiceTest : public ::testing::Test {
 protected:
  void Connect(const FakePage& page) { ASSERT_TRUE(registry_.Register(1000, page.Map()).ok()); }

  v1::ListWindowsResponse ListWindows(int page_size, const std::string& token = "", bool newest_first = false) {
    v1::ListWindowsRequest request;
    request.set_job("job");
    request.set_page_size(page_size);
    request.set_page_token(token);
    request.set_newest_first(newest_first);
    const auto response = AnswerListWindows(request, tokens_, registry_);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(v1::ListWindowsResponse{});
  }

  std::vector<int64_t> AllIndices(int page_size, bool newest_first) {
    std::vector<int64_t> indices;
    std::string token;
    do {
      const auto response = ListWindows(page_size, token, newest_first);
      EXPECT_LE(response.windows_size(), page_size);
      for (const auto& window : response.windows()) indices.push_back(window.window_index());
      token = response.next_page_token();
    } while (!token.empty());
    return indices;
  }

  SystemClock clock_;
  Registry registry_{RegistryOptions{}, &clock_};
  const PageTokens tokens_{7};
};

TEST_F(StatsServiceTest, CountsArriveUnchanged) {
  FakePage page0({.rank = 0}), page1({.rank = 1});
  Connect(page0);
  Connect(page1);
  for (FakePage* fake : {&page0, &page1}) {
    page::StatsPage& page = fake->page();
    page.totals.micro_step_count.store(10);
    page.totals.exposed_ns.store(1'500'000'000);
    page.totals.last_event_ns.store(3'000'000'000);
    page.roles[0].intended_count.store(3);
    page.roles[0].issued_count.store(3);
    page.roles[0].suppressed_count.store(7);
    page::CollectiveCell& cell = page.cells[0][0];
    cell.intended_count.store(6);
    cell.issued_count[0].store(6);
    cell.issued_count[1].store(2);
    cell.bytes[0].store(600);
    cell.completed_count.store(8);
    fake->CloseWindow();
  }
  v1::GetJobStatsRequest request;
  request.set_job("job");
  const auto response = AnswerGetJobStats(request, registry_);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->job().state(), v1::STATE_RUNNING);
  EXPECT_EQ(response->job().running_rank_count(), 2);
  EXPECT_EQ(response->job().user_id(), 1000);
  EXPECT_EQ(response->job().window_count(), 1);
  EXPECT_EQ(response->job().accumulate(), 4);
  EXPECT_EQ(response->job().sync_mode(), v1::SYNC_MODE_WINDOW);
  EXPECT_EQ(response->job().start_time().seconds(), 1'700'000'000);
  ASSERT_EQ(response->ranks_size(), 2);
  const v1::RankStats& rank = response->ranks(1);
  EXPECT_EQ(rank.rank(), 1);
  EXPECT_EQ(rank.shim_version(), "9.8.7");
  EXPECT_EQ(rank.host_name(), "node-a");
  EXPECT_EQ(rank.last_event_time().seconds(), 1'700'000'002);
  EXPECT_EQ(rank.totals().micro_step_count(), 10);
  EXPECT_EQ(rank.totals().exposed_duration().seconds(), 1);
  EXPECT_EQ(rank.totals().exposed_duration().nanos(), 500'000'000);
  ASSERT_EQ(rank.roles_size(), 1);
  EXPECT_EQ(rank.roles(0).group(), v1::GROUP_ROLE_DP);
  EXPECT_EQ(rank.roles(0).suppressed_count(), 7);
  ASSERT_EQ(rank.collectives_size(), 1);
  EXPECT_EQ(rank.collectives(0).op(), v1::COLLECTIVE_OP_ALL_REDUCE);
  EXPECT_EQ(rank.collectives(0).ours_issued_count(), 2);
  EXPECT_EQ(response->totals().micro_step_count(), 20);
  EXPECT_EQ(response->totals().reduction_issued_count(), 6);
  EXPECT_EQ(response->totals().gradient_collective_count(), 12);
  EXPECT_EQ(response->totals().gradient_bytes(), 1200);
  ASSERT_EQ(response->collectives_size(), 1);
  EXPECT_EQ(response->collectives(0).completed_count(), 16);
}

TEST_F(StatsServiceTest, HugeCountsSaturateInSums) {
  FakePage page0({.rank = 0}), page1({.rank = 1});
  page0.page().totals.item_count.store(INT64_MAX - 1);
  page1.page().totals.item_count.store(INT64_MAX - 1);
  page1.page().totals.last_event_ns.store(UINT64_MAX);
  Connect(page0);
  Connect(page1);
  v1::GetJobStatsRequest request;
  request.set_job("job");
  const auto response = AnswerGetJobStats(request, registry_);
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->totals().item_count(), INT64_MAX);
}

TEST_F(StatsServiceTest, WindowsPageInBothDirections) {
  FakePage page({});
  Connect(page);
  for (int i = 0; i < 7; ++i) page.CloseWindow();
  EXPECT_THAT(AllIndices(3, false), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(AllIndices(3, true), ElementsAre(6, 5, 4, 3, 2, 1, 0));
  EXPECT_THAT(AllIndices(7, false), SizeIs(7));
  const v1::RankWindow window = ListWindows(1).windows(0).ranks(0);
  EXPECT_EQ(window.kind(), v1::WINDOW_KIND_FULL);
  EXPECT_EQ(window.reduction_suppressed_count(), 3);
  EXPECT_EQ(window.gradient_bytes(), 1000);
  EXPECT_EQ(window.exposed_duration().nanos(), 5'000'000);
  EXPECT_FALSE(window.mismatched());
}

TEST_F(StatsServiceTest, PagingGoesOnWhileWindowsClose) {
  FakePage page({});
  Connect(page);
  for (int i = 0; i < 4; ++i) page.CloseWindow();
  const auto first = ListWindows(2, "", true);
  page.CloseWindow();
  const auto second = ListWindows(2, first.next_page_token(), true);
  EXPECT_EQ(second.windows(0).window_index(), 1) << "neither twice nor missed";
}

TEST_F(StatsServiceTest, TokensAreBoundToTheirList) {
  FakePage page({}), other({.job_name = "other", .run_id_bytes = std::string(16, 'o')});
  Connect(page);
  Connect(other);
  for (int i = 0; i < 4; ++i) page.CloseWindow();
  const std::string token = ListWindows(2).next_page_token();
  v1::ListWindowsRequest request;
  request.set_page_token(token);
  request.set_job("other");
  EXPECT_EQ(AnswerListWindows(request, tokens_, registry_).status().code(), absl::StatusCode::kInvalidArgument);
  request.set_job("job");
  request.set_newest_first(true);
  EXPECT_EQ(AnswerListWindows(request, tokens_, registry_).status().code(), absl::StatusCode::kInvalidArgument);
  v1::ListJobsRequest jobs;
  jobs.set_page_token(token);
  EXPECT_EQ(AnswerListJobs(jobs, tokens_, registry_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(StatsServiceTest, JobsPageByStart) {
  std::vector<std::unique_ptr<FakePage>> pages;
  for (int i = 0; i < 5; ++i) {
    pages.push_back(std::make_unique<FakePage>(FakeIdentity{.job_name = "job" + std::to_string(i),
                                                            .run_id_bytes = std::string(16, static_cast<char>('a' + i)),
                                                            .wall_time_ns = 1'700'000'000'000'000'000 + i / 2}));
    Connect(*pages.back());
  }
  std::vector<std::string> names;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  do {
    const auto response = AnswerListJobs(request, tokens_, registry_);
    ASSERT_TRUE(response.ok()) << response.status();
    for (const auto& job : response->jobs()) names.push_back(job.job_name());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names, ElementsAre("job4", "job3", "job2", "job1", "job0"));
}

TEST_F(StatsServiceTest, BadRequestsAreNamed) {
  v1::ListJobsRequest jobs;
  jobs.set_page_size(-1);
  EXPECT_EQ(AnswerListJobs(jobs, tokens_, registry_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AnswerGetJobStats({}, registry_).status().code(), absl::StatusCode::kInvalidArgument);
  v1::ListWindowsRequest windows;
  windows.set_job("nobody");
  EXPECT_EQ(AnswerListWindows(windows, tokens_, registry_).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gradgate
