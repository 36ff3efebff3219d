// DiagnosisService: answers from the registry. Every call returns at once.
//
// Thread class: any thread (gRPC's).

#ifndef GRADGATE_DAEMON_RPC_DIAGNOSIS_SERVICE_H_
#define GRADGATE_DAEMON_RPC_DIAGNOSIS_SERVICE_H_

#include "daemon/node/registry.h"
#include "gradgate/v1/diagnosis.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

class DiagnosisService final : public v1::DiagnosisService::CallbackService {
 public:
  // Not owned; outlives this.
  explicit DiagnosisService(Registry* registry) : registry_(registry) {}

  grpc::ServerUnaryReactor* PlanSync(grpc::CallbackServerContext* context, const v1::PlanSyncRequest* request,
                                     v1::PlanSyncResponse* response) override;

 private:
  Registry* const registry_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_DIAGNOSIS_SERVICE_H_
