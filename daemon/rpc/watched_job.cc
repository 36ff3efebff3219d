#include "daemon/rpc/watched_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/job_selector.h"
#include "daemon/rpc/job_choice.h"

namespace gradgate {
namespace {

constexpr int64_t kMaxPage = 64;
constexpr int64_t kPageRecords = 4096;  // windows of single ranks

int64_t RankCount(const v1::Job& job) {
  return int64_t{job.running_rank_count()} + job.finished_rank_count() + job.lost_rank_count() + job.failed_rank_count();
}

bool AnySilent(const v1::ListWindowsResponse& answer) {
  return std::any_of(answer.nodes().begin(), answer.nodes().end(), [](const auto& node) { return !node.answered(); });
}

// But for how long it took, and in whose words an error came.
bool Alike(const v1::NodeAnswer& a, const v1::NodeAnswer& b) {
  return a.node_name() == b.node_name() && a.address() == b.address() && a.answered() == b.answered() && a.note() == b.note();
}

}  // namespace

v1::ListWindowsRequest WatchedJob::Question() const {
  v1::ListWindowsRequest question;
  question.set_job(selector_);
  question.set_scope(v1::SCOPE_JOB);
  if (phase_ == Phase::kFinding) {
    question.set_page_size(1);
    question.set_newest_first(true);
    return question;
  }
  question.set_page_size(static_cast<int32_t>(std::clamp<int64_t>(kPageRecords / std::max(job_.world_size(), 1), 1, kMaxPage)));
  question.set_from_window_index(phase_ == Phase::kFollowing ? next_index_ : behind_index_);
  return question;
}

WatchedJob::News WatchedJob::Take(absl::StatusOr<v1::ListWindowsResponse> answer, absl::Time now) {
  if (!answer.ok()) return TakeError(answer.status(), now);
  if (phase_ != Phase::kFinding && answer->job().user_id() != job_.user_id()) {
    return TakeError(absl::NotFoundError(absl::StrCat("run ", selector_, " is another user's on the nodes that answered")),
                     now);
  }
  nobody_since_.reset();
  News news;
  if (phase_ != Phase::kFinding && !SameJob(job_, answer->job())) {  // its launcher has restarted it
    *news.messages.emplace_back().mutable_ended_job() = job_;
    if (job_.state() == v1::STATE_RUNNING) news.messages.back().mutable_ended_job()->clear_state();  // its end was not seen
    news.end = absl::OkStatus();
    return news;
  }
  const bool ranks_came = TakeNodes(*answer, &news);
  job_ = answer->job();
  if (phase_ == Phase::kFinding) {
    Find(*answer);
    news.more = true;
    return news;
  }
  if ((ranks_came || answer->closed_by_running_index() > lagging_index_) && !remembered_.empty()) {
    phase_ = Phase::kCatchingUp;
    behind_index_ = remembered_.begin()->first;
    lagging_index_ = INT64_MAX;  // until the end of it
    news.more = true;
    return news;
  }
  if (phase_ == Phase::kCatchingUp) {
    CatchUp(*answer, &news);
  } else {
    Follow(*answer, now, &news);
  }
  return news;
}

WatchedJob::News WatchedJob::TakeError(const absl::Status& status, absl::Time now) {
  News news;
  if (phase_ == Phase::kFinding || !absl::IsNotFound(status) || (nobody_since_ && now - *nobody_since_ >= kPatience)) {
    news.end = status;
    return news;
  }
  if (!nobody_since_ && !nodes_.empty()) {
    nobody_since_ = now;
    nodes_.front().set_note(std::string(status.message()));
    v1::WatchWindowsResponse& message = news.messages.emplace_back();
    for (const v1::NodeAnswer& node : nodes_) *message.add_nodes() = node;
  }
  return news;
}

bool WatchedJob::TakeNodes(v1::ListWindowsResponse& answer, News* news) {
  const int64_t rank_count = RankCount(answer.job());
  // A daemon without a common store is of interest where ranks are missing alone.
  if (answer.nodes_size() == 1 && rank_count >= answer.job().world_size()) answer.mutable_nodes(0)->clear_note();
  const auto answered_before = [&](const v1::NodeAnswer& node) {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [&](const auto& other) { return other.node_name() == node.node_name() && other.answered(); });
  };
  const bool came =
      rank_count > rank_count_ || std::any_of(answer.nodes().begin(), answer.nodes().end(),
                                              [&](const auto& node) { return node.answered() && !answered_before(node); });
  rank_count_ = rank_count;
  if (!std::equal(nodes_.begin(), nodes_.end(), answer.nodes().begin(), answer.nodes().end(), Alike)) {
    *news->messages.emplace_back().mutable_nodes() = answer.nodes();
  }
  nodes_.assign(answer.nodes().begin(), answer.nodes().end());
  return came;
}

void WatchedJob::Find(const v1::ListWindowsResponse& answer) {
  selector_ = FormatJobSelector(job_.user_id(), job_.run_id());
  const int64_t after_newest = answer.windows().empty() ? 0 : answer.windows(0).window_index() + 1;
  begun_ = !first_index_.has_value();
  next_index_ = first_index_.value_or(std::min(answer.closed_by_running_index(), after_newest));
  phase_ = Phase::kFollowing;
}

void WatchedJob::Follow(v1::ListWindowsResponse& answer, absl::Time now, News* news) {
  if (!begun_ && !answer.windows().empty()) next_index_ = answer.windows(0).window_index();
  begun_ = true;
  bool held = false;
  for (v1::Window& window : *answer.mutable_windows()) {
    const int64_t index = window.window_index();
    held = index >= answer.closed_by_running_index();
    if (held) break;
    Remember(window);
    v1::WatchWindowsResponse& message = news->messages.emplace_back();
    message.set_skipped_count(index - next_index_);
    message.mutable_window()->Swap(&window);
    next_index_ = index + 1;
  }
  news->more = !held && !answer.next_page_token().empty();
  if (!held && !news->more && job_.state() != v1::STATE_RUNNING) {
    End(answer, now, news);
  } else {
    ended_since_.reset();
  }
}

void WatchedJob::End(const v1::ListWindowsResponse& answer, absl::Time now, News* news) {
  if (!ended_since_) ended_since_ = now;
  const bool may_go_on = AnySilent(answer) && rank_count_ < job_.world_size();
  if (may_go_on && now - *ended_since_ < kPatience) return;
  *news->messages.emplace_back().mutable_ended_job() = job_;
  news->end = absl::OkStatus();
}

void WatchedJob::CatchUp(v1::ListWindowsResponse& answer, News* news) {
  for (v1::Window& window : *answer.mutable_windows()) {
    const int64_t index = window.window_index();
    behind_index_ = index + 1;
    const auto told = index < next_index_ ? remembered_.find(index) : remembered_.end();
    if (told == remembered_.end()) continue;
    v1::WatchWindowsResponse message;
    message.mutable_window()->set_window_index(index);
    message.mutable_window()->set_complete(window.complete());
    for (v1::RankWindow& rank : *window.mutable_ranks()) {
      if (told->second.insert(rank.rank()).second) message.mutable_window()->add_ranks()->Swap(&rank);
    }
    remembered_count_ += static_cast<size_t>(message.window().ranks_size());
    if (message.window().ranks_size() > 0) {
      message.set_skipped_count(std::exchange(forgotten_count_, 0));
      news->messages.push_back(std::move(message));
    }
    if (told->second.size() < static_cast<size_t>(std::max(job_.world_size(), 0))) continue;
    remembered_count_ -= told->second.size();
    remembered_.erase(told);
  }
  news->more = true;
  if (!answer.next_page_token().empty() && behind_index_ < next_index_) return;
  phase_ = Phase::kFollowing;
  lagging_index_ = answer.closed_by_running_index() < next_index_ ? answer.closed_by_running_index() : INT64_MAX;
}

void WatchedJob::Remember(const v1::Window& window) {
  if (window.ranks_size() >= job_.world_size()) return;
  std::set<int32_t>& ranks = remembered_[window.window_index()];
  for (const v1::RankWindow& rank : window.ranks()) ranks.insert(rank.rank());
  remembered_count_ += ranks.size();
  while (remembered_count_ > kRemembered && remembered_.size() > 1) {
    remembered_count_ -= remembered_.begin()->second.size();
    remembered_.erase(remembered_.begin());
    ++forgotten_count_;
  }
}

}  // namespace gradgate
