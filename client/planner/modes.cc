#include "client/planner/modes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gradgate::planner {
namespace {

// How often a window of `micro_steps` does each thing.
struct Times {
  double shard_sync, replica_sync;
  double gather_forward, gather_backward;
};

Times TimesOf(const Mode& mode, double micro_steps) {
  return {mode.sync == Sync::kWindow ? 1 : micro_steps, mode.sync == Sync::kEvery ? micro_steps : 1,
          mode.kept ? 1 : micro_steps, mode.kept ? 0 : micro_steps};
}

// Passes over all parameters' gathers. The module that is gathered last in the forward is still there for the backward.
double GatherPasses(const Times& times, double collectives) {
  return times.gather_forward + times.gather_backward * (collectives - 1) / collectives;
}

void FillTraffic(const Numbers& n, const Times& times, ModeCost* cost) {
  const Traffic traffic = TrafficOf(n);
  const double collectives = CollectiveCount(n);
  const bool sharded = ShardingOf(n) != Sharding::kNone, replicated = ShardingOf(n) != Sharding::kFull;
  if (*n.rank_count == 1) return;
  cost->reduction_count = (sharded ? times.shard_sync : 0) + (replicated ? times.replica_sync : 0);
  const double gathers = sharded ? GatherPasses(times, collectives) : 0;
  if (n.collective_count) cost->collective_count = collectives * (cost->reduction_count + gathers);
  if (!n.parameter_count) return;
  const auto sum = [&](double Cost::*bytes) {
    return gathers * traffic.gather.*bytes + times.shard_sync * traffic.shard_sync.*bytes +
           times.replica_sync * traffic.replica_sync.*bytes;
  };
  cost->intra_bytes = sum(&Cost::intra_bytes);
  cost->inter_bytes = sum(&Cost::inter_bytes);
}

struct Held {
  double gradients = 0, parameters = 0;
  double sum() const { return gradients + parameters; }
};

// What a window holds unsharded.
Held HeldBy(const Numbers& n, const Mode& mode) {
  Held held;
  const double shards = *n.shard_count, parameters = n.parameter_count.value_or(0);
  if (shards == 1) return held;
  if (mode.sync == Sync::kWindow && *n.accumulate > 1)
    held.gradients = parameters * *n.gradient_element_bytes * (shards - 1) / shards;
  if (mode.kept) held.parameters = parameters * *n.parameter_element_bytes;
  return held;
}

// Peak of a rank beside what the window holds: state and gradients of its share, two modules in flight, activations.
double MemoryBeside(const Numbers& n) {
  if (n.memory_used_bytes) return *n.memory_used_bytes - HeldBy(n, n.present.value_or(Mode{})).sum();
  const double shards = *n.shard_count, parameters = *n.parameter_count;
  const double in_flight = shards == 1 ? 0 : 2 * (*n.parameter_element_bytes + *n.gradient_element_bytes) / CollectiveCount(n);
  const double at_rest = (*n.state_element_bytes + *n.gradient_element_bytes) / shards;
  return parameters * (at_rest + in_flight) + n.activation_bytes.value_or(0);
}

void FillMemory(const Numbers& n, ModeCost* cost) {
  if (!n.parameter_count) return;
  const Held held = HeldBy(n, cost->mode);
  cost->deferred_gradient_bytes = held.gradients;
  cost->kept_parameter_bytes = held.parameters;
  cost->memory_bytes = std::max(MemoryBeside(n) + held.sum(), held.sum());
  if (n.memory_limit_bytes) cost->fits = cost->memory_bytes <= kUsableShare * *n.memory_limit_bytes;
}

}  // namespace

std::string Name(const Mode& mode) {
  const char* sync = mode.sync == Sync::kEvery ? "every_micro_step" : mode.sync == Sync::kReplica ? "window_replica" : "window";
  return absl::StrCat(sync, mode.kept ? ", parameters kept" : "");
}

std::vector<Mode> ModesOf(Sharding sharding) {
  switch (sharding) {
    case Sharding::kNone:
      return {{Sync::kEvery, false}, {Sync::kWindow, false}};
    case Sharding::kFull:
      return {{Sync::kEvery, false}, {Sync::kWindow, false}, {Sync::kEvery, true}, {Sync::kWindow, true}};
    case Sharding::kHybrid:
      return {{Sync::kEvery, false},
              {Sync::kReplica, false},
              {Sync::kWindow, false},
              {Sync::kReplica, true},
              {Sync::kWindow, true}};
  }
  return {};
}

double StepSeconds(const Numbers& n, const Parts& parts, const Mode& mode) {
  const double micro_steps = *n.accumulate;
  const Times times = TimesOf(mode, micro_steps);
  const double shard = mode.kept ? parts.kept_shard_sync : parts.shard_sync;
  const double replica = mode.kept ? parts.kept_replica_sync : parts.replica_sync;
  return micro_steps * parts.compute + times.gather_forward * parts.gather_forward +
         times.gather_backward * parts.gather_backward + times.shard_sync * shard + times.replica_sync * replica +
         n.other_seconds.value_or(0);
}

ModeCost CostOf(const Numbers& n, const Parts& parts, const Mode& mode) {
  ModeCost cost;
  cost.mode = mode;
  const Mode present = n.present.value_or(Mode{});
  cost.present = mode == present;
  cost.step_seconds = cost.min_step_seconds = cost.max_step_seconds = StepSeconds(n, parts, mode);
  cost.exposed_seconds = cost.step_seconds - *n.accumulate * parts.compute - n.other_seconds.value_or(0);
  cost.speedup = StepSeconds(n, parts, present) / cost.step_seconds;
  FillTraffic(n, TimesOf(mode, *n.accumulate), &cost);
  FillMemory(n, &cost);
  return cost;
}

}  // namespace gradgate::planner
