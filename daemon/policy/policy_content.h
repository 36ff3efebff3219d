// A policy's content as message and as frame, and what is wrong with one. Pure functions.

#ifndef GRADGATE_DAEMON_POLICY_POLICY_CONTENT_H_
#define GRADGATE_DAEMON_POLICY_POLICY_CONTENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/field_mask.pb.h"
#include "gradgate/v1/policy.pb.h"
#include "proto/link/frames.h"

namespace gradgate {

// INVALID_ARGUMENT, with field, value and what would do.
absl::Status CheckPolicy(const v1::Policy& policy);

// `present` with the fields in `mask` as `change` has them. INVALID_ARGUMENT: empty mask, a field that a policy does not have,
// a change that sets a field outside the mask, or a result that CheckPolicy refuses.
absl::StatusOr<v1::Policy> Merge(const v1::Policy& present, const v1::Policy& change, const google::protobuf::FieldMask& mask);

// Version and content, hash included; the header is the sender's to fill.
link::PolicyFrame ToFrame(const v1::Policy& policy, int64_t version);

// 16 hexadecimal digits.
std::string FormatHash(const link::PolicyFrame& frame);

// Why a rank cannot carry a policy out, for people: "its gradients travel through the trainer's own communication hook".
std::string Explain(v1::PolicyRejection rejection);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_POLICY_POLICY_CONTENT_H_
