// What a plan is made from: a job's size, its parameters, its links, and what one micro-step takes. A value that is not set is
// not known. Names, units and meanings are those of PlanNumbers in proto/gradgate/v1/plan.proto; counts are whole numbers.

#ifndef GRADGATE_CLIENT_PLANNER_NUMBERS_H_
#define GRADGATE_CLIENT_PLANNER_NUMBERS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace gradgate::planner {

enum class Sync { kEvery, kReplica, kWindow };  // every_micro_step, window_replica, window

struct Mode {
  Sync sync = Sync::kEvery;
  bool kept = false;  // parameters stay unsharded inside the window

  bool operator==(const Mode& other) const { return sync == other.sync && kept == other.kept; }
};

enum class Sharding { kNone, kFull, kHybrid };

struct Numbers {
  using Value = std::optional<double>;

  Value rank_count, node_count, shard_count, accumulate;
  Value parameter_count, parameter_element_bytes, gradient_element_bytes, wire_element_bytes, state_element_bytes;
  Value compute_seconds, backward_share, overlap_share, other_seconds;
  Value sync_seconds, shard_sync_seconds, replica_sync_seconds, gather_forward_seconds, gather_backward_seconds;
  Value link_bytes_per_second, link_latency_seconds, intra_bytes_per_second, intra_latency_seconds;
  Value bucket_bytes, collective_count;
  Value memory_limit_bytes, memory_used_bytes, activation_bytes;
  std::optional<Mode> present;
};

inline constexpr double kMaxRanks = 16384;

// One value of Numbers: how people write it, and what it may be.
struct Field {
  const char* key;    // as in "--ranks" and "--what-if ranks=128"
  const char* proto;  // its name in PlanNumbers
  Numbers::Value Numbers::*value;
  double unit;  // of what is written, in that of `value`
  double min, max;
  bool whole;
  const char* about;
};

// Every value, in the order in which help lists them.
absl::Span<const Field> Fields();

// Null: none.
const Field* FindField(absl::string_view key);

// As people write it, in the field's own unit; element types also as fp64, fp32, bf16, fp16, fp8. INVALID_ARGUMENT names the
// value and what it may be.
absl::StatusOr<double> ParseValue(const Field& field, absl::string_view text);

// In the field's own unit, as short as can be: "128", "0.25", "7e9".
std::string FormatValue(const Field& field, double value);

// INVALID_ARGUMENT names the first value outside its range.
absl::Status CheckRanges(const Numbers& numbers);

// `base` with what is set in `changes`.
Numbers Merged(const Numbers& base, const Numbers& changes);

// "ranks=128 link-gbit=400"; empty where nothing is set.
std::string Label(const Numbers& changes);

// "ranks=128,link-gbit=400". INVALID_ARGUMENT: an unknown key, named with those that there are; a value, as ParseValue.
absl::StatusOr<Numbers> ParseChanges(absl::string_view text);

}  // namespace gradgate::planner

#endif  // GRADGATE_CLIENT_PLANNER_NUMBERS_H_
