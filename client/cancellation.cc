#include "client/cancellation.h"

#include <algorithm>

#include "grpcpp/client_context.h"

namespace gradgate::client {

void Cancellation::Cancel() {
  // The lock is held over TryCancel so that no context goes away meanwhile; it only queues the end of the call.
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
}

bool Cancellation::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

bool Cancellation::Await(absl::Duration longest) const {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&cancelled_), longest);
}

Cancellation::Scope::Scope(Cancellation* cancellation, grpc::ClientContext* context)
    : cancellation_(cancellation), context_(context) {
  if (cancellation_ == nullptr) return;
  absl::MutexLock lock(&cancellation_->mutex_);
  cancellation_->contexts_.push_back(context_);
  if (cancellation_->cancelled_) context_->TryCancel();
}

Cancellation::Scope::~Scope() {
  if (cancellation_ == nullptr) return;
  absl::MutexLock lock(&cancellation_->mutex_);
  auto& contexts = cancellation_->contexts_;
  contexts.erase(std::remove(contexts.begin(), contexts.end(), context_), contexts.end());
}

}  // namespace gradgate::client
