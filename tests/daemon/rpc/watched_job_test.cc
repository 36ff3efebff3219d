#include "daemon/rpc/watched_job.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const char kRun[] = "0123456789abcdef0123456789abcdef";

// Two nodes with two ranks each, as a merge over them would answer.
class Nodes {
 public:
  struct Node {
    std::string name;
    bool answers = true;
    std::vector<int64_t> closed;  // by rank: windows below
  };
  std::vector<Node> nodes = {{"a", true, {0, 0}}, {"b", true, {0, 0}}};
  int64_t oldest = 0;
  v1::State state = v1::STATE_RUNNING;
  int attempt = 0;
  int user_id = 1000;

  void Close(size_t node, int64_t below) {
    for (int64_t& closed : nodes[node].closed) closed = below;
  }
  void CloseAll(int64_t below) {
    for (size_t node = 0; node < nodes.size(); ++node) Close(node, below);
  }

  v1::ListWindowsResponse Answer(const v1::ListWindowsRequest& asked) const {
    v1::ListWindowsResponse answer;
    v1::Job& job = *answer.mutable_job();
    job.set_run_id(kRun);
    job.set_job_name("job");
    job.set_attempt(attempt);
    job.set_user_id(user_id);
    job.set_world_size(4);
    job.set_state(state);
    int64_t newest = -1, closed_by_running = INT64_MAX;
    int rank_count = 0;
    for (const Node& node : nodes) {
      v1::NodeAnswer& told = *answer.add_nodes();
      told.set_node_name(node.name);
      told.set_answered(node.answers);
      if (!node.answers) continue;
      rank_count += static_cast<int>(node.closed.size());
      for (const int64_t closed : node.closed) {
        newest = std::max(newest, closed - 1);
        if (state == v1::STATE_RUNNING) closed_by_running = std::min(closed_by_running, closed);
      }
    }
    job.set_running_rank_count(rank_count);
    answer.set_closed_by_running_index(closed_by_running);
    if (asked.newest_first()) {
      if (newest >= oldest) AddWindow(newest, &answer);
      return answer;
    }
    const int64_t from = std::max(asked.from_window_index(), oldest), end = from + asked.page_size();
    for (int64_t index = from; index <= newest && index < end; ++index) AddWindow(index, &answer);
    if (newest >= end) answer.set_next_page_token("more");
    return answer;
  }

 private:
  void AddWindow(int64_t index, v1::ListWindowsResponse* answer) const {
    v1::Window& window = *answer->add_windows();
    window.set_window_index(index);
    int rank = 0;
    for (const Node& node : nodes) {
      for (const int64_t closed : node.closed) {
        if (node.answers && index < closed) window.add_ranks()->set_rank(rank);
        ++rank;
      }
    }
    window.set_complete(window.ranks_size() == 4);
  }
};

class WatchedJobTest : public ::testing::Test {
 protected:
  // Asks until it wants to rest, and shows what is told: "w3:0,1,2,3" and "!" behind an incomplete one, "a,-b" of nodes,
  // "+2" windows skipped, "end".
  std::vector<std::string> Ask(WatchedJob& job, absl::Duration later = absl::Seconds(1)) {
    now_ += later;
    std::vector<std::string> told;
    for (int i = 0; i < 1000; ++i) {
      WatchedJob::News news = error_.ok() ? job.Take(nodes_.Answer(job.Question()), now_)
                                          : job.Take(absl::StatusOr<v1::ListWindowsResponse>(error_), now_);
      for (const auto& message : news.messages) told.push_back(Show(message));
      end_ = news.end;
      if (!news.more || news.end) return told;
    }
    ADD_FAILURE() << "it never rests";
    return told;
  }

  static std::string Show(const v1::WatchWindowsResponse& message) {
    std::string text;
    if (message.skipped_count() > 0) absl::StrAppend(&text, "+", message.skipped_count(), " ");
    if (message.has_window()) {
      absl::StrAppend(&text, "w", message.window().window_index(), ":",
                      absl::StrJoin(message.window().ranks(), ",",
                                    [](std::string* out, const auto& rank) { absl::StrAppend(out, rank.rank()); }),
                      message.window().complete() ? "" : "!");
    }
    if (message.nodes_size() > 0) {
      absl::StrAppend(&text, absl::StrJoin(message.nodes(), ",", [](std::string* out, const auto& node) {
        absl::StrAppend(out, node.answered() ? "" : "-", node.node_name(), node.note().empty() ? "" : "?");
      }));
    }
    if (message.has_ended_job()) absl::StrAppend(&text, "end");
    return text;
  }

  WatchedJob FromStart() { return WatchedJob("job", 0); }

  Nodes nodes_;
  absl::Time now_ = absl::UnixEpoch();
  absl::Status error_;
  std::optional<absl::Status> end_;
};

TEST_F(WatchedJobTest, WindowsAreToldOnceEveryRankHasClosedThem) {
  nodes_.CloseAll(2);
  WatchedJob job = FromStart();
  EXPECT_THAT(Ask(job), ElementsAre("a,b", "w0:0,1,2,3", "w1:0,1,2,3"));
  nodes_.Close(0, 3);
  EXPECT_THAT(Ask(job), IsEmpty()) << "the other node's ranks are still in it";
  nodes_.Close(1, 3);
  EXPECT_THAT(Ask(job), ElementsAre("w2:0,1,2,3"));
  EXPECT_THAT(Ask(job), IsEmpty());
}

TEST_F(WatchedJobTest, WithoutAFirstIndexOnlyWhatClosesFromNowOnIsTold) {
  nodes_.CloseAll(5);
  WatchedJob job("job", {});
  EXPECT_THAT(Ask(job), ElementsAre("a,b"));
  nodes_.CloseAll(6);
  EXPECT_THAT(Ask(job), ElementsAre("w5:0,1,2,3"));
  // One that some ranks had closed when the watch began is still to come.
  nodes_.Close(0, 9);
  WatchedJob between("job", {});
  EXPECT_THAT(Ask(between), ElementsAre("a,b"));
  nodes_.Close(1, 9);
  EXPECT_THAT(Ask(between), ElementsAre("w6:0,1,2,3", "w7:0,1,2,3", "w8:0,1,2,3"));
}

TEST_F(WatchedJobTest, ManyWindowsComePageAfterPageWithoutARest) {
  nodes_.CloseAll(300);
  WatchedJob job = FromStart();
  EXPECT_EQ(Ask(job).size(), 301u);
  EXPECT_THAT(Ask(job), IsEmpty());
}

TEST_F(WatchedJobTest, WhatIsGoneBeforeItWasToldIsSkippedButNotAtTheBeginning) {
  nodes_.oldest = 3;
  nodes_.CloseAll(5);
  WatchedJob job = FromStart();
  EXPECT_THAT(Ask(job), ElementsAre("a,b", "w3:0,1,2,3", "w4:0,1,2,3"));
  nodes_.CloseAll(9);
  nodes_.oldest = 7;
  EXPECT_THAT(Ask(job), ElementsAre("+2 w7:0,1,2,3", "w8:0,1,2,3"));
}

TEST_F(WatchedJobTest, AFirstIndexThatIsYetToComeIsWaitedFor) {
  nodes_.CloseAll(2);
  WatchedJob job("job", 3);
  EXPECT_THAT(Ask(job), ElementsAre("a,b"));
  nodes_.CloseAll(4);
  EXPECT_THAT(Ask(job), ElementsAre("w3:0,1,2,3"));
}

TEST_F(WatchedJobTest, ASilentNodeIsNamedAndHoldsNobodyUpAndItsRanksFollowInOrder) {
  nodes_.CloseAll(1);
  WatchedJob job = FromStart();
  EXPECT_THAT(Ask(job), ElementsAre("a,b", "w0:0,1,2,3"));
  nodes_.nodes[1].answers = false;
  nodes_.CloseAll(3);
  EXPECT_THAT(Ask(job), ElementsAre("a,-b", "w1:0,1!", "w2:0,1!"));
  nodes_.CloseAll(4);
  EXPECT_THAT(Ask(job), ElementsAre("w3:0,1!")) << "named once";
  nodes_.nodes[1].answers = true;
  nodes_.CloseAll(5);
  EXPECT_THAT(Ask(job), ElementsAre("a,b", "w1:2,3", "w2:2,3", "w3:2,3", "w4:0,1,2,3"));
  nodes_.nodes[1].answers = false;
  EXPECT_THAT(Ask(job), ElementsAre("a,-b"));
  nodes_.nodes[1].answers = true;
  EXPECT_THAT(Ask(job), ElementsAre("a,b")) << "nothing is told twice";
}

TEST_F(WatchedJobTest, ANodeThatLagsWhenItComesBackIsFollowedToo) {
  WatchedJob job = FromStart();
  Ask(job);
  nodes_.nodes[1].answers = false;
  nodes_.Close(0, 4);
  EXPECT_THAT(Ask(job), ElementsAre("a,-b", "w0:0,1!", "w1:0,1!", "w2:0,1!", "w3:0,1!"));
  nodes_.nodes[1].answers = true;
  nodes_.nodes[1].closed = {2, 1};
  EXPECT_THAT(Ask(job), ElementsAre("a,b", "w0:2,3", "w1:2!"));
  EXPECT_THAT(Ask(job), IsEmpty());
  nodes_.nodes[1].closed = {3, 3};
  EXPECT_THAT(Ask(job), ElementsAre("w1:3", "w2:2,3"));
  nodes_.CloseAll(5);
  EXPECT_THAT(Ask(job), ElementsAre("w3:2,3", "w4:0,1,2,3"));
}

TEST_F(WatchedJobTest, RanksThatADaemonSeesLateFollow) {
  nodes_.nodes[1].closed = {};
  nodes_.Close(0, 2);
  WatchedJob job = FromStart();
  EXPECT_THAT(Ask(job), ElementsAre("a,b", "w0:0,1!", "w1:0,1!"));
  nodes_.nodes[1].closed = {2, 2};  // its daemon was restarted, and reads on
  EXPECT_THAT(Ask(job), ElementsAre("w0:2,3", "w1:2,3"));
}

TEST_F(WatchedJobTest, WhatIsRememberedIsBoundedAndTheRestToldAsSkipped) {
  WatchedJob job = FromStart();
  Ask(job);
  nodes_.nodes[1].answers = false;
  const int64_t fitting = WatchedJob::kRemembered / 2;
  nodes_.CloseAll(fitting + 10);
  Ask(job);
  nodes_.nodes[1].answers = true;
  const std::vector<std::string> told = Ask(job);
  ASSERT_EQ(told.size(), 1u + static_cast<size_t>(fitting));
  EXPECT_EQ(told[1], "+10 w10:2,3");
  EXPECT_EQ(told[2], "w11:2,3");
}

TEST_F(WatchedJobTest, EndsWithTheJobOnceAllIsTold) {
  nodes_.CloseAll(2);
  nodes_.nodes[1].closed = {2, 1};
  WatchedJob job = FromStart();
  EXPECT_THAT(Ask(job), ElementsAre("a,b", "w0:0,1,2,3"));
  EXPECT_FALSE(end_);
  nodes_.state = v1::STATE_LOST;
  EXPECT_THAT(Ask(job), ElementsAre("w1:0,1,2!", "end"));
  EXPECT_EQ(*end_, absl::OkStatus());
}

TEST_F(WatchedJobTest, ASilentNodeMayHaveMoreOfAJobThatSeemsToHaveEndedButNotForEver) {
  nodes_.CloseAll(1);
  nodes_.state = v1::STATE_FINISHED;
  nodes_.nodes[1].answers = false;
  WatchedJob job = FromStart();
  EXPECT_THAT(Ask(job), ElementsAre("a,-b", "w0:0,1!"));
  EXPECT_FALSE(end_);
  EXPECT_THAT(Ask(job, WatchedJob::kPatience - absl::Seconds(1)), IsEmpty());
  EXPECT_THAT(Ask(job, absl::Seconds(1)), ElementsAre("end"));
  // With all ranks seen nobody is waited for.
  nodes_.nodes = {{"a", true, {1, 1, 1, 1}}, {"b", false, {}}};
  WatchedJob other = FromStart();
  EXPECT_THAT(Ask(other), ElementsAre("a,-b", "w0:0,1,2,3", "end"));
}

TEST_F(WatchedJobTest, AnotherAttemptIsAnotherJob) {
  nodes_.CloseAll(1);
  WatchedJob job = FromStart();
  Ask(job);
  nodes_.attempt = 1;
  EXPECT_THAT(Ask(job), ElementsAre("end"));
  EXPECT_EQ(*end_, absl::OkStatus());
}

TEST_F(WatchedJobTest, AnErrorAtTheBeginningEndsIt) {
  error_ = absl::NotFoundError("no job");
  WatchedJob job = FromStart();
  EXPECT_THAT(Ask(job), IsEmpty());
  EXPECT_EQ(*end_, error_);
}

TEST_F(WatchedJobTest, AJobThatNobodyWhoAnswersHasIsWaitedForAWhile) {
  nodes_.CloseAll(1);
  WatchedJob job = FromStart();
  Ask(job);
  error_ = absl::NotFoundError("no job on the nodes that answered");
  EXPECT_THAT(Ask(job), ElementsAre("a?,b"));
  EXPECT_THAT(Ask(job, WatchedJob::kPatience - absl::Seconds(2)), IsEmpty());
  const absl::Status gone = std::exchange(error_, absl::OkStatus());
  nodes_.CloseAll(2);
  EXPECT_THAT(Ask(job), ElementsAre("a,b", "w1:0,1,2,3"));
  error_ = gone;
  EXPECT_THAT(Ask(job), ElementsAre("a?,b"));
  EXPECT_FALSE(end_);
  Ask(job, WatchedJob::kPatience);
  EXPECT_EQ(*end_, error_);
  // Neither can another user who knows the run's id end it.
  error_ = absl::OkStatus();
  WatchedJob claimed = FromStart();
  Ask(claimed);
  nodes_.user_id = 666;
  EXPECT_THAT(Ask(claimed), ElementsAre("a?,b"));
  EXPECT_FALSE(end_);
  nodes_.user_id = 1000;
  WatchedJob other = FromStart();
  Ask(other);
  error_ = absl::InternalError("broken");
  Ask(other);
  EXPECT_EQ(*end_, error_);
}

TEST_F(WatchedJobTest, ALoneDaemonsNoteIsToldWhereRanksAreMissingAlone) {
  nodes_.nodes = {{"a", true, {1, 1, 1, 1}}};
  v1::ListWindowsResponse answer = nodes_.Answer(FromStart().Question());
  answer.mutable_nodes(0)->set_note("no common store");
  WatchedJob whole = FromStart();
  EXPECT_EQ(Show(whole.Take(answer, now_).messages.at(0)), "a");
  answer.mutable_job()->set_running_rank_count(2);
  WatchedJob half = FromStart();
  EXPECT_EQ(Show(half.Take(answer, now_).messages.at(0)), "a?");
}

TEST_F(WatchedJobTest, PagesOfLargeJobsAreSmall) {
  WatchedJob job = FromStart();
  EXPECT_EQ(job.Question().page_size(), 1);
  v1::ListWindowsResponse answer = nodes_.Answer(job.Question());
  job.Take(answer, now_);
  EXPECT_EQ(job.Question().page_size(), 64);
  EXPECT_EQ(job.Question().job(), absl::StrCat("1000/", kRun)) << "whoever else claims the run is not meant";
  answer.mutable_job()->set_world_size(1024);
  job.Take(answer, now_);
  EXPECT_EQ(job.Question().page_size(), 4);
  answer.mutable_job()->set_world_size(16'384);
  job.Take(answer, now_);
  EXPECT_EQ(job.Question().page_size(), 1);
}

}  // namespace
}  // namespace gradgate
