#include "daemon/node/rejection.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gradgate {
namespace {

constexpr char kPayload[] = "gradgate.rejection";

constexpr std::array<absl::string_view, kRejectionCount> kNames = {
    "other",         "frame_short",    "frame_long",         "frame_magic",        "frame_version", "frame_unknown_type",
    "frame_size",    "frame_contents", "descriptor_missing", "descriptor_surplus", "hello_twice",   "hello_missing",
    "hello_timeout", "client_limit",   "user_limit",         "descriptor_limit",   "peer_unknown",  "page_not_memfd",
    "page_unsealed", "page_short",     "page_map",           "page_not_ready",     "page_magic",    "page_version",
    "page_layout",   "page_header",    "page_identity",      "rank_duplicate",     "rank_limit",
};
static_assert(kNames[static_cast<size_t>(Rejection::kRankLimit)] == "rank_limit" && kNames.back() == "rank_limit");

}  // namespace

absl::string_view Name(Rejection reason) {
  const size_t index = static_cast<size_t>(reason);
  return index < kNames.size() ? kNames[index] : "other";
}

absl::Status Reject(Rejection reason, absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(static_cast<uint32_t>(reason))));
  return status;
}

Rejection RejectionOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  uint32_t value = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &value) || value >= kRejectionCount) return Rejection::kOther;
  return static_cast<Rejection>(value);
}

link::RejectReason ToWire(Rejection reason) {
  switch (reason) {
    case Rejection::kFrameVersion:
    case Rejection::kPageVersion:
    case Rejection::kPageLayout:
      return link::RejectReason::kVersion;
    case Rejection::kDescriptorMissing:
    case Rejection::kDescriptorSurplus:
    case Rejection::kPageNotMemfd:
    case Rejection::kPageUnsealed:
    case Rejection::kPageShort:
    case Rejection::kPageMap:
    case Rejection::kPageNotReady:
    case Rejection::kPageMagic:
    case Rejection::kPageHeader:
    case Rejection::kPageIdentity:
      return link::RejectReason::kPage;
    case Rejection::kClientLimit:
    case Rejection::kUserLimit:
    case Rejection::kDescriptorLimit:
    case Rejection::kRankLimit:
      return link::RejectReason::kLimit;
    case Rejection::kRankDuplicate:
      return link::RejectReason::kIdentity;
    default:
      return link::RejectReason::kUnspecified;
  }
}

}  // namespace gradgate
