// Reads and proposes the sync policy of a job: gradgate.v1.PolicyService with deadlines and errors that say what to do.
//
// Any number of threads. Every method blocks; none longer than ClientOptions::timeout, but for Watch. Errors of every call as
// in sync_stats_client.h; any other code is the daemon's own, with its message.

#ifndef GRADGATE_CLIENT_POLICY_CLIENT_H_
#define GRADGATE_CLIENT_POLICY_CLIENT_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/connection.h"
#include "gradgate/v1/policy.grpc.pb.h"

namespace gradgate::client {

class PolicyClient {
 public:
  explicit PolicyClient(std::shared_ptr<const Connection> connection);

  // NOT_FOUND: no such job; the message lists the known ones. CANCELLED by `cancel`, which may be null.
  absl::StatusOr<v1::GetPolicyResponse> Get(const v1::GetPolicyRequest& request, Cancellation* cancel = nullptr) const;

  // Returns once the proposal is in the store. Errors: see PolicyService.SetPolicy.
  absl::StatusOr<v1::SetPolicyResponse> Set(const v1::SetPolicyRequest& request) const;

  // Asks again and again, without a stream, of which a daemon has few, and calls `on_status` on this thread with each answer
  // until it returns false (OK), the job has ended (OK), or: CANCELLED by `cancel`, which may be null; DEADLINE_EXCEEDED after
  // `limit`. Other errors as Get.
  absl::Status Follow(absl::string_view job, absl::Duration limit, Cancellation* cancel,
                      absl::FunctionRef<bool(const v1::PolicyStatus&)> on_status) const;

  // Calls `on_status` on this thread whenever the policy, or a rank's place with it, has changed, the first time at once, until
  // it returns false (OK), the job has ended (OK), or: CANCELLED by `cancel`, which may be null; DEADLINE_EXCEEDED because the
  // daemon does not answer.
  absl::Status Watch(absl::string_view job, Cancellation* cancel,
                     absl::FunctionRef<bool(const v1::PolicyStatus&)> on_status) const;

 private:
  const std::shared_ptr<const Connection> connection_;
  const std::unique_ptr<v1::PolicyService::Stub> stub_;
};

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_POLICY_CLIENT_H_
