#include "client/cli/commands.h"

#include <algorithm>
#include <string>

#include "absl/time/clock.h"
#include "client/cli/job_view.h"
#include "client/cli/json.h"
#include "client/cli/node_view.h"
#include "client/cli/policy_commands.h"
#include "client/cli/window_view.h"
#include "client/policy_client.h"
#include "client/sync_stats_client.h"

namespace gradgate::cli {
namespace {

using client::SyncStatsClient;

// Writes `answer` as JSON, or what `view` makes of it.
template <typename Response, typename View>
absl::Status Show(const absl::StatusOr<Response>& answer, bool json, View view, Output* output) {
  if (!answer.ok()) return answer.status();
  if (!json) {
    output->Write(view(*answer));
    return output->status();
  }
  const auto text = ToJson(*answer, JsonStyle::kIndented);
  if (!text.ok()) return text.status();
  output->Write(*text);
  return output->status();
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
  WatchView view;
  client::WatchOptions watch;
  watch.first_window_index = options.first_index;
  watch.cancel = cancel;
  bool header_due = !options.json;
  absl::Status json_status;
  const auto show = [&](const v1::WatchWindowsResponse& message) {
    if (header_due) output->Write(view.Header());
    header_due = false;
    if (!options.json) return output->Write(view.Next(message, absl::Now()));
    const auto text = ToJson(message, JsonStyle::kOneLine);
    json_status = text.status();
    return text.ok() && output->Write(*text);
  };
  const absl::Status status = client.WatchWindows(options.job, watch, show);
  if (!json_status.ok()) return json_status;
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
      return Show(
          client.ListJobs(0, ScopeOf(options)), options.json, [&](const auto& answer) { return JobsView(answer, now); },
          output);
    case Command::kStatus:
      return Show(
          client.GetJobStats(options.job, ScopeOf(options)), options.json,
          [&](const auto& answer) { return StatusView(answer, now); }, output);
    case Command::kNodes:
      return Show(
          client.ListNodes(ScopeOf(options)), options.json, [&](const auto& answer) { return NodesView(answer, now); }, output);
    case Command::kWindows:
      return Show(LatestWindows(client, options), options.json, WindowsView, output);
    case Command::kWatch:
      return Watch(client, options, cancel, output);
    case Command::kPolicyGet:
      return GetPolicy(policies, options, output);
    case Command::kPolicySet:
      return SetPolicy(policies, options, cancel, output);
    case Command::kPolicyWatch:
      return WatchPolicy(policies, options, cancel, output);
    case Command::kPlan:  // these two have exit codes of their own
    case Command::kDoctor:
    case Command::kCerts:  // asks no daemon: see certs_command.h
      break;
  }
  return absl::InternalError("unknown command");
}

}  // namespace gradgate::cli
