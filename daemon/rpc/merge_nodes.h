// What there is to say of each daemon: its jobs, its version, whether it answered. Pure functions but for SetStore.

#ifndef GRADGATE_DAEMON_RPC_MERGE_NODES_H_
#define GRADGATE_DAEMON_RPC_MERGE_NODES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/node/views.h"
#include "daemon/rpc/parts.h"
#include "daemon/store/store.h"
#include "gradgate/store/v1/store.pb.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

// A daemon's answer about itself; of its jobs the first 100.
v1::ListNodesResponse NodeItself(const std::vector<JobView>& jobs, absl::string_view version, absl::Time start_time);

// Whether another daemon's answer is that. DATA_LOSS names what is wrong.
absl::Status CheckNode(const v1::ListNodesResponse& part);

// One entry for each node asked. Of those that did not answer `known` tells version and start.
v1::ListNodesResponse MergeNodes(Parts<v1::ListNodesResponse> parts, const std::vector<store::v1::StoredNode>& known);

// What store it is and how that is; `store` may be null.
void SetStore(const Store* store, v1::ListNodesResponse* response);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_MERGE_NODES_H_
