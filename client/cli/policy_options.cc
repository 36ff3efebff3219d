#include "client/cli/policy_options.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/shm/types.h"

namespace gradgate::cli {
namespace {

using Values = std::vector<std::pair<absl::string_view, int>>;
constexpr char kGiven[] = "given";
constexpr char kAsGiven[] = "as given";

const Values& Modes() {
  static const auto* values = new Values{{"auto", v1::SYNC_MODE_AUTO},
                                         {"window", v1::SYNC_MODE_WINDOW},
                                         {"window_replica", v1::SYNC_MODE_WINDOW_REPLICA},
                                         {"every_micro_step", v1::SYNC_MODE_EVERY_MICRO_STEP}};
  return *values;
}
const Values& Wires() {
  static const auto* values =
      new Values{{"gradient", v1::WIRE_TYPE_GRADIENT}, {"bf16", v1::WIRE_TYPE_BF16}, {"fp16", v1::WIRE_TYPE_FP16}};
  return *values;
}
const Values& Reshards() {
  static const auto* values = new Values{{"every_micro_step", v1::RESHARD_EVERY_MICRO_STEP}, {"window", v1::RESHARD_WINDOW}};
  return *values;
}
const Values& Enforcements() {
  static const auto* values = new Values{{"audit", v1::ENFORCEMENT_AUDIT}, {"enforce", v1::ENFORCEMENT_ENFORCE}};
  return *values;
}

// 0 for "given".
absl::StatusOr<int64_t> Find(const Values& values, absl::string_view name, absl::string_view text) {
  if (text == kGiven) return 0;
  std::vector<absl::string_view> all;
  for (const auto& [word, value] : values) {
    if (word == text) return value;
    all.push_back(word);
  }
  all.push_back(kGiven);
  return absl::InvalidArgumentError(absl::StrCat(name, "=", text, ": must be one of ", absl::StrJoin(all, ", ")));
}

std::string NameOf(const Values& values, int value) {
  const auto at = std::find_if(values.begin(), values.end(), [value](const auto& one) { return one.second == value; });
  if (at != values.end()) return std::string(at->first);
  return value == 0 ? kAsGiven : absl::StrCat(value);
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  if (text == kGiven) return 0;
  constexpr std::pair<absl::string_view, double> kUnits[] = {{"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"kb", 1e3},
                                                             {"mb", 1e6},     {"gb", 1e9},     {"b", 1}};
  const std::string lower = absl::AsciiStrToLower(text);
  absl::string_view number = lower;
  double unit = 1;
  for (const auto& [name, bytes] : kUnits) {
    if (!absl::ConsumeSuffix(&number, name)) continue;
    unit = bytes;
    break;
  }
  double value;
  if (absl::SimpleAtod(absl::StripAsciiWhitespace(number), &value) && value * unit >= static_cast<double>(kMinBucketBytes) &&
      value * unit <= static_cast<double>(kMaxBucketBytes)) {
    return static_cast<int64_t>(value * unit);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("bucket=", text, ": must be a size from 4KiB to 1024GiB, as 25MiB or 26214400, or ", kGiven));
}

// What may stand before the "=", and what becomes of what stands behind it.
struct Change {
  absl::string_view name;
  const char* field;  // of v1::Policy
  absl::StatusOr<int64_t> (*parse)(absl::string_view text);
  void (*set)(v1::Policy& policy, int64_t value);
};

constexpr Change kChanges[] = {
    {"mode", "sync_mode", [](absl::string_view text) { return Find(Modes(), "mode", text); },
     [](v1::Policy& policy, int64_t value) { policy.set_sync_mode(static_cast<v1::SyncMode>(value)); }},
    {"bucket", "bucket_bytes", ParseBytes, [](v1::Policy& policy, int64_t value) { policy.set_bucket_bytes(value); }},
    {"wire", "wire_type", [](absl::string_view text) { return Find(Wires(), "wire", text); },
     [](v1::Policy& policy, int64_t value) { policy.set_wire_type(static_cast<v1::WireType>(value)); }},
    {"reshard", "reshard", [](absl::string_view text) { return Find(Reshards(), "reshard", text); },
     [](v1::Policy& policy, int64_t value) { policy.set_reshard(static_cast<v1::Reshard>(value)); }},
    {"enforcement", "enforcement", [](absl::string_view text) { return Find(Enforcements(), "enforcement", text); },
     [](v1::Policy& policy, int64_t value) { policy.set_enforcement(static_cast<v1::Enforcement>(value)); }},
};

absl::Status Apply(absl::string_view word, v1::SetPolicyRequest& request) {
  const size_t equals = word.find('=');
  const absl::string_view name = word.substr(0, equals);
  const auto change =
      std::find_if(std::begin(kChanges), std::end(kChanges), [&](const Change& one) { return one.name == name; });
  if (equals == absl::string_view::npos || change == std::end(kChanges)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", word, "\": a policy has mode=, bucket=, wire=, reshard= and enforcement="));
  }
  const absl::StatusOr<int64_t> value = change->parse(word.substr(equals + 1));
  if (!value.ok()) return value.status();
  const auto& paths = request.update_mask().paths();
  if (std::find(paths.begin(), paths.end(), change->field) != paths.end()) {
    return absl::InvalidArgumentError(absl::StrCat(name, "= is given twice"));
  }
  request.mutable_update_mask()->add_paths(change->field);
  change->set(*request.mutable_policy(), *value);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::SetPolicyRequest> ParsePolicy(const std::vector<std::string>& words) {
  v1::SetPolicyRequest request;
  for (const std::string& word : words) {
    if (absl::Status status = Apply(word, request); !status.ok()) return status;
  }
  return request;
}

std::vector<std::string> PolicyChanges() {
  std::vector<std::string> words;
  const auto add = [&words](absl::string_view name, const Values& values) {
    for (const auto& [word, value] : values) words.push_back(absl::StrCat(name, "=", word));
    words.push_back(absl::StrCat(name, "=", kGiven));
  };
  add("mode", Modes());
  words.emplace_back("bucket=");
  add("wire", Wires());
  add("reshard", Reshards());
  add("enforcement", Enforcements());
  return words;
}

std::string ModeText(const v1::Policy& policy) { return NameOf(Modes(), policy.sync_mode()); }
std::string WireText(const v1::Policy& policy) { return NameOf(Wires(), policy.wire_type()); }
std::string ReshardText(const v1::Policy& policy) { return NameOf(Reshards(), policy.reshard()); }
std::string EnforcementText(const v1::Policy& policy) { return NameOf(Enforcements(), policy.enforcement()); }
std::string BucketText(const v1::Policy& policy) {
  if (policy.bucket_bytes() == 0) return kAsGiven;
  return absl::StrFormat("%.6g MiB", static_cast<double>(policy.bucket_bytes()) / 0x1p20);
}

}  // namespace gradgate::cli
