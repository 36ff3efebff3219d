// How the policy of a job stands: this node's part, and the whole job's from the parts of all nodes.
//
// Thread class: any thread. Own() and Merged() do not block; Read() asks other daemons and waits, so not from gRPC's threads.

#ifndef GRADGATE_DAEMON_RPC_POLICY_READER_H_
#define GRADGATE_DAEMON_RPC_POLICY_READER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/node/registry.h"
#include "daemon/policy/policy_desk.h"
#include "gradgate/v1/policy.pb.h"

namespace gradgate {

class PolicyReader {
 public:
  // None is owned; all outlive this.
  PolicyReader(Registry* registry, const PolicyDesk* desk, std::string node_name)
      : registry_(registry), desk_(desk), node_name_(std::move(node_name)) {}

  // Of the ranks here. Errors as Registry::GetJobStats.
  absl::StatusOr<v1::GetPolicyResponse> Own(const v1::GetPolicyRequest& request) const;

  // Of the whole job. Errors as Own.
  absl::StatusOr<v1::GetPolicyResponse> Read(const v1::GetPolicyRequest& request, absl::Time deadline) const;

 private:
  Registry* const registry_;
  const PolicyDesk* const desk_;
  const std::string node_name_;
};

// The key of a job as messages have it.
JobKey KeyOf(const v1::Job& job);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_POLICY_READER_H_
