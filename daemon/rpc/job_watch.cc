#include "daemon/rpc/job_watch.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/time/clock.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/stats_questions.h"

namespace gradgate {
namespace {

// Of a clock that nobody sets.
absl::Time SteadyNow() { return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace

void JobWatch::Ask() {
  absl::StatusOr<WindowsQuestion> question = QuestionOfWindows(job_.Question(), tokens_, registry_);
  if (!question.ok()) return Take(question.status());
  const auto asking =
      std::make_shared<WindowsAsking>(question->part, peers_, std::move(question->question),
                                      [self = shared_from_this()](auto answer) { self->Take(std::move(answer)); });
  bool ending;
  {
    MutexLock lock(&mutex_);
    ending = end_.has_value();
    woken_ = false;
    if (!ending) asking_ = asking;
  }
  if (ending) return FinishEnded();
  const double nodes = static_cast<double>(job_.node_count());
  const absl::Duration fair = absl::Seconds(nodes * static_cast<double>(hub_->watcher_count()) / kMostCalls);
  asked_ = SteadyNow();
  ask_after_ = asked_ + std::max(kLeastRest, fair);
  asking->Start(absl::Now() + kQuestionTime);
}

void JobWatch::Take(absl::StatusOr<v1::ListWindowsResponse> answer) {
  std::shared_ptr<WindowsAsking> done;  // it holds this object
  {
    MutexLock lock(&mutex_);
    done = std::move(asking_);
    asking_ = nullptr;
  }
  if (ending()) return FinishEnded();
  news_ = job_.Take(std::move(answer), SteadyNow());
  written_count_ = 0;
  rest_ = news_.messages.empty() ? std::min(2 * rest_, kLongestRest) : kLeastRest;
  ask_by_ = std::max(ask_after_, asked_ + rest_);
  WriteOrGoOn();
}

void JobWatch::WriteOrGoOn() {
  if (ending()) return FinishEnded();
  if (written_count_ < news_.messages.size()) return StartWrite(&news_.messages[written_count_++]);
  if (news_.end) return Finish(ToGrpc(*news_.end));
  if (!news_.more) return Rest(ask_after_ - SteadyNow());
  if (news_.messages.empty()) return Rest(absl::ZeroDuration());  // not within itself
  Ask();
}

void JobWatch::Rest(absl::Duration longest) {
  const auto alarm = std::make_shared<grpc::Alarm>();
  std::shared_ptr<grpc::Alarm> former;  // let go without the lock
  {
    MutexLock lock(&mutex_);
    former = std::exchange(alarm_, alarm);
  }
  const gpr_timespec due = gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(std::max<int64_t>(absl::ToInt64Nanoseconds(longest), 0), GPR_TIMESPAN));
  // An alarm keeps its callback when it has rung, and this object keeps the alarm.
  alarm->Set(due, [self = shared_from_this()](bool) mutable { std::exchange(self, nullptr)->Rested(); });
  if (ending()) alarm->Cancel();  // it came before the alarm was set
}

void JobWatch::Rested() {
  if (ending()) return FinishEnded();
  bool woken;
  {
    MutexLock lock(&mutex_);
    woken = woken_;
  }
  const absl::Time now = SteadyNow();
  if (news_.more || now >= ask_by_ || (woken && now >= ask_after_)) return Ask();
  Rest(std::min(kLeastRest, ask_by_ - now));
}

void JobWatch::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
}

void JobWatch::ShutDown() { End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down")); }

void JobWatch::OnWriteDone(bool ok) {
  if (!ok) End(grpc::Status(grpc::StatusCode::CANCELLED, "the watcher is gone"));
  WriteOrGoOn();
}

void JobWatch::OnCancel() { End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the watcher")); }

void JobWatch::End(const grpc::Status& status) {
  std::shared_ptr<WindowsAsking> asking;
  std::shared_ptr<grpc::Alarm> alarm;
  {
    MutexLock lock(&mutex_);
    if (end_) return;
    end_ = status;
    asking = asking_;
    alarm = alarm_;
  }
  if (asking != nullptr) asking->Cancel();
  if (alarm != nullptr) alarm->Cancel();
}

void JobWatch::FinishEnded() {
  grpc::Status status;
  {
    MutexLock lock(&mutex_);
    status = *end_;
  }
  Finish(status);
}

}  // namespace gradgate
