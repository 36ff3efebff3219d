#include "client/watch_stream.h"

namespace gradgate::client {

WatchStream::WatchStream(v1::SyncStatsService::Stub& stub, const v1::WatchWindowsRequest& request, absl::Time deadline) {
  if (deadline < absl::InfiniteFuture()) context_.set_deadline(absl::ToChronoTime(deadline));
  reader_ = stub.PrepareAsyncWatchWindows(&context_, request, &queue_);
  reader_->StartCall(this);
}

WatchStream::~WatchStream() {
  context_.TryCancel();
  v1::WatchWindowsResponse ignored;
  while (Next(absl::InfiniteFuture(), &ignored) != Event::kEnd) {
  }
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

WatchStream::Event WatchStream::Next(absl::Time until, v1::WatchWindowsResponse* message) {
  while (state_ != State::kDone) {
    void* tag;
    bool ok = false;
    const auto got = until == absl::InfiniteFuture()
                         ? (queue_.Next(&tag, &ok) ? grpc::CompletionQueue::GOT_EVENT : grpc::CompletionQueue::SHUTDOWN)
                         : queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(until));
    if (got == grpc::CompletionQueue::TIMEOUT) return Event::kIdle;
    if (state_ == State::kFinishing || got == grpc::CompletionQueue::SHUTDOWN) {
      state_ = State::kDone;
    } else if (!ok) {
      state_ = State::kFinishing;
      reader_->Finish(&status_, this);
    } else if (state_ == State::kStarting) {
      state_ = State::kReading;
      reader_->Read(&incoming_, this);
    } else {
      message->Swap(&incoming_);
      reader_->Read(&incoming_, this);
      return Event::kMessage;
    }
  }
  return Event::kEnd;
}

}  // namespace gradgate::client
