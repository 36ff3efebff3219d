// Asks a gradgated what is wrong with a job, and what each sync mode would cost it: DiagnosisService with a deadline. Errors as
// in client/sync_stats_client.h.
//
// Thread class: any thread.

#ifndef GRADGATE_CLIENT_DIAGNOSIS_CLIENT_H_
#define GRADGATE_CLIENT_DIAGNOSIS_CLIENT_H_

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "gradgate/v1/diagnosis.pb.h"
#include "gradgate/v1/plan.pb.h"

namespace gradgate::client {

// NOT_FOUND: no such job; the message lists the known ones. INVALID_ARGUMENT: empty job.
// `cancel`, which may be null, ends it: an error of any code.
absl::StatusOr<v1::DiagnoseResponse> Diagnose(const Connection& connection, const v1::DiagnoseRequest& request,
                                              Cancellation* cancel = nullptr);

// Also FAILED_PRECONDITION: the job has measured too little. INVALID_ARGUMENT: or a number outside its range.
absl::StatusOr<v1::PlanSyncResponse> PlanSync(const Connection& connection, const v1::PlanSyncRequest& request);

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_DIAGNOSIS_CLIENT_H_
