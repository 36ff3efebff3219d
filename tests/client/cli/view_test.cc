// What gradgatectl shows, to the letter.

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/job_view.h"
#include "client/cli/node_view.h"
#include "client/cli/problems.h"
#include "client/cli/window_view.h"
#include "client/cli/wrap.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/samples.h"

namespace gradgate::cli {
namespace {

using gradgate::testing::SampleJob;
using gradgate::testing::SampleNow;
using gradgate::testing::SampleStats;
using gradgate::testing::SampleWindow;
using ::testing::HasSubstr;

// A file of golden/, to the letter.
std::string Golden(const std::string& name) {
  std::ifstream file(std::string(GOLDEN_DIR "/") + name);
  EXPECT_TRUE(file.is_open()) << name;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

TEST(StatusView, OfAHealthyJob) { EXPECT_EQ(StatusView(SampleStats("digits"), SampleNow()), Golden("status.txt")); }

TEST(StatusView, SaysWhatIsWrongBelowTheHeadLine) {
  v1::GetJobStatsResponse stats = SampleStats("digits");
  stats.mutable_ranks(0)->set_state(v1::STATE_FAILED);
  stats.mutable_ranks(1)->set_state(v1::STATE_LOST);
  for (v1::RankStats& rank : *stats.mutable_ranks()) rank.mutable_totals()->set_window_disagreed_count(3);
  v1::SyncTotals& totals = *stats.mutable_ranks(1)->mutable_totals();
  totals.set_window_mismatched_count(2);
  totals.set_refused_count(1);
  totals.set_warning_count(4);
  totals.set_event_missed_count(500);
  totals.set_window_missed_count(6);
  stats.mutable_ranks(0)->add_collectives()->set_failed_count(1);
  EXPECT_EQ(JobProblems(stats),
            "! lost, ended without a goodbye: rank 1\n"
            "! failed, ended with an error: rank 0\n"
            "! windows whose issued reductions differ from the intended ones: 2 on rank 1\n"
            "! windows in which ranks disagreed: 3 on ranks 0-1\n"
            "! steps refused: 1 on rank 1\n"
            "! warnings: 4 on rank 1\n"
            "! events missed: 500 on rank 1\n"
            "! window records missed: 6 on rank 1\n"
            "! collectives failed: 1 on rank 0\n");
  EXPECT_THAT(StatusView(stats, SampleNow()), HasSubstr("for 1m23s\n! lost, ended without a goodbye: rank 1\n"));
}

TEST(StatusView, TellsReductionsOfEachRoleApart) {
  v1::GetJobStatsResponse stats = SampleStats("hsdp");
  for (v1::RankStats& rank : *stats.mutable_ranks()) {
    rank.mutable_roles(0)->set_group(v1::GROUP_ROLE_REPLICATE);
    v1::RoleTotals& shard = *rank.add_roles();
    shard.set_group(v1::GROUP_ROLE_SHARD);
    shard.set_issued_count(4 * rank.totals().step_count());
  }
  stats.mutable_totals()->set_reduction_issued_count(5 * stats.totals().step_count());
  EXPECT_THAT(StatusView(stats, SampleNow()), HasSubstr("5.00  shard 4.00, replicate 1.00\n"));
}

TEST(StatusView, OfAJobWithoutAStepHasNoRatio) {
  v1::GetJobStatsResponse stats;
  *stats.mutable_job() = SampleJob("digits");
  stats.add_ranks();
  EXPECT_THAT(StatusView(stats, SampleNow()), HasSubstr("reductions per optimizer step           -\n"));
}

TEST(JobHeadLine, OfAnEndedJobHasItsOwnDuration) {
  v1::Job job = SampleJob("digits");
  job.set_state(v1::STATE_FINISHED);
  job.mutable_end_time()->set_seconds(job.start_time().seconds() + 7);
  EXPECT_THAT(JobHeadLine(job, SampleNow()), HasSubstr("for 7.0s\n"));
}

TEST(JobsView, NamesJobsWithLostRanksFirst) {
  v1::ListJobsResponse response;
  *response.add_jobs() = SampleJob("digits");
  v1::Job& bad = *response.add_jobs();
  bad = SampleJob("ev\x1bil");
  bad.set_state(v1::STATE_LOST);
  bad.set_running_rank_count(0);
  bad.set_lost_rank_count(2);
  bad.set_accumulate(0);
  EXPECT_EQ(JobsView(response, SampleNow()), Golden("jobs.txt"));
}

// A healthy one, one that is silent, one with an odd answer.
template <typename Response>
void AddNodes(Response* response) {
  v1::NodeAnswer& a = *response->add_nodes();
  a.set_node_name("a");
  a.set_answered(true);
  v1::NodeAnswer& b = *response->add_nodes();
  b.set_node_name("b");
  b.set_address("10.0.0.2:9766");
  b.set_error("did not answer within 2s");
  v1::NodeAnswer& c = *response->add_nodes();
  c.set_node_name("c\x1b");
  c.set_address("10.0.0.3:9766");
  c.set_answered(true);
  c.set_note("also claims rank 1, taken from node a");
}

TEST(NodeProblems, AreSaidOnAllViews) {
  const std::string lines =
      "! node b at 10.0.0.2:9766 did not answer within 2s: its ranks are missing here\n"
      "! node c\\x1b at 10.0.0.3:9766: also claims rank 1, taken from node a\n";
  v1::GetJobStatsResponse stats = SampleStats("digits");
  AddNodes(&stats);
  stats.mutable_ranks(0)->set_node_name("a");
  stats.mutable_ranks(1)->set_node_name("c");
  const std::string status = StatusView(stats, SampleNow());
  EXPECT_THAT(status, HasSubstr("for 1m23s\n" + lines));
  EXPECT_THAT(status, HasSubstr("host    node\n"));
  EXPECT_THAT(status, HasSubstr("node-a  c\n"));
  v1::ListJobsResponse jobs;
  AddNodes(&jobs);
  EXPECT_EQ(JobsView(jobs, SampleNow()).find(lines + "no job yet"), 0u);
  v1::ListWindowsResponse windows;
  AddNodes(&windows);
  EXPECT_EQ(WindowsView(windows), lines + "no closed window kept\n");
  *windows.add_windows() = SampleWindow(1);
  EXPECT_EQ(WindowsView(windows).find(lines), 0u);
}

TEST(NodeProblems, OfADaemonWithoutAStoreOnlyWhereRanksAreMissing) {
  v1::GetJobStatsResponse stats = SampleStats("digits");
  v1::NodeAnswer& self = *stats.add_nodes();
  self.set_answered(true);
  self.set_note("no common store");
  EXPECT_THAT(StatusView(stats, SampleNow()), ::testing::Not(HasSubstr("no common store")));
  stats.mutable_job()->set_world_size(4);
  EXPECT_THAT(StatusView(stats, SampleNow()), HasSubstr("! ranks of other nodes are missing here: no common store\n"));
}

TEST(NodesView, HasARowForEachDaemon) {
  v1::ListNodesResponse response;
  v1::Node& a = *response.add_nodes();
  a.mutable_answer()->set_node_name("a");
  a.mutable_answer()->set_answered(true);
  a.set_version("0.1.0");
  a.mutable_start_time()->set_seconds(absl::ToUnixSeconds(SampleNow()) - 3600);
  for (int i = 0; i < 6; ++i) *a.add_jobs() = SampleJob(absl::StrCat("digits", i));
  v1::Node& b = *response.add_nodes();
  b.mutable_answer()->set_node_name("b");
  b.mutable_answer()->set_address("10.0.0.2:9766");
  b.mutable_answer()->set_answered(true);
  b.mutable_answer()->mutable_answer_duration()->set_nanos(1'250'000);
  v1::Node& c = *response.add_nodes();
  c.mutable_answer()->set_node_name("c");
  c.mutable_answer()->set_address("10.0.0.3:9766");
  c.mutable_answer()->set_error("cannot be reached: connection refused");
  c.set_version("0.0.9");
  response.set_store("etcd://10.0.0.9:2379");
  response.set_store_shared(true);
  EXPECT_EQ(NodesView(response, SampleNow()), Golden("nodes.txt"));
  for (v1::Job& job : *response.mutable_nodes(0)->mutable_jobs()) job.set_state(v1::STATE_FINISHED);
  response.mutable_nodes(0)->mutable_jobs(5)->set_state(v1::STATE_RUNNING);
  EXPECT_THAT(NodesView(response, SampleNow()), HasSubstr("digits5")) << "one that runs is not left out";
  response.set_store_shared(false);
  response.set_store_trouble("no answer since noon");
  EXPECT_THAT(NodesView(response, SampleNow()), HasSubstr("! store: no answer since noon\n"));
  EXPECT_THAT(NodesView(response, SampleNow()), HasSubstr("of this daemon alone"));
  EXPECT_THAT(NodesView({}, SampleNow()), HasSubstr("store: none\n"));
}

TEST(JobsView, OfNoJobSaysSoAndHowOneGetsThere) {
  EXPECT_EQ(JobsView({}, SampleNow()),
            "no job yet: a trainer appears once it attaches; it must run on this node and find this daemon's directory, by "
            "GRADGATE_DIR where gradgated has --dir\n");
}

v1::Window BadWindow() {
  v1::Window window = SampleWindow(126);
  window.set_complete(false);
  v1::RankWindow& rank = *window.mutable_ranks(1);
  rank.set_kind(v1::WINDOW_KIND_EMPTY);
  rank.set_micro_step_count(0);
  rank.set_planned_micro_step_count(0);
  rank.set_last_reduction_at(0);
  rank.set_reduction_issued_count(2);
  rank.set_reduction_late_count(1);
  rank.set_late(true);
  rank.set_mismatched(true);
  rank.set_disagreed(true);
  rank.set_unstepped(true);
  rank.set_failed(true);
  for (v1::RankWindow& each : *window.mutable_ranks()) each.set_min_micro_step_count(0);
  return window;
}

TEST(WindowsView, HasARowForEachRankAndWhatIsWrongAboveThem) {
  v1::ListWindowsResponse response;
  *response.add_windows() = SampleWindow(124);
  *response.add_windows() = SampleWindow(125);
  response.mutable_windows(0)->mutable_ranks(0)->set_disagreed(true);
  *response.add_windows() = BadWindow();
  EXPECT_EQ(WindowsView(response), Golden("windows.txt"));
}

TEST(WindowsView, OfNoWindowSaysSo) { EXPECT_EQ(WindowsView({}), "no closed window kept\n"); }

// Tables fit without being wrapped: a line of theirs that is too wide would be broken below itself.
void ExpectFits(const std::string& text, size_t width) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool prose = line.find("run ") != std::string::npos || line[0] == '!' || line[0] == '(' || line[0] == 's';
    if (!prose) {
      EXPECT_LE(Width(line), width) << text;
    }
  }
}

TEST(Views, FitTheTerminal) {
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = SampleJob("a-job-with-a-name-that-somebody-took-great-pains-to-find-v2");
  jobs.mutable_jobs(0)->set_sync_mode(v1::SYNC_MODE_EVERY_MICRO_STEP);
  v1::GetJobStatsResponse stats = SampleStats("digits");
  AddNodes(&stats);
  for (v1::RankStats& rank : *stats.mutable_ranks()) {
    rank.set_host_name("a-host-with-a-long-name.example.org");
    rank.set_node_name("a-node-with-a-long-name.example.org");
  }
  v1::ListWindowsResponse windows;
  *windows.add_windows() = BadWindow();
  v1::ListNodesResponse nodes;
  *nodes.add_nodes()->mutable_answer() = stats.nodes(1);
  nodes.mutable_nodes(0)->mutable_answer()->set_answered(true);
  for (int i = 0; i < 6; ++i) *nodes.mutable_nodes(0)->add_jobs() = SampleJob(absl::StrCat("digits", i));
  for (const size_t width : {80, 100, 120, 300}) {
    ExpectFits(JobsView(jobs, SampleNow(), width), width);
    ExpectFits(StatusView(stats, SampleNow(), width), width);
    ExpectFits(WindowsView(windows, width), width);
    ExpectFits(NodesView(nodes, SampleNow(), width), width);
  }
  EXPECT_THAT(JobsView(jobs, SampleNow(), 80), HasSubstr("  3f2a91c0\n"));
  EXPECT_THAT(WindowsView(windows, 80), HasSubstr("unstepped,"));
  EXPECT_EQ(StatusView(stats, SampleNow(), 300), StatusView(stats, SampleNow()));
}

TEST(WatchView, KeepsItsColumnsOnANarrowTerminal) {
  WatchView view(80);
  const std::string header = view.Header();
  v1::WatchWindowsResponse message;
  *message.mutable_window() = BadWindow();
  const std::string rows = view.Next(message, SampleNow());
  ExpectFits(header + rows, 80);
  EXPECT_THAT(header, ::testing::StartsWith("(left out: min-max, late, bytes; a wider terminal"));
}

TEST(WatchView, ShowsRowsThenWhatIsWrongThenTheEnd) {
  WatchView view;
  v1::WatchWindowsResponse message;
  *message.mutable_window() = BadWindow();
  message.set_skipped_count(3);
  v1::WatchWindowsResponse end;
  *end.mutable_ended_job() = SampleJob("digits");
  end.mutable_ended_job()->set_state(v1::STATE_LOST);
  std::string shown = view.Header();
  shown += view.Next(message, SampleNow());
  shown += view.Next(end, SampleNow());
  EXPECT_EQ(shown, Golden("watch.txt"));
}

TEST(WatchView, SaysOfNodesWhatHasChangedAlone) {
  WatchView view;
  v1::WatchWindowsResponse message;
  for (const char* name : {"a", "b", "c"}) {
    v1::NodeAnswer& node = *message.add_nodes();
    node.set_node_name(name);
    node.set_answered(true);
  }
  EXPECT_EQ(view.Next(message, SampleNow()), "");
  message.mutable_nodes(1)->set_answered(false);
  message.mutable_nodes(1)->set_error("did not answer\x1b within 1s");
  const std::string silent = "! node b did not answer\\x1b within 1s: its ranks are missing here\n";
  EXPECT_EQ(view.Next(message, SampleNow()), silent);
  message.mutable_nodes(2)->set_note("odd");
  EXPECT_EQ(view.Next(message, SampleNow()), "! node c: odd\n");
  EXPECT_EQ(view.Next(message, SampleNow()), "");
  message.mutable_nodes(1)->set_answered(true);
  message.mutable_nodes()->RemoveLast();
  EXPECT_EQ(view.Next(message, SampleNow()), "node b answers again\n! node c has left the store: it is no longer asked\n");
  message.mutable_nodes(1)->set_answered(false);
  EXPECT_EQ(view.Next(message, SampleNow()), silent);
  *message.mutable_window() = SampleWindow(124);
  message.clear_nodes();
  EXPECT_EQ(view.Next(message, SampleNow()).find("node"), std::string::npos);
}

TEST(WatchView, ALoneDaemonSaysThatRanksAreMissing) {
  WatchView view;
  v1::WatchWindowsResponse message;
  message.add_nodes()->set_answered(true);
  message.mutable_nodes(0)->set_note("no common store");
  EXPECT_EQ(view.Next(message, SampleNow()), "! ranks of other nodes are missing here: no common store\n");
}

}  // namespace
}  // namespace gradgate::cli
