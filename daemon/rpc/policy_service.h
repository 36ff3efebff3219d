// PolicyService: what a job's policy is, and new ones. GetPolicy answers at once; what waits for the store or for other nodes,
// SetPolicy and the watches, is done one after the other on a thread of the service's own.
//
// SetPolicy asks whether the caller may (access.h), and tells the audit log of every call, however it ends; of a change before
// it answers, unless that takes too long.
//
// A watch is looked at every kWatchInterval, and written to when what it shows has changed.
//
// Thread class: any thread (gRPC's). ShutDown() before the server's, once or more.

#ifndef GRADGATE_DAEMON_RPC_POLICY_SERVICE_H_
#define GRADGATE_DAEMON_RPC_POLICY_SERVICE_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "daemon/policy/audit_log.h"
#include "daemon/policy/policy_desk.h"
#include "daemon/rpc/access.h"
#include "daemon/rpc/policy_reader.h"
#include "gradgate/v1/policy.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

// A proposal that has passed all checks against `present`, the policy as it stands; what SetPolicy does before it writes.
// `caller`: the name in the caller's certificate, or empty. What it is made from is BaseOf(present).
const v1::Policy& BaseOf(const v1::PolicyStatus& present);
absl::StatusOr<Proposal> CheckProposal(const v1::SetPolicyRequest& request, const v1::PolicyStatus& present,
                                       const std::string& caller);

class PolicyService final : public v1::PolicyService::CallbackService {
 public:
  static constexpr absl::Duration kWatchInterval = absl::Milliseconds(250);
  static constexpr size_t kMaxWaiting = 64;  // proposals that wait for their turn

  struct Options {
    size_t max_watchers;
    std::function<Caller(const grpc::CallbackServerContext&)> caller_of;  // any thread
    AuditLog* audit;                                                      // null: nobody is told
  };

  // No pointer is owned; all outlive this.
  PolicyService(const PolicyReader* reader, PolicyDesk* desk, Options options);
  ~PolicyService() override;

  grpc::ServerUnaryReactor* GetPolicy(grpc::CallbackServerContext* context, const v1::GetPolicyRequest* request,
                                      v1::GetPolicyResponse* response) override;
  grpc::ServerUnaryReactor* SetPolicy(grpc::CallbackServerContext* context, const v1::SetPolicyRequest* request,
                                      v1::SetPolicyResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchPolicyResponse>* WatchPolicy(grpc::CallbackServerContext* context,
                                                                 const v1::WatchPolicyRequest* request) override;

  // Ends streams and what waits with UNAVAILABLE; waits for what is being done, a few seconds at most.
  void ShutDown();

 private:
  class Worker;
  // Tells the audit log; waits for it where something has changed.
  void Audit(const v1::AuditRecord& record) const;

  const PolicyReader* const reader_;
  PolicyDesk* const desk_;
  const Options options_;
  const std::unique_ptr<Worker> worker_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_POLICY_SERVICE_H_
