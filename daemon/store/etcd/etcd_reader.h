// Reads all that lies under the prefix, in pages, as of one revision.
//
// Thread class: one thread. Blocks; each call has its deadline, and the number of calls is bounded.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ETCD_READER_H_
#define GRADGATE_DAEMON_STORE_ETCD_ETCD_READER_H_

#include "absl/status/status.h"
#include "daemon/store/etcd/etcd_link.h"
#include "daemon/store/etcd/etcd_options.h"
#include "daemon/store/etcd/etcd_state.h"

namespace gradgate {

// Replaces the state's copy. Errors as EtcdLink's; INTERNAL: the answers make no sense. Then the copy is as it was.
absl::Status ReadAll(const EtcdOptions& options, size_t endpoint, EtcdLink* link, EtcdState* state);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ETCD_READER_H_
