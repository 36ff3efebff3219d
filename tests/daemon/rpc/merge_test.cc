#include <string>
#include <utility>
#include <vector>

#include "daemon/rpc/merge_jobs.h"
#include "daemon/rpc/merge_nodes.h"
#include "daemon/rpc/merge_windows.h"
#include "daemon/rpc/policy_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Job MakeJob(int ranks, int world) {
  v1::Job job;
  job.set_job_name("job");
  job.set_run_id(std::string(32, 'a'));
  job.set_running_rank_count(ranks);
  job.set_world_size(world);
  return job;
}

template <typename Response>
void AddPart(Parts<Response>& parts, const std::string& name, const Response* answer) {
  v1::NodeAnswer& node = parts.nodes.emplace_back();
  node.set_node_name(name);
  node.set_answered(answer != nullptr);
  if (answer != nullptr) parts.parts.push_back({parts.nodes.size() - 1, *answer});
}

v1::GetJobStatsResponse Stats(std::vector<int> ranks, v1::State state, int64_t start, int64_t micro_steps) {
  v1::GetJobStatsResponse stats;
  *stats.mutable_job() = MakeJob(static_cast<int>(ranks.size()), 4);
  for (const int rank : ranks) {
    v1::RankStats& out = *stats.add_ranks();
    out.set_rank(rank);
    out.set_state(state);
    out.mutable_start_time()->set_seconds(start);
    out.mutable_totals()->set_micro_step_count(micro_steps);
  }
  return stats;
}

TEST(MergeJobStats, OfTwoThatClaimARankTheRunningOneIsShown) {
  const auto a = Stats({0, 1, 2}, v1::STATE_LOST, 50, 1), b = Stats({2, 3}, v1::STATE_RUNNING, 10, 100);
  for (const bool a_first : {true, false}) {
    Parts<v1::GetJobStatsResponse> parts;
    AddPart(parts, a_first ? "a" : "b", a_first ? &a : &b);
    AddPart(parts, a_first ? "b" : "a", a_first ? &b : &a);
    const auto merged = MergeJobStats(std::move(parts));
    ASSERT_EQ(merged.ranks_size(), 4);
    EXPECT_EQ(merged.ranks(2).state(), v1::STATE_RUNNING);
    EXPECT_EQ(merged.ranks(2).node_name(), "b");
    EXPECT_EQ(merged.totals().micro_step_count(), 202) << "counted once";
    EXPECT_EQ(merged.job().running_rank_count(), 2);
    EXPECT_EQ(merged.job().lost_rank_count(), 2);
    EXPECT_EQ(merged.job().state(), v1::STATE_RUNNING);
    EXPECT_EQ(merged.nodes(a_first ? 0 : 1).note(), "also claims rank 2, taken from node b");
    EXPECT_EQ(merged.nodes(a_first ? 1 : 0).note(), "");
  }
}

TEST(MergeJobStats, OfTwoThatRunTheLaterStartedIsShown) {
  const auto a = Stats({1}, v1::STATE_RUNNING, 50, 1), b = Stats({1}, v1::STATE_RUNNING, 51, 7);
  Parts<v1::GetJobStatsResponse> parts;
  AddPart(parts, "a", &a);
  AddPart(parts, "b", &b);
  EXPECT_EQ(MergeJobStats(std::move(parts)).totals().micro_step_count(), 7);
}

TEST(MergeJobStats, HostileCountsNeitherOverflowNorSubtract) {
  const auto a = Stats({0}, v1::STATE_RUNNING, 1, INT64_MAX), b = Stats({1}, v1::STATE_RUNNING, 1, INT64_MAX),
             c = Stats({2}, v1::STATE_RUNNING, 1, -5);
  auto d = Stats({3}, static_cast<v1::State>(77), INT64_MAX, 0);
  d.mutable_ranks(0)->mutable_totals()->mutable_exposed_duration()->set_seconds(INT64_MAX);
  d.mutable_ranks(0)->mutable_totals()->mutable_exposed_duration()->set_nanos(INT32_MIN);
  d.mutable_ranks(0)->mutable_totals()->set_window_full_count(-1);
  Parts<v1::GetJobStatsResponse> parts;
  for (const v1::GetJobStatsResponse* part : {&a, &b, &c, static_cast<const v1::GetJobStatsResponse*>(&d)})
    AddPart(parts, "n", part);
  const auto merged = MergeJobStats(std::move(parts));
  EXPECT_EQ(merged.totals().micro_step_count(), INT64_MAX);
  EXPECT_EQ(merged.totals().exposed_duration().seconds(), INT64_MAX);
  EXPECT_EQ(merged.totals().exposed_duration().nanos(), 0);
  EXPECT_EQ(merged.job().window_count(), 0);
}

TEST(MergeJobs, EndIsTheLastAndOnlyWhenAllHaveEnded) {
  v1::Job a = MakeJob(0, 4), b = MakeJob(0, 4);
  a.set_finished_rank_count(2);
  a.mutable_end_time()->set_seconds(20);
  b.set_failed_rank_count(2);
  b.mutable_end_time()->set_seconds(30);
  v1::Job merged = MergeJob({&a, &b});
  EXPECT_EQ(merged.state(), v1::STATE_FAILED);
  EXPECT_EQ(merged.end_time().seconds(), 30);
  b.set_running_rank_count(1);
  merged = MergeJob({&a, &b});
  EXPECT_EQ(merged.state(), v1::STATE_RUNNING);
  EXPECT_FALSE(merged.has_end_time());
}

TEST(MergeJobLists, AnotherUsersJobOfTheSameRunIsAnotherJob) {
  v1::ListJobsResponse a, b;
  *a.add_jobs() = MakeJob(2, 4);
  *b.add_jobs() = MakeJob(2, 4);
  b.mutable_jobs(0)->set_user_id(666);
  b.set_next_page_token("more");
  Parts<v1::ListJobsResponse> parts;
  AddPart(parts, "a", &a);
  AddPart(parts, "b", &b);
  const auto merged = MergeJobLists(std::move(parts), {}, PageTokens(1));
  ASSERT_TRUE(merged.ok());
  ASSERT_EQ(merged->jobs_size(), 2);
  EXPECT_EQ(merged->jobs(0).running_rank_count(), 2);
  EXPECT_THAT(merged->nodes(1).note(), HasSubstr("has more jobs than the 1 that started last"));
}

TEST(MergeJobLists, TokensOfOneNodesListAreRefused) {
  const PageTokens tokens(1);
  v1::ListJobsRequest request;
  request.set_page_token(tokens.Make(PageStart{0, 5, 5}));
  EXPECT_EQ(MergeJobLists({}, request, tokens).status().code(), absl::StatusCode::kInvalidArgument);
  request.set_page_token("");
  request.set_page_size(-1);
  EXPECT_EQ(MergeJobLists({}, request, tokens).status().code(), absl::StatusCode::kInvalidArgument);
}

v1::ListWindowsResponse Windows(std::vector<int64_t> indices, int rank, int64_t closed_below, bool more = false,
                                int64_t end = 9) {
  v1::ListWindowsResponse response;
  *response.mutable_job() = MakeJob(1, 2);
  response.set_closed_below_index(closed_below);
  if (more) response.set_next_page_token("more");
  for (const int64_t index : indices) {
    v1::Window& window = *response.add_windows();
    window.set_window_index(index);
    window.set_complete(index < closed_below);
    v1::RankWindow& out = *window.add_ranks();
    out.set_rank(rank);
    out.mutable_end_time()->set_seconds(end);
  }
  return response;
}

v1::ListWindowsResponse Merge(std::vector<const v1::ListWindowsResponse*> answers, bool newest_first = false,
                              int page_size = 0) {
  Parts<v1::ListWindowsResponse> parts;
  char name = 'a';
  for (const auto* answer : answers) AddPart(parts, std::string(1, name++), answer);
  v1::ListWindowsRequest request;
  request.set_newest_first(newest_first);
  request.set_page_size(page_size);
  const auto merged = MergeWindows(std::move(parts), request, PageTokens(1));
  EXPECT_TRUE(merged.ok()) << merged.status();
  return merged.value_or(v1::ListWindowsResponse());
}

std::vector<int64_t> Complete(const v1::ListWindowsResponse& response, bool complete) {
  std::vector<int64_t> indices;
  for (const v1::Window& window : response.windows()) {
    if (window.complete() == complete) indices.push_back(window.window_index());
  }
  return indices;
}

TEST(MergeWindows, AWindowThatANodeHasNotClosedIsNotComplete) {
  const auto a = Windows({0, 1, 2}, 0, 3), b = Windows({0, 1}, 1, 2);
  const auto merged = Merge({&a, &b});
  EXPECT_THAT(Complete(merged, true), ElementsAre(0, 1));
  EXPECT_THAT(Complete(merged, false), ElementsAre(2));
  EXPECT_EQ(merged.closed_below_index(), 2);
}

TEST(MergeWindows, AWindowThatANodeForgotIsComplete) {
  const auto a = Windows({0, 1, 2}, 0, 3), b = Windows({2}, 1, 3);
  EXPECT_THAT(Complete(Merge({&a, &b}), true), ElementsAre(0, 1, 2));
}

TEST(MergeWindows, WithASilentNodeNothingIsCompleteUnlessAllRanksAreKnown) {
  const auto a = Windows({0, 1}, 0, 2), b = Windows({0, 1}, 1, 2);
  EXPECT_THAT(Complete(Merge({&a, nullptr}), true), ElementsAre());
  EXPECT_THAT(Complete(Merge({&a, nullptr, &b}), true), ElementsAre(0, 1));
}

TEST(MergeWindows, ThePageEndsWhereTheFirstNodeWithMoreDoes) {
  const auto a = Windows({0, 1}, 0, 9, true), b = Windows({0, 5, 6}, 1, 9);
  const PageTokens tokens(1);
  const auto merged = Merge({&a, &b});
  ASSERT_EQ(merged.windows_size(), 2);
  EXPECT_EQ(tokens.Open(merged.next_page_token())->second, 2u) << "node a may have 2, 3 and 4";
}

TEST(MergeWindows, AtTheOldestWindowNoPageFollows) {
  const auto a = Windows({1, 0}, 0, 9, true);
  EXPECT_EQ(Merge({&a}, true).next_page_token(), "");
}

TEST(MergeWindows, ARankThatTwoNodesClaimIsShownOnce) {
  const auto a = Windows({0}, 0, 1, false, 100), b = Windows({0}, 0, 1, false, 200);
  const auto merged = Merge({&a, &b});
  ASSERT_EQ(merged.windows(0).ranks_size(), 1);
  EXPECT_EQ(merged.windows(0).ranks(0).end_time().seconds(), 200);
  EXPECT_THAT(merged.nodes(0).note(), HasSubstr("also claims rank 0"));
}

TEST(MergeWindows, TokensAreBoundToJobAndOrder) {
  const auto a = Windows({0, 1, 2}, 0, 3);
  const PageTokens tokens(1);
  const std::string token = Merge({&a}, false, 1).next_page_token();
  ASSERT_NE(token, "");
  v1::ListWindowsRequest request;
  request.set_page_token(token);
  EXPECT_EQ(PartOfWindowsPage(request, tokens)->from_window_index(), 1);
  const auto merge = [&](const v1::ListWindowsResponse& part) {
    Parts<v1::ListWindowsResponse> parts;
    AddPart(parts, "a", &part);
    return MergeWindows(std::move(parts), request, tokens).status().code();
  };
  EXPECT_EQ(merge(a), absl::StatusCode::kOk);
  request.set_newest_first(true);
  EXPECT_EQ(merge(a), absl::StatusCode::kInvalidArgument);
  request.set_newest_first(false);
  for (const auto& change : std::vector<void (*)(v1::Job*)>{
           [](v1::Job* job) { job->set_attempt(1); }, [](v1::Job* job) { job->set_user_id(1); },
           [](v1::Job* job) { job->set_run_id("b"); }, [](v1::Job* job) { job->set_job_name("b"); }}) {
    auto other = a;
    change(other.mutable_job());
    EXPECT_EQ(merge(other), absl::StatusCode::kInvalidArgument);
  }
}

TEST(MergeWindows, PagesOfLargeJobsAreShort) {
  EXPECT_EQ(WindowsPerPage(1000, 2), 1000u);
  EXPECT_EQ(WindowsPerPage(1000, 16'384), 4u);
  EXPECT_EQ(WindowsPerPage(1000, INT64_MAX), 1u);
  EXPECT_EQ(WindowsPerPage(1000, 0), 1000u);
}

TEST(Check, WindowsOutOfOrderOrNotAskedForAreBroken) {
  v1::ListWindowsRequest asked;
  asked.set_from_window_index(2);
  EXPECT_TRUE(CheckWindows(Windows({2, 3}, 0, 4), asked).ok());
  EXPECT_TRUE(absl::IsDataLoss(CheckWindows(Windows({1, 2}, 0, 4), asked)));
  EXPECT_TRUE(absl::IsDataLoss(CheckWindows(Windows({3, 2}, 0, 4), asked)));
  EXPECT_TRUE(absl::IsDataLoss(CheckWindows(Windows({2, 2}, 0, 4), asked)));
  EXPECT_TRUE(absl::IsDataLoss(CheckWindows(Windows({}, 0, 4, true), asked)));
  asked.set_newest_first(true);
  EXPECT_TRUE(CheckWindows(Windows({2, 1}, 0, 4), asked).ok());
  EXPECT_TRUE(absl::IsDataLoss(CheckWindows(Windows({3}, 0, 4), asked)));
  auto twice = Windows({1}, 0, 4);
  twice.mutable_windows(0)->add_ranks()->set_rank(0);
  EXPECT_TRUE(absl::IsDataLoss(CheckWindows(twice, asked)));
  auto without_job = Windows({1}, 0, 4);
  without_job.clear_job();
  EXPECT_TRUE(absl::IsDataLoss(CheckWindows(without_job, asked))) << "a former version";
}

TEST(Check, TextIsPrintableAndRanksAreThereOnce) {
  EXPECT_TRUE(CheckJobStats(Stats({0, 1}, v1::STATE_RUNNING, 1, 1)).ok());
  EXPECT_TRUE(absl::IsDataLoss(CheckJobStats(Stats({0, 0}, v1::STATE_RUNNING, 1, 1))));
  EXPECT_TRUE(absl::IsDataLoss(CheckJobStats(Stats({-1}, v1::STATE_RUNNING, 1, 1))));
  EXPECT_TRUE(absl::IsDataLoss(CheckJobStats(Stats({}, v1::STATE_RUNNING, 1, 1))));
  auto stats = Stats({0}, v1::STATE_RUNNING, 1, 1);
  stats.mutable_ranks(0)->set_host_name("\x1b[2J");
  EXPECT_TRUE(absl::IsDataLoss(CheckJobStats(stats)));
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = MakeJob(1, 1);
  EXPECT_TRUE(CheckJobList(jobs).ok());
  jobs.mutable_jobs(0)->set_job_name("\x1b");
  EXPECT_TRUE(absl::IsDataLoss(CheckJobList(jobs)));
  jobs.mutable_jobs(0)->set_job_name("job");
  jobs.mutable_jobs(0)->set_lost_rank_count(-1);
  EXPECT_TRUE(absl::IsDataLoss(CheckJobList(jobs)));
  v1::ListNodesResponse node;
  EXPECT_TRUE(absl::IsDataLoss(CheckNode(node)));
  node.add_nodes()->set_version("1");
  EXPECT_TRUE(CheckNode(node).ok());
  node.mutable_nodes(0)->set_version("\n");
  EXPECT_TRUE(absl::IsDataLoss(CheckNode(node)));
}

TEST(MergeNodes, SilentOnesKeepWhatTheStoreKnows) {
  v1::ListNodesResponse self;
  self.add_nodes()->set_version("1.2.3");
  Parts<v1::ListNodesResponse> parts;
  AddPart(parts, "a", &self);
  AddPart<v1::ListNodesResponse>(parts, "b", nullptr);
  store::v1::StoredNode stored;
  stored.set_node_name("b");
  stored.set_version("0.9");
  const auto merged = MergeNodes(std::move(parts), {stored});
  ASSERT_EQ(merged.nodes_size(), 2);
  EXPECT_EQ(merged.nodes(0).version(), "1.2.3");
  EXPECT_EQ(merged.nodes(1).version(), "0.9");
  EXPECT_EQ(merged.nodes(1).answer().node_name(), "b");
}

v1::GetPolicyResponse Policy(const std::vector<std::pair<int, v1::State>>& ranks) {
  v1::GetPolicyResponse response;
  v1::PolicyStatus& status = *response.mutable_status();
  *status.mutable_job() = MakeJob(static_cast<int>(ranks.size()), 2);
  for (const auto& [number, state] : ranks) {
    v1::RankPolicy& rank = *status.add_ranks();
    rank.set_rank(number);
    rank.set_state(state);
  }
  return response;
}

TEST(MergePolicyParts, EachRankIsThereOnceAndTheRunningOneIsShown) {
  const auto a = Policy({{1, v1::STATE_LOST}, {0, v1::STATE_RUNNING}}), b = Policy({{1, v1::STATE_RUNNING}});
  Parts<v1::GetPolicyResponse> parts;
  AddPart(parts, "a", &a);
  AddPart(parts, "b", &b);
  const auto merged = MergePolicyParts(std::move(parts));
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->status().ranks_size(), 2);
  EXPECT_EQ(merged->status().ranks(0).rank(), 0);
  EXPECT_EQ(merged->status().ranks(1).rank(), 1);
  EXPECT_EQ(merged->status().ranks(1).state(), v1::STATE_RUNNING);
}

TEST(MergePolicyParts, NodesAreThoseThatWereAskedHere) {
  auto other = Policy({{0, v1::STATE_RUNNING}});
  other.mutable_status()->add_nodes()->set_node_name("its own word");
  Parts<v1::GetPolicyResponse> parts;
  AddPart<v1::GetPolicyResponse>(parts, "here", nullptr);
  AddPart(parts, "b", &other);
  const auto merged = MergePolicyParts(std::move(parts));
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->status().nodes_size(), 2);
  EXPECT_EQ(merged->status().nodes(0).node_name(), "here");
}

TEST(CheckPolicyPart, RefusesWhatNoDaemonSays) {
  EXPECT_TRUE(CheckPolicyPart(Policy({{0, v1::STATE_RUNNING}, {1, v1::STATE_LOST}})).ok());
  EXPECT_FALSE(CheckPolicyPart(Policy({{0, v1::STATE_RUNNING}, {0, v1::STATE_LOST}})).ok());
  EXPECT_FALSE(CheckPolicyPart(Policy({{-1, v1::STATE_RUNNING}})).ok());
  auto escape = Policy({{0, v1::STATE_RUNNING}});
  escape.mutable_status()->mutable_ranks(0)->set_node_name("\x1b[1m");
  EXPECT_FALSE(CheckPolicyPart(escape).ok());
}

}  // namespace
}  // namespace gradgate
