// What --store, --node_name and --advertise may say. Pure.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_STORE_STORE_ADDRESS_H_
#define GRADGATE_DAEMON_STORE_STORE_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gradgate {

struct StoreAddress {
  enum class Kind { kDefault, kMemory, kFile, kEtcd };
  Kind kind = Kind::kDefault;
  std::string path;                    // kFile
  std::vector<std::string> endpoints;  // kEtcd: host:port or [v6]:port
  bool tls = false;                    // kEtcd: etcds://
};

// "", "memory", "file:PATH", "etcd://host[:port],…", "etcds://…"; port 2379 where none is given. INVALID_ARGUMENT names the
// text and what it may be.
absl::StatusOr<StoreAddress> ParseStoreAddress(absl::string_view text);

// 1 to 128 letters, digits, '.', '_' and '-', since it becomes part of a key and is shown. INVALID_ARGUMENT.
absl::Status CheckNodeName(absl::string_view name);

// host:port or [v6]:port that somebody else may connect to: no wildcard. INVALID_ARGUMENT.
absl::Status CheckAdvertiseAddress(absl::string_view address);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_STORE_ADDRESS_H_
