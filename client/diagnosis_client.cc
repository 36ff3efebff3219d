#include "client/diagnosis_client.h"

#include "gradgate/v1/diagnosis.grpc.pb.h"

namespace gradgate::client {

absl::StatusOr<v1::DiagnoseResponse> Diagnose(const Connection& connection, const v1::DiagnoseRequest& request) {
  if (absl::Status s = Connection::CheckJob(request.job()); !s.ok()) return s;
  const auto stub = v1::DiagnosisService::NewStub(connection.channel());
  v1::DiagnoseResponse response;
  const grpc::Status status =
      Connection::Call(*stub, &v1::DiagnosisService::Stub::Diagnose, request, connection.Deadline(), &response);
  if (!status.ok()) return connection.ExplainedForJob(status, request.job());
  return response;
}

}  // namespace gradgate::client
