#include "daemon/rpc/plan_asking.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/planner/answer.h"
#include "daemon/node/job_selector.h"
#include "daemon/planner/measure.h"
#include "daemon/planner/samples.h"
#include "daemon/rpc/stats_questions.h"

namespace gradgate {
namespace {

constexpr int32_t kWindows = 2 * planner::kLatestWindows;  // some are of no use

using StatsAsking = JobAsking<v1::GetJobStatsRequest, v1::GetJobStatsResponse>;
using WindowsAsking = JobAsking<v1::ListWindowsRequest, v1::ListWindowsResponse>;

template <typename Nodes>
void AddNodes(const Nodes& more, Nodes* all) {
  for (const v1::NodeAnswer& node : more) {
    const auto same = std::find_if(all->begin(), all->end(),
                                   [&](const v1::NodeAnswer& other) { return other.node_name() == node.node_name(); });
    if (same == all->end()) {
      *all->Add() = node;
    } else if (same->answered() && !node.answered()) {
      *same = node;
    }
  }
}

}  // namespace

template <typename Question>
void PlanAsking::Ask(std::shared_ptr<Question> question) {
  bool cancelled;
  {
    MutexLock lock(&mutex_);
    cancelled = cancelled_;
    if (!cancelled) cancel_ = [question] { question->Cancel(); };
  }
  if (cancelled) return done_(absl::CancelledError("nobody waits for the answer any longer"));
  question->Start(caller_deadline_);
}

// The question holds this object, and is let go.
void PlanAsking::Answered() {
  std::function<void()> former;
  MutexLock lock(&mutex_);
  former = std::exchange(cancel_, nullptr);
}

void PlanAsking::Start(absl::Time caller_deadline) {
  if (request_.job().empty()) return done_(planner::AnswerFromNumbers(request_));
  caller_deadline_ = caller_deadline;
  v1::GetJobStatsRequest asked;
  asked.set_job(request_.job());
  asked.set_scope(request_.scope());
  Ask(std::make_shared<StatsAsking>(asked, peers_, StatsQuestion(registry_),
                                    [self = shared_from_this()](auto stats) { self->TakeStats(std::move(stats)); }));
}

void PlanAsking::TakeStats(absl::StatusOr<v1::GetJobStatsResponse> stats) {
  Answered();
  if (!stats.ok()) return done_(stats.status());
  stats_ = *std::move(stats);
  v1::ListWindowsRequest asked;
  asked.set_job(FormatJobSelector(stats_.job().user_id(), stats_.job().run_id()));
  asked.set_scope(request_.scope());
  asked.set_page_size(kWindows);
  asked.set_newest_first(true);
  absl::StatusOr<WindowsQuestion> question = QuestionOfWindows(asked, tokens_, registry_);
  if (!question.ok()) return done_(question.status());
  Ask(std::make_shared<WindowsAsking>(question->part, peers_, std::move(question->question),
                                      [self = shared_from_this()](auto windows) { self->TakeWindows(std::move(windows)); }));
}

void PlanAsking::TakeWindows(absl::StatusOr<v1::ListWindowsResponse> windows) {
  Answered();
  if (!windows.ok()) return done_(windows.status());
  if (!SameJob(stats_.job(), windows->job())) {
    return done_(absl::FailedPreconditionError(
        absl::StrCat("run ", stats_.job().run_id(), " was started anew meanwhile; ask again after some windows")));
  }
  const std::vector<v1::Window> latest(windows->windows().begin(), windows->windows().end());
  absl::StatusOr<v1::PlanSyncResponse> plan = planner::PlanJob(request_, stats_, latest);
  if (!plan.ok()) return done_(plan.status());
  *plan->mutable_nodes() = stats_.nodes();
  AddNodes(windows->nodes(), plan->mutable_nodes());
  done_(std::move(plan));
}

void PlanAsking::Cancel() {
  std::function<void()> cancel;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    cancel = cancel_;
  }
  if (cancel) cancel();
}

}  // namespace gradgate
