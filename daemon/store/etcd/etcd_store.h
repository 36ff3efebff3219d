// The store in an etcd, version 3: shared by all daemons that are given the same one.
//
// Thread class: as Store. One thread keeps the copy, the watch and the lease; one more calls OnChange's listener. Put and
// Delete block their caller, by the deadline, and are tried again on other endpoints until then.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ETCD_STORE_H_
#define GRADGATE_DAEMON_STORE_ETCD_ETCD_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/store/etcd/etcd_options.h"
#include "daemon/store/store.h"

namespace gradgate {

// Begins to connect, and returns at once. INVALID_ARGUMENT, NOT_FOUND: a PEM file cannot be used. That etcd cannot be reached
// is no error: Health() says so.
absl::StatusOr<std::unique_ptr<Store>> OpenEtcdStore(const EtcdOptions& options);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ETCD_STORE_H_
