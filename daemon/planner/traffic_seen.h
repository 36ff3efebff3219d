// What a job's counts tell of its groups and collectives. Pure; any thread.

#ifndef GRADGATE_DAEMON_PLANNER_TRAFFIC_SEEN_H_
#define GRADGATE_DAEMON_PLANNER_TRAFFIC_SEEN_H_

#include <optional>

#include "gradgate/v1/stats.pb.h"

namespace gradgate::planner {

// Means over ranks, of one reduction in groups of one role.
struct PassSeen {
  double collectives = 0;         // 0: none was issued
  double bytes = 0;               // payload of a rank
  std::optional<double> seconds;  // from issue to end, summed; unset: their ends are not seen
};

struct TrafficSeen {
  bool sharded = false;
  bool replicated = false;            // across shard groups, or plainly
  PassSeen shard_sync, replica_sync;  // the latter also of plain data parallelism
  double gathers_per_window = 0;      // all-gathers in the shard group
  std::optional<double> gather_seconds_per_micro_step;

  // Ranks that share parameters; unset: not to be told from bytes.
  std::optional<double> Shards(double ranks) const;
  // Whether parameters are kept inside a window of so many micro-steps.
  bool Kept(double micro_steps) const;
};

TrafficSeen TrafficSeenIn(const v1::GetJobStatsResponse& stats);

// Distinct host names, if all ranks of the job are among them and each has as many.
std::optional<double> NodesSeenIn(const v1::GetJobStatsResponse& stats);

}  // namespace gradgate::planner

#endif  // GRADGATE_DAEMON_PLANNER_TRAFFIC_SEEN_H_
