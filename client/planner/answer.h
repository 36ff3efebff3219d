// The planner in the words of gradgate.v1. Pure; any thread.

#ifndef GRADGATE_CLIENT_PLANNER_ANSWER_H_
#define GRADGATE_CLIENT_PLANNER_ANSWER_H_

#include "absl/status/statusor.h"
#include "client/planner/plan.h"
#include "gradgate/v1/plan.pb.h"

namespace gradgate::planner {

Numbers FromMessage(const v1::PlanNumbers& message);
v1::PlanNumbers ToMessage(const Numbers& numbers);

// All but job and measurements.
v1::PlanSyncResponse ToMessage(const Answer& answer);

// A request that names no job. Errors as MakePlan.
absl::StatusOr<v1::PlanSyncResponse> AnswerFromNumbers(const v1::PlanSyncRequest& request);

}  // namespace gradgate::planner

#endif  // GRADGATE_CLIENT_PLANNER_ANSWER_H_
