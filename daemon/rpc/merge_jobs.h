// Makes one answer about jobs from the answers of several nodes. Pure functions; the nodes' answers are checked first, then
// believed.
//
// A rank that two nodes claim is the running one's; of two such the later started; the other node's note tells.

#ifndef GRADGATE_DAEMON_RPC_MERGE_JOBS_H_
#define GRADGATE_DAEMON_RPC_MERGE_JOBS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/rpc/page_token.h"
#include "daemon/rpc/parts.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

// What a node's answer must hold to be merged: text that is printable, a rank once, no negative counts. DATA_LOSS names what is
// wrong.
absl::Status CheckJob(const v1::Job& job);
absl::Status CheckJobStats(const v1::GetJobStatsResponse& part);
absl::Status CheckJobList(const v1::ListJobsResponse& part);

// One job, from what each node says of its own ranks of it; at least one.
v1::Job MergeJob(const std::vector<const v1::Job*>& jobs);

// Ranks of all nodes, sums over them, and the job as those ranks have it.
v1::GetJobStatsResponse MergeJobStats(Parts<v1::GetJobStatsResponse> parts);

// One page of the jobs of all nodes. INVALID_ARGUMENT: as CheckPageSize and PageTokens.
absl::StatusOr<v1::ListJobsResponse> MergeJobLists(Parts<v1::ListJobsResponse> parts, const v1::ListJobsRequest& request,
                                                   const PageTokens& tokens);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_MERGE_JOBS_H_
