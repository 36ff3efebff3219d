// DiagnosisService: answers from the registry; of a whole job, from what all its nodes tell. No call waits on a thread.
//
// Thread class: any thread (gRPC's).

#ifndef GRADGATE_DAEMON_RPC_DIAGNOSIS_SERVICE_H_
#define GRADGATE_DAEMON_RPC_DIAGNOSIS_SERVICE_H_

#include "daemon/node/registry.h"
#include "daemon/rpc/page_token.h"
#include "daemon/rpc/peers.h"
#include "daemon/store/store.h"
#include "gradgate/v1/diagnosis.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

class DiagnosisService final : public v1::DiagnosisService::CallbackService {
 public:
  // None is owned; all outlive this. `peers` and `store` may be null.
  DiagnosisService(Registry* registry, Peers* peers, const Store* store, PageTokens tokens)
      : registry_(registry), peers_(peers), store_(store), tokens_(tokens) {}

  grpc::ServerUnaryReactor* Diagnose(grpc::CallbackServerContext* context, const v1::DiagnoseRequest* request,
                                     v1::DiagnoseResponse* response) override;
  grpc::ServerUnaryReactor* PlanSync(grpc::CallbackServerContext* context, const v1::PlanSyncRequest* request,
                                     v1::PlanSyncResponse* response) override;

 private:
  Registry* const registry_;
  Peers* const peers_;
  const Store* const store_;
  const PageTokens tokens_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_DIAGNOSIS_SERVICE_H_
