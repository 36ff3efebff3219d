// What a running job tells of the numbers that a plan is made from. Pure; any thread.
//
// What can be seen depends on the mode in force, N micro-steps a window:
//
//     window, DDP       c: the suppressed micro-steps' median; s: the exposed time of the boundary. Nothing is left open.
//     window, FSDP      c and the all-gathers together; g: exposed
//     window, HSDP      c and the all-gathers together; g and r together: exposed
//     window_replica    c, the all-gathers and g together; r: exposed
//     late, observed    c; all of the reduction, nothing hidden, so that a reduction in time costs up to a backward less
//     every_micro_step  c and s together: a micro-step. s is at least the time from the last bucket's issue to the end of the
//     last
//                       reduction, and no more than the collectives' own times together, or the micro-step
//
// Where parts are seen together, both ends of what is possible become alternatives, and a note says what was not seen.
// Collectives' own times, where their ends are seen, bound what they can add. Nothing is guessed.

#ifndef GRADGATE_DAEMON_PLANNER_MEASURE_H_
#define GRADGATE_DAEMON_PLANNER_MEASURE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/planner/plan.h"
#include "gradgate/v1/plan.pb.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::planner {

struct Measured {
  Question question;  // its numbers are `given` and what was measured beside; no what-ifs
  std::vector<v1::PlanMeasurement> measurements;
  Notes notes;
};

// `windows` newest first. `given` stand in the place of what is measured.
// FAILED_PRECONDITION: what was not measured yet, and how it can be.
absl::StatusOr<Measured> MeasureJob(const v1::GetJobStatsResponse& stats, absl::Span<const v1::Window> windows,
                                    const Numbers& given);

// The whole answer for a request that names a job.
absl::StatusOr<v1::PlanSyncResponse> PlanJob(const v1::PlanSyncRequest& request, const v1::GetJobStatsResponse& stats,
                                             absl::Span<const v1::Window> windows);

}  // namespace gradgate::planner

#endif  // GRADGATE_DAEMON_PLANNER_MEASURE_H_
