// Why the daemon turned a client away, as a reason that travels inside an absl::Status and as a counter per reason.
//
// A Status made by Reject() carries its reason as a payload; RejectionOf() takes it out again. Each reason is one value of the
// label `reason` of gradgate_rejections_total.

#ifndef GRADGATE_DAEMON_NODE_REJECTION_H_
#define GRADGATE_DAEMON_NODE_REJECTION_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/link/frames.h"

namespace gradgate {

enum class Rejection : uint32_t {
  kOther = 0,
  kFrameShort,         // fewer bytes than a frame header
  kFrameLong,          // more than kMaxFrameBytes, or cut by the kernel
  kFrameMagic,         // not one of our frames
  kFrameVersion,       // another major
  kFrameUnknownType,   // a type this daemon does not know, or one that only a daemon sends
  kFrameSize,          // not its type's size
  kFrameContents,      // reserved fields set, fields out of range
  kDescriptorMissing,  // Hello without a descriptor
  kDescriptorSurplus,  // more than one descriptor, or one with another frame than Hello
  kHelloTwice,         // a second Hello on one connection
  kHelloMissing,       // another frame before Hello
  kHelloTimeout,       // no Hello before the deadline
  kClientLimit,        // too many clients
  kUserLimit,          // too many clients of one user
  kDescriptorLimit,    // this process has no descriptor left
  kPeerUnknown,        // the kernel does not tell who it is
  kPageNotMemfd,       // not a regular file in anonymous memory
  kPageUnsealed,       // could shrink or grow under the daemon
  kPageShort,          // smaller than a stats page
  kPageMap,            // mmap failed
  kPageNotReady,       // magic still zero
  kPageMagic,          // another magic
  kPageVersion,        // another major
  kPageLayout,         // another layout hash
  kPageHeader,         // sizes in the header differ
  kPageIdentity,       // text or numbers of the identity are invalid
  kRankDuplicate,      // another live process is this rank
  kRankLimit,          // too many ranks of one job, of one user or in all
};
inline constexpr size_t kRejectionCount = 29;

// The label value: lower case, words joined by underscores.
absl::string_view Name(Rejection reason);

// An InvalidArgument status with a reason. `message` names the wrong value and the remedy.
absl::Status Reject(Rejection reason, absl::string_view message);

// The reason inside `status`; kOther when it has none.
Rejection RejectionOf(const absl::Status& status);

// What the trainer is told.
link::RejectReason ToWire(Rejection reason);

// Counters by reason. Thread class: any thread; relaxed.
class RejectionCounts {
 public:
  void Add(Rejection reason) { counts_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }
  uint64_t Get(Rejection reason) const { return counts_[static_cast<size_t>(reason)].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kRejectionCount> counts_{};
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_REJECTION_H_
