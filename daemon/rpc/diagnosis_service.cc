#include "daemon/rpc/diagnosis_service.h"

#include <utility>

#include "daemon/rpc/convert.h"
#include "daemon/rpc/diagnosis_answer.h"
#include "daemon/rpc/job_call.h"
#include "daemon/rpc/plan_answer.h"

namespace gradgate {

// Nodes give their evidence, whoever asks; the one that was asked first judges it.
grpc::ServerUnaryReactor* DiagnosisService::Diagnose(grpc::CallbackServerContext* context, const v1::DiagnoseRequest* request,
                                                     v1::DiagnoseResponse* response) {
  JobQuestion<v1::DiagnoseRequest, v1::DiagnoseResponse> question;
  question.method = "/gradgate.v1.DiagnosisService/Diagnose";
  question.own = [this](const v1::DiagnoseRequest& asked) {
    return AnswerEvidence(asked, peers_ != nullptr ? peers_->options().node_name : "", store_, *registry_);
  };
  question.job = [](const v1::DiagnoseResponse& part) -> const v1::Job& { return part.job(); };
  question.check = CheckEvidence;
  const bool others = request->scope() != v1::SCOPE_NODE && store_ != nullptr && store_->Health().shared;
  question.merge = [others, with_evidence = request->evidence()](Parts<v1::DiagnoseResponse> parts) {
    return Judge(std::move(parts), others, with_evidence);
  };
  v1::DiagnoseRequest part = *request;
  part.set_evidence(true);
  return AnswerForJob(context, part, response, peers_, std::move(question));
}

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
