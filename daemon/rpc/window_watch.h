// Streams of closed windows: one reactor per watcher, and the hub that wakes them.
//
// A watcher holds no queue of its own: it keeps a position in the job's bounded history and takes the next window when the one
// before is written. A watcher slower than the job therefore costs nothing, and is told how many windows it missed.
//
// Thread class: any thread. Lock order: hub, then nothing; watch, then the registry's. gRPC is called with no lock held, since
// it may call back at once.

#ifndef GRADGATE_DAEMON_RPC_WINDOW_WATCH_H_
#define GRADGATE_DAEMON_RPC_WINDOW_WATCH_H_

#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "daemon/node/mutex.h"
#include "daemon/node/registry.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

class WatchHub;

class WindowWatch final : public grpc::ServerWriteReactor<v1::WatchWindowsResponse>,
                          public std::enable_shared_from_this<WindowWatch> {
 public:
  WindowWatch(WatchHub* hub, Registry* registry, WatchPosition position)
      : hub_(hub), registry_(registry), position_(position) {}

  // Writes what is there, unless a write is under way.
  void Wake();
  // Ends the stream with UNAVAILABLE as soon as the write under way is done.
  void ShutDown();

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
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;  // the last message is written, or the stream is to end
  grpc::Status end_status_ ABSL_GUARDED_BY(mutex_);
  v1::WatchWindowsResponse response_;  // the writer's; touched only while no write is under way
};

class WatchHub {
 public:
  WatchHub(Registry* registry, size_t max_watchers) : registry_(registry), max_watchers_(max_watchers) {}

  // A reactor for a new stream. RESOURCE_EXHAUSTED: too many. UNAVAILABLE: shutting down.
  absl::StatusOr<std::shared_ptr<WindowWatch>> Add(WatchPosition position);

  // Tells all watchers that there may be something new. Does not block.
  void WakeAll();

  // Ends all streams, and refuses new ones.
  void ShutDown();

 private:
  friend class WindowWatch;
  void Remove(const std::shared_ptr<WindowWatch>& watch);
  std::vector<std::shared_ptr<WindowWatch>> Copy();

  Registry* const registry_;
  const size_t max_watchers_;

  Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<std::shared_ptr<WindowWatch>> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_WINDOW_WATCH_H_
