// One WatchWindows call whose every wait has an end.
//
//   starting --> reading --(stream ends)--> finishing --> done
//
// Exactly one operation is in flight on the queue until done. One thread; context() may be cancelled from any.

#ifndef GRADGATE_CLIENT_WATCH_STREAM_H_
#define GRADGATE_CLIENT_WATCH_STREAM_H_

#include <memory>

#include "absl/time/time.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"

namespace gradgate::client {

class WatchStream {
 public:
  enum class Event {
    kMessage,  // *message is the next one
    kIdle,     // nothing came until the time given
    kEnd,      // status() tells why
  };

  // Starts the call; it ends by itself at `deadline`, which may be absl::InfiniteFuture(). `stub` must outlive this.
  WatchStream(v1::SyncStatsService::Stub& stub, const v1::WatchWindowsRequest& request, absl::Time deadline);

  // Cancels what still runs and waits for gRPC to let go of it.
  ~WatchStream();

  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  // Blocks until `until` at most. `message` is touched for kMessage alone.
  Event Next(absl::Time until, v1::WatchWindowsResponse* message);

  // Of the whole call; valid after kEnd.
  const grpc::Status& status() const { return status_; }

  grpc::ClientContext& context() { return context_; }

 private:
  enum class State { kStarting, kReading, kFinishing, kDone };

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::WatchWindowsResponse>> reader_;
  State state_ = State::kStarting;
  v1::WatchWindowsResponse incoming_;
  grpc::Status status_;
};

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_WATCH_STREAM_H_
