// One call that streams answers, whose every wait has an end.
//
//   starting --> reading --(stream ends)--> finishing --> done
//
// Exactly one operation is in flight on the queue until done. One thread; context() may be cancelled from any.

#ifndef GRADGATE_CLIENT_WATCH_STREAM_H_
#define GRADGATE_CLIENT_WATCH_STREAM_H_

#include <memory>

#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_stream.h"

namespace gradgate::client {

template <typename Response>
class WatchStream {
 public:
  enum class Event {
    kMessage,  // *message is the next one
    kIdle,     // nothing came until the time given
    kEnd,      // status() tells why
  };

  // `prepare` is the stub's PrepareAsync… for a request: (context, queue) to a reader. The call ends by itself at `deadline`,
  // which may be absl::InfiniteFuture().
  template <typename Prepare>
  WatchStream(Prepare prepare, absl::Time deadline) {
    if (deadline < absl::InfiniteFuture()) context_.set_deadline(absl::ToChronoTime(deadline));
    reader_ = prepare(&context_, &queue_);
    reader_->StartCall(this);
  }

  // Cancels what still runs and waits for gRPC to let go of it.
  ~WatchStream() {
    context_.TryCancel();
    Response ignored;
    while (Next(absl::InfiniteFuture(), &ignored) != Event::kEnd) {
    }
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  // Blocks until `until` at most. `message` is touched for kMessage alone.
  Event Next(absl::Time until, Response* message) {
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

  // Of the whole call; valid after kEnd.
  const grpc::Status& status() const { return status_; }

  grpc::ClientContext& context() { return context_; }

 private:
  enum class State { kStarting, kReading, kFinishing, kDone };

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReader<Response>> reader_;
  State state_ = State::kStarting;
  Response incoming_;
  grpc::Status status_;
};

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_WATCH_STREAM_H_
