#include "daemon/rpc/fan_out.h"

#include <utility>

#include "absl/time/clock.h"
#include "grpcpp/generic/generic_stub.h"

namespace gradgate {

void FanOut::Start(const std::vector<Call>& calls, Ended ended, Done done) {
  ended_ = std::move(ended);
  done_ = std::move(done);
  for (const Call& call : calls) {
    auto running = std::make_unique<Running>();
    running->context.set_deadline(absl::ToChronoTime(call.deadline));
    running_.push_back(std::move(running));
  }
  bool cancelled;
  {
    MutexLock lock(&mutex_);
    waiting_for_ = calls.size() + 1;  // one for this function
    started_ = true;
    cancelled = cancelled_;
  }
  if (cancelled) {
    for (const auto& running : running_) running->context.TryCancel();  // before its call: that ends at once
  }
  const grpc::Slice slice(request_);
  const grpc::ByteBuffer request(&slice, 1);
  for (size_t i = 0; i < calls.size(); ++i) {
    running_[i]->start = absl::Now();
    grpc::GenericStub(calls[i].channel)
        .UnaryCall(&running_[i]->context, method_, {}, &request, &running_[i]->end.answer,
                   [self = shared_from_this(), i](grpc::Status status) { self->OnEnd(i, std::move(status)); });
  }
  OneLess();
}

void FanOut::OnEnd(size_t call, grpc::Status status) {
  End& end = running_[call]->end;
  end.status = std::move(status);
  end.duration = absl::Now() - running_[call]->start;
  if (end.status.ok()) {
    const size_t bytes = end.answer.Length();
    bool fits;
    {
      MutexLock lock(&mutex_);
      fits = bytes <= max_total_bytes_ - total_bytes_;
      if (fits) total_bytes_ += bytes;
    }
    if (!fits) {
      end.answer.Clear();
      end.status = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "all answers together are too large");
    }
  }
  ended_(call, end);
  OneLess();
}

void FanOut::OneLess() {
  {
    MutexLock lock(&mutex_);
    if (--waiting_for_ > 0) return;
  }
  std::vector<End> ends;
  ends.reserve(running_.size());
  for (const auto& running : running_) ends.push_back(std::move(running->end));
  std::exchange(done_, nullptr)(std::move(ends));
}

// The contexts live as long as this, so that one whose call has ended may be cancelled.
void FanOut::Cancel() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (!started_) return;
  }
  for (const auto& running : running_) running->context.TryCancel();
}

}  // namespace gradgate
