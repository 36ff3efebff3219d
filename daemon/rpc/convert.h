// Turns the registry's views into messages. Pure functions.

#ifndef GRADGATE_DAEMON_RPC_CONVERT_H_
#define GRADGATE_DAEMON_RPC_CONVERT_H_

#include "absl/status/status.h"
#include "daemon/node/views.h"
#include "gradgate/v1/stats.pb.h"
#include "grpcpp/support/status.h"

namespace gradgate {

v1::Job ToMessage(const JobView& job);
v1::RankStats ToMessage(const RankView& rank);
v1::RankWindow ToMessage(const RankWindow& window);
v1::Window ToMessage(const WindowView& window);

// Job, ranks, and the sums over ranks. Sums stop at INT64_MAX: pages are untrusted.
v1::GetJobStatsResponse ToMessage(const JobStatsView& stats);

// The same code and text.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_CONVERT_H_
