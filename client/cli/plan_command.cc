#include "client/cli/plan_command.h"

#include "client/cli/plan_view.h"
#include "client/cli/show.h"
#include "client/connection.h"
#include "client/diagnosis_client.h"
#include "client/planner/answer.h"

namespace gradgate::cli {
namespace {

absl::StatusOr<v1::PlanSyncResponse> Ask(const client::ClientOptions& options, const v1::PlanSyncRequest& request) {
  const auto connection = client::Connection::Create(options);
  if (!connection.ok()) return connection.status();
  return client::PlanSync(**connection, request);
}

// What is missing is missing on the command line.
absl::StatusOr<v1::PlanSyncResponse> PlanAlone(const v1::PlanSyncRequest& request) {
  if (request.numbers().ByteSizeLong() == 0) {
    return absl::InvalidArgumentError(
        "name a JOB, or give numbers: at least --ranks, --accumulate, --compute-s and --sync-s; gradgatectl plan --help lists "
        "all");
  }
  auto answer = planner::AnswerFromNumbers(request);
  if (absl::IsFailedPrecondition(answer.status())) return absl::InvalidArgumentError(answer.status().message());  // exit code 2
  return answer;
}

}  // namespace

absl::Status RunPlan(const Options& options, Output* output) {
  v1::PlanSyncRequest request;
  request.set_job(options.job);
  if (!options.job.empty()) request.set_scope(options.local ? v1::SCOPE_NODE : v1::SCOPE_JOB);
  *request.mutable_numbers() = planner::ToMessage(options.plan.numbers);
  for (const planner::Numbers& changes : options.plan.what_ifs) *request.add_what_ifs() = planner::ToMessage(changes);
  const auto answer = options.job.empty() ? PlanAlone(request) : Ask(options.client, request);
  if (!answer.ok()) return answer.status();
  return Show(
             *answer, options.json, JsonStyle::kIndented, [&] { return PlanView(*answer, output->columns()); }, output)
      .status();
}

}  // namespace gradgate::cli
