// SyncStatsService: answers from the registry. Every call returns at once; streams are driven by the WatchHub.
//
// Thread class: any thread (gRPC's).

#ifndef GRADGATE_DAEMON_RPC_STATS_SERVICE_H_
#define GRADGATE_DAEMON_RPC_STATS_SERVICE_H_

#include "daemon/node/registry.h"
#include "daemon/rpc/page_token.h"
#include "daemon/rpc/window_watch.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

// The answers themselves, without gRPC's machinery.
absl::StatusOr<v1::ListJobsResponse> AnswerListJobs(const v1::ListJobsRequest& request, const PageTokens& tokens,
                                                    Registry& registry);
absl::StatusOr<v1::GetJobStatsResponse> AnswerGetJobStats(const v1::GetJobStatsRequest& request, Registry& registry);
absl::StatusOr<v1::ListWindowsResponse> AnswerListWindows(const v1::ListWindowsRequest& request, const PageTokens& tokens,
                                                          Registry& registry);

class StatsService final : public v1::SyncStatsService::CallbackService {
 public:
  // None is owned; all outlive this.
  StatsService(Registry* registry, WatchHub* hub, PageTokens tokens) : registry_(registry), hub_(hub), tokens_(tokens) {}

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetJobStats(grpc::CallbackServerContext* context, const v1::GetJobStatsRequest* request,
                                        v1::GetJobStatsResponse* response) override;
  grpc::ServerUnaryReactor* ListWindows(grpc::CallbackServerContext* context, const v1::ListWindowsRequest* request,
                                        v1::ListWindowsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchWindowsResponse>* WatchWindows(grpc::CallbackServerContext* context,
                                                                   const v1::WatchWindowsRequest* request) override;

 private:
  Registry* const registry_;
  WatchHub* const hub_;
  const PageTokens tokens_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_STATS_SERVICE_H_
