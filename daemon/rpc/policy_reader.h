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
#include "daemon/rpc/job_call.h"
#include "daemon/rpc/parts.h"
#include "daemon/rpc/peers.h"
#include "gradgate/v1/policy.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

class PolicyReader {
 public:
  // None is owned; all outlive this. `peers` may be null: nobody else is asked.
  PolicyReader(Registry* registry, const PolicyDesk* desk, Peers* peers, std::string node_name)
      : registry_(registry), desk_(desk), peers_(peers), node_name_(std::move(node_name)) {}

  // Of the ranks here. Errors as Registry::GetJobStats.
  absl::StatusOr<v1::GetPolicyResponse> Own(const v1::GetPolicyRequest& request) const;

  // Of the whole job: how a service's call is answered, and the same for a thread that may wait. Errors as Own.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const v1::GetPolicyRequest& request,
                                   v1::GetPolicyResponse* response) const;
  absl::StatusOr<v1::GetPolicyResponse> Read(const v1::GetPolicyRequest& request, absl::Time deadline) const;

 private:
  JobQuestion<v1::GetPolicyRequest, v1::GetPolicyResponse> Question() const;

  Registry* const registry_;
  const PolicyDesk* const desk_;
  Peers* const peers_;
  const std::string node_name_;
};

// What another node's part must hold to be merged. INVALID_ARGUMENT or DATA_LOSS names what is wrong.
absl::Status CheckPolicyPart(const v1::GetPolicyResponse& part);

// The latest proposal that any of the daemons knows; ranks of all; judged anew. At least one part.
absl::StatusOr<v1::GetPolicyResponse> MergePolicyParts(Parts<v1::GetPolicyResponse> parts);

// The key of a job as messages have it.
JobKey KeyOf(const v1::Job& job);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_POLICY_READER_H_
