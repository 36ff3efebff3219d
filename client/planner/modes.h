// What an optimizer step takes in one mode: seconds, bytes, memory. Pure; any thread.
//
// N micro-steps of computing c, all-gathers a (forward) and b (backward), reduce-scatter g, all-reduce r, each the part that
// shows:
//
//     every_micro_step  N (c + a + b + g + r)
//     window_replica    N (c + a + b + g) + r
//     window            N (c + a + b) + g + r
//     parameters kept   the same with a once and without b: N c + a + g + r for the window
//
// and what a step takes beside its micro-steps. Without shards there are neither gathers nor g.

#ifndef GRADGATE_CLIENT_PLANNER_MODES_H_
#define GRADGATE_CLIENT_PLANNER_MODES_H_

#include <optional>
#include <string>
#include <vector>

#include "client/planner/numbers.h"
#include "client/planner/parts.h"

namespace gradgate::planner {

// Of a limit, what may be used; the rest is left to the allocator.
inline constexpr double kUsableShare = 0.9;

struct ModeCost {
  Mode mode;
  bool present = false;
  bool best = false;
  double step_seconds = 0, min_step_seconds = 0, max_step_seconds = 0;
  double exposed_seconds = 0;
  double speedup = 1;
  double reduction_count = 0;
  double collective_count = 0;  // 0: not known
  double intra_bytes = 0, inter_bytes = 0;
  double memory_bytes = 0;  // 0: not known
  double deferred_gradient_bytes = 0, kept_parameter_bytes = 0;
  std::optional<bool> fits;
};

// "window_replica, parameters kept".
std::string Name(const Mode& mode);

// Those that a sharding allows, in the order of memory.
std::vector<Mode> ModesOf(Sharding sharding);

double StepSeconds(const Numbers& numbers, const Parts& parts, const Mode& mode);

// All but `best` and the bounds, which are those of step_seconds. `numbers` have passed WithDefaults.
ModeCost CostOf(const Numbers& numbers, const Parts& parts, const Mode& mode);

}  // namespace gradgate::planner

#endif  // GRADGATE_CLIENT_PLANNER_MODES_H_
