// What one micro-step takes, part by part: computing, and of each collective what computing does not hide. Pure; any thread.
//
// Hiding. K collectives of T seconds together run one after the other beside b seconds of computing, each as soon as its K-th
// of the computing is done. The last one begins when computing ends, so a K-th of T always shows; and where the link is the
// slower of the two, all that exceeds the (K − 1) / K of the computing beside which it can run:
//
//     exposed(T) = max(T / K, T − overlap · b · (K − 1) / K)
//
// Forward gathers run beside the forward; backward gathers, reduce-scatters and all-reduces share the link beside the backward.

#ifndef GRADGATE_CLIENT_PLANNER_PARTS_H_
#define GRADGATE_CLIENT_PLANNER_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/planner/collectives.h"
#include "client/planner/numbers.h"

namespace gradgate::planner {

using Notes = std::vector<std::string>;  // for people: what was assumed; each once

void AddNote(std::string note, Notes* notes);

struct Parts {
  double compute = 0;
  double gather_forward = 0;
  double gather_backward = 0;
  double shard_sync = 0;
  double replica_sync = 0;
  // The same in a backward that gathers nothing, since parameters are kept.
  double kept_shard_sync = 0;
  double kept_replica_sync = 0;
};

// What one pass of each kind puts on the links; seconds are of all its collectives, nothing hidden.
struct Traffic {
  Cost gather, shard_sync, replica_sync;
};

Sharding ShardingOf(const Numbers& numbers);

// Collectives of one reduction: given, derived from bucket and parameters, or assumed.
double CollectiveCount(const Numbers& numbers);

// See the top. Inverse: ExposedSeconds(TotalSeconds(x)) == x.
double ExposedSeconds(double total, double beside, double overlap, double collectives);
double TotalSeconds(double exposed, double beside, double overlap, double collectives);

// What does not depend on time. Of unknown links: as if their speeds were equal; of unknown parameters: of one.
Traffic TrafficOf(const Numbers& numbers);

// From exposed seconds where any is given; one that is not given is taken to be in compute. Else from parameters and links.
// `numbers` have passed CheckRanges and WithDefaults. INVALID_ARGUMENT: seconds that contradict each other or the sharding.
// FAILED_PRECONDITION: what is missing.
absl::StatusOr<Parts> PartsOf(const Numbers& numbers, Notes* notes);

// The parts under other circumstances: those that were given change as the model says that their collectives do; seconds that
// `changes` itself sets are taken. `numbers` is `base` with `changes`. Errors as PartsOf.
absl::StatusOr<Parts> PartsAfter(const Numbers& base, const Numbers& changes, const Numbers& numbers, Notes* notes);

}  // namespace gradgate::planner

#endif  // GRADGATE_CLIENT_PLANNER_PARTS_H_
