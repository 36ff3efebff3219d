// SyncStatsService's answers about one node's jobs, without gRPC's machinery and without `nodes`.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_RPC_STATS_ANSWERS_H_
#define GRADGATE_DAEMON_RPC_STATS_ANSWERS_H_

#include "absl/status/statusor.h"
#include "daemon/node/registry.h"
#include "daemon/rpc/page_token.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

absl::StatusOr<v1::ListJobsResponse> AnswerListJobs(const v1::ListJobsRequest& request, const PageTokens& tokens,
                                                    Registry& registry);
absl::StatusOr<v1::GetJobStatsResponse> AnswerGetJobStats(const v1::GetJobStatsRequest& request, Registry& registry);
absl::StatusOr<v1::ListWindowsResponse> AnswerListWindows(const v1::ListWindowsRequest& request, const PageTokens& tokens,
                                                          Registry& registry);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_STATS_ANSWERS_H_
