#include "daemon/rpc/diagnosis_service.h"

#include <utility>

#include "daemon/rpc/convert.h"
#include "daemon/rpc/plan_answer.h"

namespace gradgate {

grpc::ServerUnaryReactor* DiagnosisService::PlanSync(grpc::CallbackServerContext* context, const v1::PlanSyncRequest* request,
                                                     v1::PlanSyncResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<v1::PlanSyncResponse> answer = AnswerPlanSync(*request, *registry_);
  const absl::Status status = answer.status();
  if (status.ok()) *response = *std::move(answer);
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace gradgate
