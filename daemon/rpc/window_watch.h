// A stream of the windows of one node.
//
// A watcher holds no queue of its own: it keeps a position in the job's bounded history and takes the next window when the one
// before is written. A watcher slower than the job therefore costs nothing, and is told how many windows it missed.
//
// Thread class: any thread. Lock order: watch, then the registry's. gRPC is called with no lock held, since
// it may call back at once.

#ifndef GRADGATE_DAEMON_RPC_WINDOW_WATCH_H_
#define GRADGATE_DAEMON_RPC_WINDOW_WATCH_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "daemon/node/mutex.h"
#include "daemon/node/registry.h"
#include "daemon/rpc/watch_hub.h"
#include "google/protobuf/repeated_field.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

class WindowWatch final : public grpc::ServerWriteReactor<v1::WatchWindowsResponse>,
                          public Watcher,
                          public std::enable_shared_from_this<WindowWatch> {
 public:
  using Nodes = google::protobuf::RepeatedPtrField<v1::NodeAnswer>;

  // Neither pointer is owned. `nodes` are in the first message.
  WindowWatch(WatchHub* hub, Registry* registry, WatchPosition position, Nodes nodes)
      : hub_(hub), registry_(registry), position_(position), nodes_(std::move(nodes)) {}

  // Once, after it was added to the hub.
  void Begin() { Wake(); }

  // Writes what is there, unless a write is under way.
  void Wake() override;
  void ShutDown() override;

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // What Wake() is to do once the lock is released.
  enum class Action { kNothing, kWrite, kFinish };
  Action Choose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  WatchHub* const hub_;
  Registry* const registry_;

  Mutex mutex_;
  WatchPosition position_ ABSL_GUARDED_BY(mutex_);
  Nodes nodes_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;  // the last message is written, or the stream is to end
  grpc::Status end_status_ ABSL_GUARDED_BY(mutex_);
  v1::WatchWindowsResponse response_;  // the writer's; touched only while no write is under way
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_WINDOW_WATCH_H_
