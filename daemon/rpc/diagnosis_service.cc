#include "daemon/rpc/diagnosis_service.h"

#include <memory>
#include <utility>

#include "daemon/rpc/diagnosis_answer.h"
#include "daemon/rpc/job_call.h"
#include "daemon/rpc/plan_asking.h"

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
  return AskingCall<PlanAsking, v1::PlanSyncResponse>::Start(absl::FromChrono(context->deadline()), response, [&](auto done) {
    return std::make_shared<PlanAsking>(*request, peers_, registry_, &tokens_, std::move(done));
  });
}

}  // namespace gradgate
