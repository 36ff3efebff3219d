#include "shim/core/policy_stage.h"

#include <algorithm>

namespace gradgate {

bool KnownPolicy(const SyncPolicy& policy) {
  const bool enforcement = policy.enforcement == Enforcement::kUnspecified || policy.enforcement == Enforcement::kAudit ||
                           policy.enforcement == Enforcement::kEnforce;
  const bool bucket =
      policy.bucket_bytes == 0 || (policy.bucket_bytes >= kMinBucketBytes && policy.bucket_bytes <= kMaxBucketBytes);
  return policy.sync_mode <= SyncMode::kAuto && policy.wire_type <= WireType::kFp16 && policy.reshard <= Reshard::kWindow &&
         enforcement && bucket;
}

bool PolicyStage::Offered(const SyncPolicy& policy) {
  const uint64_t known =
      std::max({in_force_.version, staged_.version, accepted_.version, unvetted_.version, rejected_version_});
  if (policy.version <= known) return false;
  unvetted_ = policy;
  return true;
}

void PolicyStage::Accept() {
  if (unvetted_.version == 0) return;
  accepted_ = unvetted_;
  unvetted_ = SyncPolicy{};
}

void PolicyStage::Reject(PolicyRejection why) {
  if (unvetted_.version == 0) return;
  rejected_version_ = unvetted_.version;
  rejection_ = why;
  unvetted_ = SyncPolicy{};
}

PolicyStage::Ticket PolicyStage::Vote() {
  if (accepted_.version != 0 && !vote_unread_ && !agreed_) {
    staged_ = accepted_;
    accepted_ = SyncPolicy{};
  }
  vote_unread_ = true;
  return {static_cast<int64_t>(staged_.version), static_cast<int64_t>(staged_.content_hash)};
}

void PolicyStage::Read(Ticket min, Ticket max) {
  vote_unread_ = false;
  const Ticket own{static_cast<int64_t>(staged_.version), static_cast<int64_t>(staged_.content_hash)};
  agreed_ |= own.version != 0 && min == own && max == own;
}

bool PolicyStage::WindowClosed(uint64_t next_window, bool alone) {
  if (alone) {
    (void)Vote();
    vote_unread_ = false;
    agreed_ = staged_.version != 0;
  }
  if (!agreed_) return false;
  in_force_ = staged_;
  staged_ = SyncPolicy{};
  adopted_window_ = next_window;
  agreed_ = false;
  return true;
}

}  // namespace gradgate
