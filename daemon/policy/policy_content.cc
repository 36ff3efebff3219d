#include "daemon/policy/policy_content.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/util/field_mask_util.h"
#include "proto/shm/types.h"

namespace gradgate {
namespace {

using google::protobuf::util::FieldMaskUtil;

static_assert(v1::SYNC_MODE_AUTO == static_cast<int>(SyncMode::kAuto));
static_assert(v1::WIRE_TYPE_FP16 == static_cast<int>(WireType::kFp16));
static_assert(v1::RESHARD_WINDOW == static_cast<int>(Reshard::kWindow));
static_assert(v1::ENFORCEMENT_ENFORCE == static_cast<int>(Enforcement::kEnforce));
static_assert(v1::POLICY_REJECTION_FIXED == static_cast<int>(PolicyRejection::kFixed));
constexpr char kFields[] = "sync_mode, bucket_bytes, wire_type, reshard, enforcement";

absl::Status UnknownValue(const char* field, int value) {
  return absl::InvalidArgumentError(absl::StrCat(
      field, " has the value ", value, ", which this daemon does not know; use a client and a daemon of one version"));
}

}  // namespace

absl::Status CheckPolicy(const v1::Policy& policy) {
  if (!v1::SyncMode_IsValid(policy.sync_mode())) return UnknownValue("sync_mode", policy.sync_mode());
  if (!v1::WireType_IsValid(policy.wire_type())) return UnknownValue("wire_type", policy.wire_type());
  if (!v1::Reshard_IsValid(policy.reshard())) return UnknownValue("reshard", policy.reshard());
  if (!v1::Enforcement_IsValid(policy.enforcement())) return UnknownValue("enforcement", policy.enforcement());
  const int64_t bytes = policy.bucket_bytes();
  if (bytes != 0 && (bytes < static_cast<int64_t>(kMinBucketBytes) || bytes > static_cast<int64_t>(kMaxBucketBytes))) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_bytes is ", bytes, "; give ", kMinBucketBytes, " to ",
                                                   kMaxBucketBytes, ", or 0 for what the trainers were given"));
  }
  if (policy.enforcement() == v1::ENFORCEMENT_OFF) {
    return absl::InvalidArgumentError(
        "enforcement is OFF, which is for all ranks' whole life and so given at start (GRADGATE=off); a running job takes "
        "AUDIT, "
        "which also lets every micro-step reduce, or ENFORCE");
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Policy> Merge(const v1::Policy& present, const v1::Policy& change, const google::protobuf::FieldMask& mask) {
  if (mask.paths().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("update_mask is empty, so nothing would change; a policy has ", kFields));
  }
  for (const std::string& path : mask.paths()) {
    if (v1::Policy::descriptor()->FindFieldByName(path) != nullptr) continue;  // to FieldMaskUtil "" is a path, to everything
    return absl::InvalidArgumentError(absl::StrCat("update_mask has \"", path, "\"; a policy has ", kFields));
  }
  v1::Policy masked = change;
  FieldMaskUtil::TrimMessage(mask, &masked);
  if (masked.SerializeAsString() != change.SerializeAsString()) {
    return absl::InvalidArgumentError("the policy sets a field that update_mask does not have; name it there, or leave it out");
  }
  v1::Policy merged = present;
  FieldMaskUtil::MergeOptions options;
  FieldMaskUtil::MergeMessageTo(change, mask, options, &merged);
  if (absl::Status status = CheckPolicy(merged); !status.ok()) return status;
  return merged;
}

link::PolicyFrame ToFrame(const v1::Policy& policy, int64_t version) {
  link::PolicyFrame frame{};
  frame.version = static_cast<uint64_t>(version);
  frame.bucket_bytes = static_cast<uint64_t>(policy.bucket_bytes());
  frame.sync_mode = static_cast<uint32_t>(policy.sync_mode());
  frame.wire_type = static_cast<uint32_t>(policy.wire_type());
  frame.reshard = static_cast<uint32_t>(policy.reshard());
  frame.enforcement = static_cast<uint32_t>(policy.enforcement());
  frame.content_hash = link::PolicyContentHash(frame);
  return frame;
}

std::string FormatHash(const link::PolicyFrame& frame) { return absl::StrFormat("%016x", frame.content_hash); }

std::string Explain(v1::PolicyRejection rejection) {
  switch (rejection) {
    case v1::POLICY_REJECTION_NO_REPLICAS:
      return "window_replica needs groups that shard and groups that replicate, and its model has not both";
    case v1::POLICY_REJECTION_NO_BUCKETS:
      return "its wrapper has no buckets whose size could be set";
    case v1::POLICY_REJECTION_HOOK_HELD:
      return "the trainer's own communication hook decides what travels";
    case v1::POLICY_REJECTION_NO_WIRE_TYPE:
      return "gradients cannot travel in this type there";
    case v1::POLICY_REJECTION_NOTHING_GATHERED:
      return "no parameters are gathered there, so none can be kept";
    case v1::POLICY_REJECTION_INVALID:
      return "its shim does not know these values; use a shim and a daemon of one version";
    case v1::POLICY_REJECTION_LEFT_ALONE:
      return "gradgate is off there, or leaves the job alone";
    case v1::POLICY_REJECTION_FIXED:
      return "this cannot change while it runs there; give it at start";
    default:
      return "it does not say why";
  }
}

}  // namespace gradgate
