// How an etcd is reached, and how patient the store is with it.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ETCD_OPTIONS_H_
#define GRADGATE_DAEMON_STORE_ETCD_ETCD_OPTIONS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gradgate {

struct EtcdOptions {
  std::string name;                    // for people: "etcd://10.0.0.1:2379"
  std::vector<std::string> endpoints;  // host:port or [v6]:port, at least one
  bool tls = false;
  std::string ca_file;    // PEM; empty: the system's authorities
  std::string cert_file;  // PEM; both or neither
  std::string key_file;
  std::string user;  // empty: none
  std::string password;
  std::string prefix = "/gradgate/v1/";

  // Whether what somebody else left under an announced key may be replaced at once. Any thread, no lock held. Null: never.
  std::function<bool(absl::string_view key, absl::string_view value)> may_replace;

  // For the operator: an outage that lasts, and its end. The store's own thread, no lock held. Null: nobody is told.
  std::function<void(absl::string_view line)> log;

  absl::Duration call_timeout = absl::Seconds(3);
  absl::Duration heartbeat_interval = absl::Seconds(2);  // a watch that was silent so long is asked for a sign of life
  absl::Duration heartbeat_timeout = absl::Seconds(3);   // which must come by then
  absl::Duration lease_ttl = absl::Seconds(10);          // whole seconds
  absl::Duration min_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(5);
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ETCD_OPTIONS_H_
