#include "client/planner/numbers.h"

#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace gradgate::planner {
namespace {

constexpr double kMiB = 1024.0 * 1024;
constexpr double kGiB = 1024 * kMiB;
constexpr double kGbit = 1e9 / 8;
constexpr double kMicro = 1e-6;
constexpr double kDay = 86400;

constexpr Field kFields[] = {
    {"ranks", "rank_count", &Numbers::rank_count, 1, 1, kMaxRanks, true, "Ranks of the job"},
    {"nodes", "node_count", &Numbers::node_count, 1, 1, kMaxRanks, true,
     "Nodes, as many ranks on each; default 1, of a job those that are seen"},
    {"shards", "shard_count", &Numbers::shard_count, 1, 1, kMaxRanks, true,
     "Ranks that share one copy of the parameters; 1: DDP (default), all ranks: FSDP, between: HSDP"},
    {"accumulate", "accumulate", &Numbers::accumulate, 1, 1, 65536, true, "Micro-steps per optimizer step"},
    {"params", "parameter_count", &Numbers::parameter_count, 1, 1, 1e13, true, "Trained parameters, as 7e9"},
    {"param-type", "parameter_element_bytes", &Numbers::parameter_element_bytes, 1, 0.5, 16, false,
     "Of gathered parameters: fp32 (default), bf16, …, or bytes"},
    {"grad-type", "gradient_element_bytes", &Numbers::gradient_element_bytes, 1, 0.5, 16, false,
     "Of gradients as they are held: fp32 (default), bf16, …, or bytes"},
    {"wire-type", "wire_element_bytes", &Numbers::wire_element_bytes, 1, 0.5, 16, false,
     "Of gradients as they travel: fp32, bf16, …, or bytes; default as they are held"},
    {"state-bytes", "state_element_bytes", &Numbers::state_element_bytes, 1, 0, 64, false,
     "Bytes of a parameter and its optimizer state; default 12, Adam in float32"},
    {"compute-s", "compute_seconds", &Numbers::compute_seconds, 1, 1e-9, kDay, false,
     "Seconds of computing, a micro-step, with the gathers and reductions that are not given"},
    {"backward-share", "backward_share", &Numbers::backward_share, 1, 0, 1, false,
     "Share of it that is backward; default two thirds"},
    {"overlap-share", "overlap_share", &Numbers::overlap_share, 1, 0, 1, false,
     "Share of the computing beside a collective that hides it; default 1"},
    {"other-s", "other_seconds", &Numbers::other_seconds, 1, 0, kDay, false,
     "Seconds a step beside its micro-steps; default 0, of a job what is measured"},
    {"sync-s", "sync_seconds", &Numbers::sync_seconds, 1, 0, kDay, false, "Seconds exposed of one whole reduction"},
    {"shard-sync-s", "shard_sync_seconds", &Numbers::shard_sync_seconds, 1, 0, kDay, false,
     "Of that, the reduce-scatter among shards"},
    {"replica-sync-s", "replica_sync_seconds", &Numbers::replica_sync_seconds, 1, 0, kDay, false,
     "Of that, the all-reduce across replicas"},
    {"gather-forward-s", "gather_forward_seconds", &Numbers::gather_forward_seconds, 1, 0, kDay, false,
     "Seconds exposed of a forward's all-gathers"},
    {"gather-backward-s", "gather_backward_seconds", &Numbers::gather_backward_seconds, 1, 0, kDay, false,
     "Seconds exposed of a backward's all-gathers"},
    {"link-gbit", "link_bytes_per_second", &Numbers::link_bytes_per_second, kGbit, 1e-6, 1e6, false,
     "Gbit/s of a node's link, each direction, shared by its ranks"},
    {"link-us", "link_latency_seconds", &Numbers::link_latency_seconds, kMicro, 0, 1e7, false,
     "Microseconds of a message between nodes; default 10"},
    {"intra-gbit", "intra_bytes_per_second", &Numbers::intra_bytes_per_second, kGbit, 1e-6, 1e6, false,
     "Gbit/s of a rank's link inside its node, each direction"},
    {"intra-us", "intra_latency_seconds", &Numbers::intra_latency_seconds, kMicro, 0, 1e7, false,
     "Microseconds of a message inside a node; default 3"},
    {"bucket-mib", "bucket_bytes", &Numbers::bucket_bytes, kMiB, 4096 / kMiB, 1e6, false, "MiB of a DDP bucket; default 25"},
    {"collectives", "collective_count", &Numbers::collective_count, 1, 1, 1e6, true,
     "Collectives of one reduction: buckets, or wrapped modules; default 32 modules"},
    {"memory-gib", "memory_limit_bytes", &Numbers::memory_limit_bytes, kGiB, 1e-3, 1e6, false, "GiB that a rank may use"},
    {"used-gib", "memory_used_bytes", &Numbers::memory_used_bytes, kGiB, 0, 1e6, false,
     "GiB that a rank uses at its peak in the present mode"},
    {"activation-gib", "activation_bytes", &Numbers::activation_bytes, kGiB, 0, 1e6, false,
     "GiB of activations of a micro-step"},
};

struct ElementType {
  const char* name;
  double bytes;
};
constexpr ElementType kElementTypes[] = {{"fp64", 8}, {"fp32", 4}, {"bf16", 2}, {"fp16", 2}, {"fp8", 1}};

bool IsElementType(const Field& field) { return absl::EndsWith(field.key, "-type"); }

std::string Range(const Field& field) {
  return absl::StrCat(IsElementType(field) ? "fp64, fp32, bf16, fp16, fp8, or " : "",
                      field.whole ? "a whole number" : "a number", IsElementType(field) ? " of bytes" : "", " from ", field.min,
                      " to ", field.max);
}

// What is wrong with it, in the field's own unit; the comparison is false for NaN.
bool InRange(const Field& field, double written) {
  constexpr double kRounding = 1e-9;
  const bool inside = written >= field.min * (1 - kRounding) && written <= field.max * (1 + kRounding);
  return inside && (!field.whole || written == std::floor(written));
}

absl::Status OutOfRange(const Field& field, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(field.key, ": \"", text, "\" is not ", Range(field)));
}

}  // namespace

absl::Span<const Field> Fields() { return kFields; }

const Field* FindField(absl::string_view key) {
  for (const Field& field : kFields) {
    if (key == field.key) return &field;
  }
  return nullptr;
}

absl::StatusOr<double> ParseValue(const Field& field, absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  if (IsElementType(field)) {
    for (const ElementType& type : kElementTypes) {
      if (trimmed == type.name) return type.bytes * field.unit;
    }
  }
  double written;
  if (!absl::SimpleAtod(trimmed, &written) || !InRange(field, written)) return OutOfRange(field, text);
  return written * field.unit;
}

std::string FormatValue(const Field& field, double value) {
  const double written = value / field.unit;
  if (field.whole && written < 1e6) return absl::StrFormat("%.0f", written);
  return absl::StrCat(absl::StrFormat("%.6g", written));
}

absl::Status CheckRanges(const Numbers& numbers) {
  for (const Field& field : kFields) {
    const Numbers::Value& value = numbers.*field.value;
    if (value && !InRange(field, *value / field.unit)) return OutOfRange(field, FormatValue(field, *value));
  }
  return absl::OkStatus();
}

Numbers Merged(const Numbers& base, const Numbers& changes) {
  Numbers merged = base;
  for (const Field& field : kFields) {
    if (changes.*field.value) merged.*field.value = changes.*field.value;
  }
  if (changes.present) merged.present = changes.present;
  return merged;
}

std::string Label(const Numbers& changes) {
  std::vector<std::string> parts;
  for (const Field& field : kFields) {
    if (const auto& value = changes.*field.value) parts.push_back(absl::StrCat(field.key, "=", FormatValue(field, *value)));
  }
  return absl::StrJoin(parts, " ");
}

absl::StatusOr<Numbers> ParseChanges(absl::string_view text) {
  Numbers changes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const Field* field = FindField(absl::StripAsciiWhitespace(words.first));
    if (field == nullptr) {
      const auto keys = absl::StrJoin(kFields, ", ", [](std::string* out, const Field& f) { absl::StrAppend(out, f.key); });
      return absl::InvalidArgumentError(absl::StrCat("\"", part, "\" is not KEY=VALUE with a KEY of: ", keys));
    }
    const auto value = ParseValue(*field, words.second);
    if (!value.ok()) return value.status();
    changes.*field->value = *value;
  }
  return changes;
}

}  // namespace gradgate::planner
