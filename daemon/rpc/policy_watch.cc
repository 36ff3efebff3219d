#include "daemon/rpc/policy_watch.h"

#include <utility>

#include "daemon/node/job_selector.h"
#include "daemon/rpc/convert.h"
#include "google/protobuf/util/message_differencer.h"

namespace gradgate {
bool TellTheSame(v1::PolicyStatus a, v1::PolicyStatus b) {
  for (v1::PolicyStatus* status : {&a, &b}) {
    status->mutable_job()->clear_window_count();
    for (v1::NodeAnswer& node : *status->mutable_nodes()) node.clear_answer_duration();
  }
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

void PolicyWatch::Show(const absl::StatusOr<v1::GetPolicyResponse>& seen) {
  if (!seen.ok()) return End(ToGrpc(seen.status()));
  const v1::PolicyStatus& status = seen->status();
  {
    MutexLock lock(&mutex_);
    if (writing_ || ending_) return;
    ending_ = status.job().state() != v1::STATE_RUNNING;
    writing_ = !response_.has_status() || !TellTheSame(response_.status(), status);
    if (writing_) *response_.mutable_status() = status;
    job_ = FormatJobSelector(status.job().user_id(), status.job().run_id());
  }
  Act();
}

void PolicyWatch::End(const grpc::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (!ending_) end_ = status;
    ending_ = true;
  }
  Act();
}

void PolicyWatch::Act() {
  bool write = false, finish = false;
  grpc::Status end;
  {
    MutexLock lock(&mutex_);
    write = writing_ && !write_begun_;
    write_begun_ |= write;
    finish = ending_ && !writing_ && !finished_;
    finished_ |= finish;
    end = end_;
  }
  if (write) StartWrite(&response_);
  if (finish) Finish(end);
}

bool PolicyWatch::over() const {
  MutexLock lock(&mutex_);
  return ending_;
}

void PolicyWatch::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = write_begun_ = false;
  }
  if (!ok) return End(grpc::Status(grpc::StatusCode::CANCELLED, "the watcher is gone"));
  Act();
}

void PolicyWatch::OnCancel() { End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the watcher")); }

}  // namespace gradgate
