#include "client/planner/plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/planner/words.h"

namespace gradgate::planner {
namespace {

absl::Status NotDivided(double ranks, absl::string_view by, double divisor) {
  return absl::InvalidArgumentError(
      absl::StrCat("ranks is ", ranks, ", which is no multiple of ", by, ", ", divisor, "; give ", by, " that divide it"));
}

absl::Status CheckCounts(const Numbers& n) {
  const double ranks = *n.rank_count;
  if (std::fmod(ranks, *n.node_count) != 0) return NotDivided(ranks, "nodes", *n.node_count);
  if (std::fmod(ranks, *n.shard_count) != 0) return NotDivided(ranks, "shards", *n.shard_count);
  if (n.present && n.present->sync == Sync::kReplica && ShardingOf(n) != Sharding::kHybrid) {
    return absl::InvalidArgumentError(
        absl::StrCat("the present mode is window_replica, which needs shards and replicas, but shards is ", *n.shard_count,
                     " of ", ranks, " ranks; give shards between 1 and ranks"));
  }
  return absl::OkStatus();
}

// Fills the bounds of each mode from what else is possible.
absl::Status Widen(const std::vector<Numbers>& alternatives, Plan* plan) {
  for (const Numbers& alternative : alternatives) {
    const absl::StatusOr<Numbers> numbers = WithDefaults(alternative);
    if (!numbers.ok()) return numbers.status();
    Notes ignored;
    const absl::StatusOr<Parts> parts = PartsOf(*numbers, &ignored);
    if (!parts.ok()) return parts.status();
    for (ModeCost& cost : plan->modes) {
      const double seconds = StepSeconds(*numbers, *parts, cost.mode);
      cost.min_step_seconds = std::min(cost.min_step_seconds, seconds);
      cost.max_step_seconds = std::max(cost.max_step_seconds, seconds);
    }
  }
  return absl::OkStatus();
}

// The fastest that fits; of those as fast, the first: it takes the least memory. Where none fits, the first.
void ChooseBest(double tolerance, Plan* plan) {
  ModeCost* fastest = nullptr;
  for (ModeCost& cost : plan->modes) {
    if (cost.fits.value_or(true) && (fastest == nullptr || cost.step_seconds < fastest->step_seconds)) fastest = &cost;
  }
  ModeCost* best = &plan->modes.front();
  if (fastest != nullptr) {
    const double enough = fastest->step_seconds * (1 + tolerance);
    const auto as_fast = [&](const ModeCost& c) { return c.fits.value_or(true) && c.step_seconds <= enough; };
    best = &*std::find_if(plan->modes.begin(), plan->modes.end(), as_fast);
    for (ModeCost& cost : plan->modes) {
      if (cost.present && as_fast(cost) && !(best->memory_bytes < cost.memory_bytes)) best = &cost;
    }
  }
  best->best = true;
}

Plan PlanFrom(const Numbers& numbers, const Parts& parts) {
  Plan plan;
  plan.numbers = numbers;
  plan.sharding = ShardingOf(numbers);
  for (const Mode& mode : ModesOf(plan.sharding)) plan.modes.push_back(CostOf(numbers, parts, mode));
  return plan;
}

// Micro-steps of all ranks per second.
double Throughput(const Numbers& n, double step_seconds) { return *n.rank_count * *n.accumulate / step_seconds; }

double PresentSeconds(const Plan& plan) { return plan.best().step_seconds * plan.best().speedup; }

absl::StatusOr<Plan> WhatIf(const Question& question, const Numbers& base, const Numbers& changes, Notes* notes) {
  if (absl::Status s = CheckRanges(changes); !s.ok()) return s;
  const absl::StatusOr<Numbers> numbers = WithDefaults(Changed(question.numbers, changes));
  if (!numbers.ok()) return numbers.status();
  const absl::StatusOr<Parts> parts = PartsAfter(base, changes, *numbers, notes);
  if (!parts.ok()) return parts.status();
  Plan plan = PlanFrom(*numbers, *parts);
  plan.label = Label(changes);
  ChooseBest(question.tolerance, &plan);
  plan.why = Why(plan, question.tolerance);
  return plan;
}

}  // namespace

const ModeCost& Plan::best() const {
  return *std::find_if(modes.begin(), modes.end(), [](const ModeCost& cost) { return cost.best; });
}

absl::StatusOr<Numbers> WithDefaults(const Numbers& given) {
  if (absl::Status s = CheckRanges(given); !s.ok()) return s;
  Numbers n = given;
  const auto set = [](Numbers::Value& value, double fallback) {
    if (!value) value = fallback;
  };
  if (!n.rank_count) return absl::FailedPreconditionError("ranks, the number of ranks, is not known; give it");
  if (!n.accumulate)
    return absl::FailedPreconditionError("accumulate, the micro-steps per optimizer step, is not known; give it");
  set(n.node_count, 1);
  set(n.shard_count, 1);
  set(n.parameter_element_bytes, 4);
  set(n.gradient_element_bytes, 4);
  set(n.wire_element_bytes, *n.gradient_element_bytes);
  set(n.state_element_bytes, 12);
  set(n.backward_share, 2.0 / 3);
  set(n.overlap_share, 1);
  set(n.other_seconds, 0);
  set(n.link_latency_seconds, 10e-6);
  set(n.intra_latency_seconds, 3e-6);
  set(n.bucket_bytes, 25.0 * (1 << 20));
  if (!n.collective_count && n.parameter_count && *n.shard_count == 1) {
    n.collective_count = std::max(1.0, std::ceil(*n.parameter_count * *n.gradient_element_bytes / *n.bucket_bytes));
  }
  if (!n.present) n.present = Mode{};
  if (absl::Status s = CheckCounts(n); !s.ok()) return s;
  return n;
}

Numbers Changed(const Numbers& base, const Numbers& changes) {
  Numbers n = Merged(base, changes);
  const double ranks = base.rank_count.value_or(1), nodes = base.node_count.value_or(1);
  const double per_node = ranks / nodes;
  if (changes.rank_count && !changes.node_count && base.node_count) {
    n.node_count = std::max(1.0, std::ceil(*changes.rank_count / per_node));
  }
  if (changes.node_count && !changes.rank_count) n.rank_count = *changes.node_count * per_node;
  if (!changes.shard_count && base.shard_count && *base.shard_count > 1 && *base.shard_count == ranks) {
    n.shard_count = n.rank_count;
  }
  return n;
}

absl::StatusOr<Answer> MakePlan(const Question& question) {
  if (question.what_ifs.size() > kMaxWhatIfs) {
    return absl::InvalidArgumentError(
        absl::StrCat(question.what_ifs.size(), " what-ifs are more than ", kMaxWhatIfs, "; ask for fewer at a time"));
  }
  const absl::StatusOr<Numbers> numbers = WithDefaults(question.numbers);
  if (!numbers.ok()) return numbers.status();
  Answer answer;
  const absl::StatusOr<Parts> parts = PartsOf(*numbers, &answer.notes);
  if (!parts.ok()) return parts.status();
  answer.plan = PlanFrom(*numbers, *parts);
  if (absl::Status s = Widen(question.alternatives, &answer.plan); !s.ok()) return s;
  ChooseBest(question.tolerance, &answer.plan);
  answer.plan.why = Why(answer.plan, question.tolerance);
  const double now = Throughput(*numbers, PresentSeconds(answer.plan));
  answer.plan.relative_throughput = Throughput(*numbers, answer.plan.best().step_seconds) / now;
  for (const Numbers& changes : question.what_ifs) {
    absl::StatusOr<Plan> plan = WhatIf(question, *numbers, changes, &answer.notes);
    if (!plan.ok())
      return absl::Status(plan.status().code(), absl::StrCat("what if ", Label(changes), ": ", plan.status().message()));
    plan->relative_throughput = Throughput(plan->numbers, plan->best().step_seconds) / now;
    answer.what_ifs.push_back(*std::move(plan));
  }
  answer.advice = Advice(answer.plan);
  answer.policy = Policy(answer.plan);
  return answer;
}

}  // namespace gradgate::planner
