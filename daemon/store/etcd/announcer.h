// Keeps the announced keys in etcd: a lease, and one write for each key that is not there with it.
//
// A key that somebody else keeps is left alone until it is gone, unless it may be replaced (EtcdOptions::may_replace).
//
// Thread class: one thread. Blocks for calls to etcd, each with its deadline.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ANNOUNCER_H_
#define GRADGATE_DAEMON_STORE_ETCD_ANNOUNCER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "daemon/store/etcd/etcd_link.h"
#include "daemon/store/etcd/etcd_options.h"
#include "daemon/store/etcd/etcd_state.h"

namespace gradgate {

class Announcer {
 public:
  // None is owned; all outlive this.
  Announcer(const EtcdOptions* options, EtcdLink* link, EtcdState* state) : options_(options), link_(link), state_(state) {}

  // Brings etcd up to date, and says so to the state. A lease is made when there is something to announce and none yet. Errors
  // are those after which nothing else works either; what etcd refuses for one key is in the state's AnnounceStatus.
  absl::Status Update(size_t endpoint);

  // 0: none.
  int64_t lease() const { return lease_; }
  // etcd no longer knows it: the next Update() makes another.
  void ForgetLease() {
    if (lease_ != 0) former_lease_ = lease_;
    lease_ = 0;
  }

  // Ends the lease, and with it the keys. Best effort, by the deadline.
  void SayFarewell(size_t endpoint, absl::Time deadline);

 private:
  absl::Status GrantLease(size_t endpoint);
  absl::Status UpdateKey(size_t endpoint, const std::string& key, const std::string& value);
  // Whether this store, or who may be replaced by it, has written it.
  bool IsOwn(const std::string& key, const EtcdCopy::Entry& entry) const;

  const EtcdOptions* const options_;
  EtcdLink* const link_;
  EtcdState* const state_;
  int64_t lease_ = 0;
  int64_t former_lease_ = 0;  // whose keys may still be in the copy
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ANNOUNCER_H_
