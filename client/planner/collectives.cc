#include "client/planner/collectives.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace gradgate::planner {
namespace {

double Gcd(double a, double b) { return static_cast<double>(std::gcd(static_cast<int64_t>(a), static_cast<int64_t>(b))); }

// The time of so many bytes on each link, and so many messages on each.
double Seconds(double intra_bytes, double inter_bytes, double intra_messages, double inter_messages, const Links& links) {
  const double transfer = std::max(intra_bytes > 0 ? intra_bytes / links.intra_bytes_per_second : 0,
                                   inter_bytes > 0 ? inter_bytes / links.inter_bytes_per_second : 0);
  return transfer + intra_messages * links.intra_latency_seconds + inter_messages * links.inter_latency_seconds;
}

Cost RingOnce(const Group& group, double bytes, const Links& links) {
  Cost cost;
  cost.intra_bytes = bytes * (group.per_node - 1) / group.per_node;
  cost.inter_bytes = bytes * group.sharing * (group.nodes - 1) / group.nodes;
  cost.seconds = Seconds(cost.intra_bytes, cost.inter_bytes, group.per_node - 1, group.nodes - 1, links);
  return cost;
}

}  // namespace

Groups GroupsOf(double ranks, double nodes, double shards) {
  const double per_node = ranks / nodes;
  Groups groups;
  groups.all = {per_node, nodes, 1};
  const double together = Gcd(shards, per_node);  // shards of one group on one node
  groups.shard = {together, shards / together, per_node / together};
  const double replicas = ranks / shards;
  const double beside = Gcd(per_node / together, replicas);  // replicas of one shard on one node
  groups.replica = {beside, replicas / beside, per_node / beside};
  return groups;
}

Cost AllReduce(const Group& group, double bytes, const Links& links) {
  const Cost ring = RingOnce(group, bytes, links) * 2;
  if (group.nodes <= 2) return ring;
  Cost tree = ring;
  tree.inter_bytes = 2 * bytes * group.sharing;
  tree.seconds =
      Seconds(tree.intra_bytes, tree.inter_bytes, 2 * (group.per_node - 1), 2 * std::ceil(std::log2(group.nodes)), links);
  return tree.seconds < ring.seconds ? tree : ring;
}

Cost ReduceScatter(const Group& group, double bytes, const Links& links) { return RingOnce(group, bytes, links); }
Cost AllGather(const Group& group, double bytes, const Links& links) { return RingOnce(group, bytes, links); }

}  // namespace gradgate::planner
