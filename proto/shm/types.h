// Enumerations that trainer and daemon share, with the one spelling each has in tables, JSON and metric labels.
//
// Standard library only. Values are wire values: appended, never renumbered.

#ifndef GRADGATE_PROTO_SHM_TYPES_H_
#define GRADGATE_PROTO_SHM_TYPES_H_

#include <cstdint>
#include <string_view>

namespace gradgate {

// The role of a process group, never its identity: label cardinality stays bounded.
enum class GroupRole : uint8_t { kDp = 0, kShard = 1, kReplicate = 2, kOther = 3 };
inline constexpr uint32_t kGroupRoleCount = 4;

// Collective operations. A coalesced call counts once; its tensors are counted beside it.
enum class CollectiveOp : uint8_t {
  kAllReduce = 0,
  kReduceScatter = 1,
  kAllGather = 2,
  kBroadcast = 3,
  kReduce = 4,
  kGather = 5,
  kScatter = 6,
  kAllToAll = 7,
  kBarrier = 8,
  kSend = 9,
  kRecv = 10,
};
inline constexpr uint32_t kCollectiveOpCount = 11;

// What a collective was for.
enum class TrafficClass : uint8_t {
  kGradient = 0,  // carries gradients
  kOurs = 1,      // gradgate's own: ballot, item counts, naming of odd ranks
  kOther = 2,     // the trainer's: loss logging, buffers, clipping
};
inline constexpr uint32_t kTrafficClassCount = 3;

enum class SyncMode : uint8_t {
  kUnspecified = 0,
  kEveryMicroStep = 1,
  kWindow = 2,
  kWindowReplica = 3,
  kAuto = 4,
};

// What gradgate may do in this job; agreed by all ranks in the handshake.
enum class Enforcement : uint8_t {
  kUnspecified = 0,
  kOff = 1,      // every micro-step reduces, nothing is counted or exported
  kAudit = 2,    // every micro-step reduces; what the policy would have done is counted beside it
  kEnforce = 3,  // the policy is carried out
};

// The type in which gradients travel. Unspecified, here and below: as the trainer was given.
enum class WireType : uint8_t { kUnspecified = 0, kGradient = 1, kBf16 = 2, kFp16 = 3 };

// A policy's bucket size is 0, for as given, or between these.
inline constexpr uint64_t kMinBucketBytes = 4096;
inline constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 40;

// What sharded wrappers do with gathered parameters inside a window.
enum class Reshard : uint8_t { kUnspecified = 0, kEveryMicroStep = 1, kWindow = 2 };

// Why a rank cannot carry out a policy.
enum class PolicyRejection : uint8_t {
  kNone = 0,
  kNoReplicas = 1,       // window_replica without groups that shard and groups that replicate
  kNoBuckets = 2,        // no buckets whose size could be set while the job runs
  kHookHeld = 3,         // the trainer's own communication hook decides what travels
  kNoWireType = 4,       // this wire type does not exist here
  kNothingGathered = 5,  // no parameters are gathered that could be kept
  kInvalid = 6,          // values that are not valid, or not known to this shim
  kLeftAlone = 7,        // gradgate is off, or leaves this job alone
  kFixed = 8,            // this kind of attachment cannot change it while it runs
};
inline constexpr uint32_t kPolicyRejectionCount = 9;

enum class WindowKind : uint8_t {
  kUnspecified = 0,
  kFull = 1,     // as many micro-steps as declared, or any number where none is
  kPartial = 2,  // another number than declared, at least one
  kEmpty = 3,    // this rank brought none
};

enum class EventKind : uint8_t {
  kUnspecified = 0,
  kMicroStepBegin = 1,
  kMicroStepEnd = 2,      // value: duration, ns
  kCollectiveIssued = 3,  // value: bytes
  kCollectiveDone = 4,    // value: duration since issue, ns
  kCollectiveFailed = 5,  // value: duration since issue, ns
  kWindowClosed = 6,      // value: exposed time, ns
};
inline constexpr uint32_t kEventKindCount = 7;

constexpr std::string_view Name(GroupRole role) {
  constexpr std::string_view kNames[] = {"dp", "shard", "replicate", "other"};
  return static_cast<uint32_t>(role) < kGroupRoleCount ? kNames[static_cast<uint32_t>(role)] : "invalid";
}

constexpr std::string_view Name(CollectiveOp op) {
  constexpr std::string_view kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
                                         "scatter",    "all_to_all",     "barrier",    "send",      "recv"};
  return static_cast<uint32_t>(op) < kCollectiveOpCount ? kNames[static_cast<uint32_t>(op)] : "invalid";
}

constexpr std::string_view Name(SyncMode mode) {
  switch (mode) {
    case SyncMode::kEveryMicroStep:
      return "every_micro_step";
    case SyncMode::kWindow:
      return "window";
    case SyncMode::kWindowReplica:
      return "window_replica";
    case SyncMode::kAuto:
      return "auto";
    case SyncMode::kUnspecified:
      break;
  }
  return "unspecified";
}

constexpr std::string_view Name(Enforcement enforcement) {
  switch (enforcement) {
    case Enforcement::kOff:
      return "off";
    case Enforcement::kAudit:
      return "audit";
    case Enforcement::kEnforce:
      return "enforce";
    case Enforcement::kUnspecified:
      break;
  }
  return "unspecified";
}

constexpr std::string_view Name(WindowKind kind) {
  switch (kind) {
    case WindowKind::kFull:
      return "full";
    case WindowKind::kPartial:
      return "partial";
    case WindowKind::kEmpty:
      return "empty";
    case WindowKind::kUnspecified:
      break;
  }
  return "unspecified";
}

}  // namespace gradgate

#endif  // GRADGATE_PROTO_SHM_TYPES_H_
