// DiagnosisService.PlanSync's answer, without gRPC's machinery. Any thread.

#ifndef GRADGATE_DAEMON_RPC_PLAN_ANSWER_H_
#define GRADGATE_DAEMON_RPC_PLAN_ANSWER_H_

#include "absl/status/statusor.h"
#include "daemon/node/registry.h"
#include "gradgate/v1/plan.pb.h"

namespace gradgate {

// From this node's ranks; an answer that was merged over nodes goes to planner::PlanJob. NOT_FOUND: no such job.
// INVALID_ARGUMENT: a number outside its range, or that contradicts others. FAILED_PRECONDITION: what was not measured, or is
// not known.
absl::StatusOr<v1::PlanSyncResponse> AnswerPlanSync(const v1::PlanSyncRequest& request, Registry& registry);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_PLAN_ANSWER_H_
