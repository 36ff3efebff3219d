#include "daemon/rpc/merge_nodes.h"

#include <algorithm>
#include <utility>

#include "daemon/node/text_check.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/merge_jobs.h"
#include "daemon/rpc/presentable.h"

namespace gradgate {
namespace {

constexpr size_t kMaxJobs = 100;

}  // namespace

v1::ListNodesResponse NodeItself(const std::vector<JobView>& jobs, absl::string_view version, absl::Time start_time) {
  v1::ListNodesResponse response;
  v1::Node& node = *response.add_nodes();
  node.set_version(std::string(version));
  node.mutable_start_time()->set_seconds(absl::ToUnixSeconds(start_time));
  for (size_t i = 0; i < std::min(jobs.size(), kMaxJobs); ++i) *node.add_jobs() = ToMessage(jobs[i]);
  return response;
}

absl::Status CheckNode(const v1::ListNodesResponse& part) {
  if (part.nodes_size() != 1) return absl::DataLossError("not of one node");
  const v1::Node& node = part.nodes(0);
  if (node.version().size() > 255 || !IsPrintableUtf8(node.version())) return absl::DataLossError("text that cannot be shown");
  for (const v1::Job& job : node.jobs()) {
    if (absl::Status status = CheckJob(job); !status.ok()) return status;
  }
  return absl::OkStatus();
}

v1::ListNodesResponse MergeNodes(Parts<v1::ListNodesResponse> parts, const std::vector<store::v1::StoredNode>& known) {
  v1::ListNodesResponse merged;
  auto part = parts.parts.begin();
  for (size_t i = 0; i < parts.nodes.size(); ++i) {
    v1::Node& node = *merged.add_nodes();
    if (part != parts.parts.end() && part->node == i) {
      node.Swap(part->answer.mutable_nodes(0));
      ++part;
    } else {
      const auto stored = std::find_if(known.begin(), known.end(),
                                       [&](const auto& other) { return other.node_name() == parts.nodes[i].node_name(); });
      if (stored != known.end()) {
        node.set_version(stored->version());
        *node.mutable_start_time() = stored->start_time();
      }
    }
    *node.mutable_answer() = std::move(parts.nodes[i]);
  }
  return merged;
}

void SetStore(const Store* store, v1::ListNodesResponse* response) {
  if (store == nullptr) return;
  const StoreHealth health = store->Health();
  response->set_store(Presentable(health.name));
  response->set_store_shared(health.shared);
  response->set_store_trouble(Presentable(health.trouble));
}

}  // namespace gradgate
