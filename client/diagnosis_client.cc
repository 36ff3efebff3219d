#include "client/diagnosis_client.h"

#include "gradgate/v1/diagnosis.grpc.pb.h"

namespace gradgate::client {

using Stub = v1::DiagnosisService::Stub;

absl::StatusOr<v1::DiagnoseResponse> Diagnose(const Connection& connection, const v1::DiagnoseRequest& request,
                                              Cancellation* cancel) {
  return connection.CallForJob(*v1::DiagnosisService::NewStub(connection.channel()), &Stub::Diagnose, request, cancel);
}

absl::StatusOr<v1::PlanSyncResponse> PlanSync(const Connection& connection, const v1::PlanSyncRequest& request) {
  return connection.CallForJob(*v1::DiagnosisService::NewStub(connection.channel()), &Stub::PlanSync, request);
}

}  // namespace gradgate::client
