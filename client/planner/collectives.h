// What a collective costs on two kinds of link: one of each rank inside its node, and one of each node to the others, which its
// ranks share. Pure; any thread.
//
// The pieces of a collective are pipelined, so its time is that of the slower link, and one message's latency per step of the
// algorithm. Between nodes every rank of a node takes part with its share of the data (a hierarchical ring). An all-reduce
// between nodes takes a ring, 2 (m − 1) / m of its data in 2 (m − 1) messages, or a double binary tree, 2 of it in 2 log2 m,
// whichever is faster; reduce-scatter and all-gather have the ring alone.

#ifndef GRADGATE_CLIENT_PLANNER_COLLECTIVES_H_
#define GRADGATE_CLIENT_PLANNER_COLLECTIVES_H_

#include "client/planner/numbers.h"

namespace gradgate::planner {

struct Links {
  double intra_bytes_per_second, intra_latency_seconds;
  double inter_bytes_per_second, inter_latency_seconds;
};

// One of the groups of a job that reduce at the same time.
struct Group {
  double per_node = 1;  // ranks of it on each of its nodes
  double nodes = 1;     // that it spans
  double sharing = 1;   // groups that have ranks on one node, and share its link

  double ranks() const { return per_node * nodes; }
};

struct Groups {
  Group all, shard, replica;
};

// Consecutive ranks are on one node and of one shard group; those of a replica group are `shards` apart. `nodes` and `shards`
// divide `ranks`.
Groups GroupsOf(double ranks, double nodes, double shards);

struct Cost {
  double seconds = 0;
  double intra_bytes = 0;  // sent by a rank inside its node
  double inter_bytes = 0;  // sent by a node to others

  Cost operator*(double times) const { return {seconds * times, intra_bytes * times, inter_bytes * times}; }
};

// Of `bytes` in all: what each rank has before an all-reduce or a reduce-scatter, and after an all-gather.
Cost AllReduce(const Group& group, double bytes, const Links& links);
Cost ReduceScatter(const Group& group, double bytes, const Links& links);
Cost AllGather(const Group& group, double bytes, const Links& links);

}  // namespace gradgate::planner

#endif  // GRADGATE_CLIENT_PLANNER_COLLECTIVES_H_
