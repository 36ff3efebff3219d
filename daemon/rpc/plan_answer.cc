#include "daemon/rpc/plan_answer.h"

#include <vector>

#include "client/planner/answer.h"
#include "daemon/planner/measure.h"
#include "daemon/planner/samples.h"
#include "daemon/rpc/convert.h"

namespace gradgate {

absl::StatusOr<v1::PlanSyncResponse> AnswerPlanSync(const v1::PlanSyncRequest& request, Registry& registry) {
  if (request.job().empty()) return planner::AnswerFromNumbers(request);
  constexpr size_t kWindows = 2 * planner::kLatestWindows;  // some are of no use
  const absl::StatusOr<JobStatsView> stats = registry.GetJobStats(request.job());
  if (!stats.ok()) return stats.status();
  const absl::StatusOr<std::vector<WindowView>> views = registry.ListWindows(stats->job.id, std::nullopt, true, kWindows);
  if (!views.ok()) return views.status();
  std::vector<v1::Window> windows;
  windows.reserve(views->size());
  for (const WindowView& view : *views) windows.push_back(ToMessage(view));
  return planner::PlanJob(request, ToMessage(*stats), windows);
}

}  // namespace gradgate
