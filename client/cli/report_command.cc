#include "client/cli/report_command.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/format.h"
#include "client/cli/report_page.h"
#include "client/cli/top_model.h"
#include "client/cli/whole_file.h"
#include "client/connection.h"
#include "client/diagnosis_client.h"
#include "client/policy_client.h"
#include "client/sync_stats_client.h"

namespace gradgate::cli {
namespace {

// All of the run that the first answer was about, whatever starts under its name meanwhile.
absl::StatusOr<ReportAnswers> Ask(const std::shared_ptr<const client::Connection>& connection, const Options& options) {
  const auto client = client::SyncStatsClient::Over(connection);
  const v1::Scope scope = options.local ? v1::SCOPE_NODE : v1::SCOPE_JOB;
  auto stats = client->GetJobStats(options.job, scope);
  if (!stats.ok()) return stats.status();
  ReportAnswers answers;
  answers.stats = *std::move(stats);
  const std::string job = TopKey(answers.stats.job());
  client::ListWindowsOptions list;
  list.limit = options.report.window_count;
  list.newest_first = true;
  list.scope = scope;
  answers.windows = client->ListWindows(job, list);
  if (answers.windows.ok()) {
    std::reverse(answers.windows->mutable_windows()->pointer_begin(), answers.windows->mutable_windows()->pointer_end());
  }
  v1::DiagnoseRequest diagnose;
  diagnose.set_job(job);
  diagnose.set_scope(scope);
  answers.diagnosis = client::Diagnose(*connection, diagnose);
  v1::PlanSyncRequest plan;
  plan.set_job(job);
  plan.set_scope(scope);
  answers.plan = client::PlanSync(*connection, plan);
  v1::GetPolicyRequest policy;
  policy.set_job(job);
  policy.set_scope(scope);
  answers.policy = client::PolicyClient(connection).Get(policy);
  answers.now = absl::Now();
  return answers;
}

}  // namespace

absl::Status RunReport(const Options& options, Output* output) {
  const auto connection = client::Connection::Create(options.client);
  if (!connection.ok()) return connection.status();
  const auto answers = Ask(*connection, options);
  if (!answers.ok()) return answers.status();
  const std::string page = ReportPage(*answers, GRADGATE_VERSION);
  const std::string& path = options.report.output;
  if (path == "-") {
    output->Write(page);
    return output->status();
  }
  if (absl::Status written = WriteWholeFile(path, page); !written.ok()) return written;
  output->Write(absl::StrCat("report of ", Printable(answers->stats.job().job_name()), ": ", path, ", ",
                             HumanBytes(static_cast<int64_t>(page.size())), "\n"));
  return output->status();
}

}  // namespace gradgate::cli
