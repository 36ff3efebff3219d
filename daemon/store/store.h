// What daemons share: small values under keys, and who is there. Memory, file or etcd; see README.md.
//
// A store distributes and decides nothing: every value of it may be late, and whatever depends on all daemons seeing the same
// is settled elsewhere (of policies: by the job's own ballot). It keeps a copy of all values under its prefix, which a watch
// keeps current; reads are answered from that copy and never block.
//
//   keys            value                        written by
//   ----            -----                        ----------
//   policies/…      StoredPolicy                 Put, on a person's demand
//   launches/…      LaunchPolicy                 Put, when a job of a known launch has another policy in force
//   nodes/NAME      StoredNode                   Announce; gone some seconds after its daemon
//
// Revisions grow over all keys of a store, are never reused, and start at 1. Values that a daemon announces to itself, in a
// store that is not shared, have that of the last Put, and at least 1.
//
// Bounds: limits.h. What others wrote beyond them is left out, and counted in StoreHealth.
//
// Thread class: any thread. Callbacks come on the store's own thread, one at a time, with no lock held; they may call List, not
// Put. The destructor waits for a callback that is running, and not for other machines.

#ifndef GRADGATE_DAEMON_STORE_STORE_H_
#define GRADGATE_DAEMON_STORE_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gradgate {

inline constexpr char kPoliciesPrefix[] = "policies/";
inline constexpr char kLaunchesPrefix[] = "launches/";
inline constexpr char kNodesPrefix[] = "nodes/";

struct StoredValue {
  std::string key;
  std::string value;
  int64_t revision = 0;  // of its last change
};

// How the store is.
struct StoreHealth {
  bool shared = false;                          // daemons on other nodes see the same
  bool reachable = true;                        // as far as is known
  std::string name;                             // "memory", "file /var/lib/gradgate/policies", "etcd://10.0.0.1:2379"
  std::string trouble;                          // for people, while not reachable: what is wrong since when; empty otherwise
  std::optional<absl::Time> unreachable_since;  // of a store that was tried and did not answer
  std::string warning;         // for people: it is reachable, and something of it is not as it should be; empty otherwise
  int64_t key_count = 0;       // in the copy
  uint64_t change_count = 0;   // of keys in the copy, ever
  uint64_t error_count = 0;    // writes that failed, and times that the connection was lost
  uint64_t dropped_count = 0;  // values of others that were left out: too long, too many, a key that is no text
};

class Store {
 public:
  virtual ~Store() = default;

  // Writes, and returns the revision of it. `expected_revision`: only if the key's is that (0: only if there is no such key).
  // By the deadline. Errors: ABORTED (another revision), UNAVAILABLE and DEADLINE_EXCEEDED (it may have been written all the
  // same), PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk, quota), INVALID_ARGUMENT (key or value too long).
  virtual absl::StatusOr<int64_t> Put(absl::string_view key, absl::string_view value, std::optional<int64_t> expected_revision,
                                      absl::Time deadline) = 0;

  // Removes a key; OK if there is none. Errors as Put.
  virtual absl::Status Delete(absl::string_view key, absl::Time deadline) = 0;

  // What is known of the keys that begin with `prefix`, by key.
  virtual std::vector<StoredValue> List(absl::string_view prefix) const = 0;

  // Keeps `value` under `key` from now on, for as long as this object lives; after that for some seconds. Tried again by itself
  // whenever the store comes back. The last value of a key counts. A key that somebody else keeps is left alone until he is
  // gone.
  virtual void Announce(absl::string_view key, absl::string_view value) = 0;

  // How that is. OK: all announced keys are in the store. UNAVAILABLE: not yet. ALREADY_EXISTS: somebody else keeps one of
  // them; the message names it. Other errors: the store refuses it, for the reason in the message.
  virtual absl::Status AnnounceStatus() const { return absl::OkStatus(); }

  virtual StoreHealth Health() const = 0;

  // Called after the copy has changed, with the keys that did. Set before anything else is called, once.
  using Changed = std::function<void(const std::vector<std::string>& keys)>;
  virtual void OnChange(Changed changed) = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_STORE_H_
