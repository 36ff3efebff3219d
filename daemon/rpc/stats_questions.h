// Questions about one job that more than one service asks of all nodes: its counts, and a page of its windows.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_RPC_STATS_QUESTIONS_H_
#define GRADGATE_DAEMON_RPC_STATS_QUESTIONS_H_

#include "absl/status/statusor.h"
#include "daemon/node/registry.h"
#include "daemon/rpc/job_call.h"
#include "daemon/rpc/page_token.h"
#include "daemon/rpc/parts.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

// The answer of one node as it is, with whose it is.
template <typename Response>
absl::StatusOr<Response> OwnPart(Parts<Response> parts) {
  Response response = std::move(parts.parts.front().answer);
  for (v1::NodeAnswer& node : parts.nodes) *response.add_nodes() = std::move(node);
  return response;
}

// What the questions refer to outlives them.
JobQuestion<v1::GetJobStatsRequest, v1::GetJobStatsResponse> StatsQuestion(Registry* registry);

struct WindowsQuestion {
  v1::ListWindowsRequest part;  // what each node is asked for
  JobQuestion<v1::ListWindowsRequest, v1::ListWindowsResponse> question;
};
// `request` as the caller gave it. INVALID_ARGUMENT: as PartOfWindowsPage.
absl::StatusOr<WindowsQuestion> QuestionOfWindows(const v1::ListWindowsRequest& request, const PageTokens* tokens,
                                                  Registry* registry);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_STATS_QUESTIONS_H_
