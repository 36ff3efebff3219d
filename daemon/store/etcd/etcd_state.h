// What the threads of an etcd store share: the copy, and how things stand.
//
// Thread class: any thread. The listener is told with no lock held.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ETCD_STATE_H_
#define GRADGATE_DAEMON_STORE_ETCD_ETCD_STATE_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "daemon/node/mutex.h"
#include "daemon/store/change_notifier.h"
#include "daemon/store/etcd/etcd_copy.h"
#include "daemon/store/store.h"

namespace gradgate {

class EtcdState {
 public:
  using Log = std::function<void(absl::string_view line)>;

  EtcdState(std::string name, std::string prefix, Log log = nullptr)
      : name_(std::move(name)), log_(std::move(log)), copy_(std::move(prefix)) {}

  void OnChange(Store::Changed changed) { notifier_.Start(std::move(changed)); }

  // `change` works on the copy, under the lock, and returns the keys that it changed.
  template <class Change>
  std::vector<std::string> ChangeCopy(Change change) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<std::string> keys;
    {
      MutexLock lock(&mutex_);
      keys = change(copy_);
    }
    notifier_.Add(keys);
    return keys;
  }
  std::vector<StoredValue> List(absl::string_view prefix) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<EtcdCopy::Entry> Find(absl::string_view key) const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t revision() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckRoom(absl::string_view key, absl::string_view value) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Announced keys. False if nothing has changed.
  bool Announce(absl::string_view key, absl::string_view value) ABSL_LOCKS_EXCLUDED(mutex_);
  std::map<std::string, std::string> announced() const ABSL_LOCKS_EXCLUDED(mutex_);
  // How it went with `announced`; ignored if that is no longer what is to be announced.
  void SetAnnounceStatus(const std::map<std::string, std::string>& announced, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AnnounceStatus() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The watch runs. / It does not, for this reason; the time is that of the first since it ran. An outage is logged once it has
  // lasted: another member of a cluster answers sooner.
  void SetReachable(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetTrouble(const absl::Status& status, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  void CountError() ABSL_LOCKS_EXCLUDED(mutex_);
  StoreHealth Health() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Nobody is told of changes after it.
  void Stop() { notifier_.Stop(); }

 private:
  std::string Warning() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Tell(const std::string& line) const;

  const std::string name_;
  const Log log_;
  mutable Mutex mutex_;
  EtcdCopy copy_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> announced_ ABSL_GUARDED_BY(mutex_);
  absl::Status announce_status_ ABSL_GUARDED_BY(mutex_);
  bool reachable_ ABSL_GUARDED_BY(mutex_) = false;
  bool ever_reached_ ABSL_GUARDED_BY(mutex_) = false;  // until then whoever starts the daemon is told by others
  bool told_ ABSL_GUARDED_BY(mutex_) = false;          // of this outage
  std::string trouble_ ABSL_GUARDED_BY(mutex_) = "not yet connected";
  absl::Time trouble_since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t error_count_ ABSL_GUARDED_BY(mutex_) = 0;
  ChangeNotifier notifier_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ETCD_STATE_H_
