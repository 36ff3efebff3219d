#include "client/cli/commands.h"

#include <algorithm>
#include <string>

#include "absl/time/clock.h"
#include "client/cli/job_view.h"
#include "client/cli/node_view.h"
#include "client/cli/policy_commands.h"
#include "client/cli/show.h"
#include "client/cli/window_view.h"
#include "client/policy_client.h"
#include "client/sync_stats_client.h"

namespace gradgate::cli {
namespace {

using client::SyncStatsClient;

// What there is to show, or why there is nothing.
template <typename Response, typename View>
absl::Status ShowAnswer(const absl::StatusOr<Response>& answer, bool json, View view, Output* output) {
  if (!answer.ok()) return answer.status();
  return Show(
             *answer, json, JsonStyle::kIndented, [&] { return view(*answer); }, output)
      .status();
}

v1::Scope ScopeOf(const Options& options) { return options.local ? v1::SCOPE_NODE : v1::SCOPE_JOB; }

// Oldest first also where only the latest are asked for: the latest belongs next to the prompt.
absl::StatusOr<v1::ListWindowsResponse> LatestWindows(const SyncStatsClient& client, const Options& options) {
  client::ListWindowsOptions list;
  list.limit = options.last;
  list.newest_first = options.last > 0;
  list.scope = ScopeOf(options);
  auto answer = client.ListWindows(options.job, list);
  if (answer.ok() && list.newest_first) {
    std::reverse(answer->mutable_windows()->pointer_begin(), answer->mutable_windows()->pointer_end());
  }
  return answer;
}

absl::Status Watch(const SyncStatsClient& client, const Options& options, client::Cancellation* cancel, Output* output) {
  WatchView view(output->columns());
  client::WatchOptions watch;
  watch.first_window_index = options.first_index;
  watch.cancel = cancel;
  watch.scope = ScopeOf(options);
  bool header_due = !options.json;
  absl::StatusOr<bool> shown = true;
  const auto show = [&](const v1::WatchWindowsResponse& message) {
    if (header_due) output->Write(view.Header());
    header_due = false;
    shown = Show(
        message, options.json, JsonStyle::kOneLine, [&] { return view.Next(message, absl::Now()); }, output);
    return shown.ok() && *shown;
  };
  const absl::Status status = client.WatchWindows(options.job, watch, show);
  if (!shown.ok()) return shown.status();
  if (!status.ok() && !absl::IsCancelled(status)) return status;
  return output->status();
}

}  // namespace

absl::Status RunCommand(const std::shared_ptr<const client::Connection>& connection, const Options& options,
                        client::Cancellation* cancel, Output* output) {
  const absl::Time now = absl::Now();
  const auto stats = SyncStatsClient::Over(connection);
  const SyncStatsClient& client = *stats;
  const client::PolicyClient policies(connection);
  switch (options.command) {
    case Command::kJobs:
      return ShowAnswer(
          client.ListJobs(0, ScopeOf(options)), options.json,
          [&](const auto& answer) { return JobsView(answer, now, output->columns()); }, output);
    case Command::kStatus:
      return ShowAnswer(
          client.GetJobStats(options.job, ScopeOf(options)), options.json,
          [&](const auto& answer) { return StatusView(answer, now, output->columns()); }, output);
    case Command::kNodes:
      return ShowAnswer(
          client.ListNodes(ScopeOf(options)), options.json,
          [&](const auto& answer) { return NodesView(answer, now, output->columns()); }, output);
    case Command::kWindows:
      return ShowAnswer(
          LatestWindows(client, options), options.json,
          [&](const auto& answer) { return WindowsView(answer, output->columns()); }, output);
    case Command::kWatch:
      return Watch(client, options, cancel, output);
    case Command::kPolicyGet:
      return GetPolicy(policies, options, output);
    case Command::kPolicySet:
      return SetPolicy(policies, options, cancel, output);
    case Command::kPolicyWatch:
      return WatchPolicy(policies, options, cancel, output);
    case Command::kTop:  // these have signals, files or exit codes of their own
    case Command::kReport:
    case Command::kPlan:
    case Command::kDoctor:
    case Command::kCerts:  // asks no daemon: see certs_command.h
      break;
  }
  return absl::InternalError("unknown command");
}

}  // namespace gradgate::cli
