// Who watches windows: how many there may be, and waking them when the registry has something new.
//
// Thread class: any thread. Watchers are called with no lock held.

#ifndef GRADGATE_DAEMON_RPC_WATCH_HUB_H_
#define GRADGATE_DAEMON_RPC_WATCH_HUB_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "daemon/node/mutex.h"

namespace gradgate {

// One stream. Neither call blocks.
class Watcher {
 public:
  virtual ~Watcher() = default;

  // The registry may have something new.
  virtual void Wake() = 0;
  // Ends the stream with UNAVAILABLE as soon as nothing is being written.
  virtual void ShutDown() = 0;
};

class WatchHub {
 public:
  explicit WatchHub(size_t max_watchers) : max_watchers_(max_watchers) {}

  // RESOURCE_EXHAUSTED: too many. UNAVAILABLE: shutting down.
  absl::Status Add(std::shared_ptr<Watcher> watcher);
  void Remove(const std::shared_ptr<Watcher>& watcher);
  size_t watcher_count();

  void WakeAll();

  // Ends all streams, and refuses new ones.
  void ShutDown();

 private:
  std::vector<std::shared_ptr<Watcher>> Copy();

  const size_t max_watchers_;

  Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_WATCH_HUB_H_
