#include "daemon/rpc/window_watch.h"

#include <utility>

#include "daemon/rpc/convert.h"

namespace gradgate {

WindowWatch::Action WindowWatch::Choose() {
  if (writing_ || finished_) return Action::kNothing;
  if (!ending_) {
    absl::StatusOr<WatchStep> step = registry_->NextForWatch(position_);
    if (!step.ok()) {
      ending_ = true;
      end_status_ = ToGrpc(step.status());
    } else if (step->window || step->ended_job) {
      response_.Clear();
      if (step->window) *response_.mutable_window() = ToMessage(*step->window);
      if (step->ended_job) *response_.mutable_ended_job() = ToMessage(*step->ended_job);
      response_.mutable_nodes()->Swap(&nodes_);  // of the first message alone
      response_.set_skipped_count(static_cast<int64_t>(step->skipped_count));
      ending_ = step->ended_job.has_value();
      writing_ = true;
      return Action::kWrite;
    } else {
      return Action::kNothing;
    }
  }
  finished_ = true;
  return Action::kFinish;
}

void WindowWatch::Wake() {
  Action action;
  grpc::Status status;
  {
    MutexLock lock(&mutex_);
    action = Choose();
    status = end_status_;
  }
  if (action == Action::kWrite) StartWrite(&response_);
  if (action == Action::kFinish) Finish(status);
}

void WindowWatch::ShutDown() {
  {
    MutexLock lock(&mutex_);
    if (!ending_) {
      ending_ = true;
      end_status_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down");
    }
  }
  Wake();
}

void WindowWatch::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) {
      ending_ = true;
      end_status_ = grpc::Status(grpc::StatusCode::CANCELLED, "the watcher is gone");
    }
  }
  Wake();
}

void WindowWatch::OnCancel() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    end_status_ = grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the watcher");
  }
  Wake();
}

void WindowWatch::OnDone() { hub_->Remove(shared_from_this()); }

}  // namespace gradgate
