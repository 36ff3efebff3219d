// SyncStatsService: answers from the registry, and for all nodes by asking the other daemons. Every call returns at once.
//
// Thread class: any thread (gRPC's).

#ifndef GRADGATE_DAEMON_RPC_STATS_SERVICE_H_
#define GRADGATE_DAEMON_RPC_STATS_SERVICE_H_

#include <memory>
#include <string>

#include "daemon/node/registry.h"
#include "daemon/rpc/page_token.h"
#include "daemon/rpc/peers.h"
#include "daemon/rpc/window_watch.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

// What there is to say of a daemon beside its jobs.
struct NodeFacts {
  std::string version;
  absl::Time start_time = absl::UnixEpoch();
};

class StatsService final : public v1::SyncStatsService::CallbackService {
 public:
  // None is owned; all outlive this. `store` may be null.
  StatsService(Registry* registry, WatchHub* hub, Peers* peers, const Store* store, PageTokens tokens, const NodeFacts& facts)
      : registry_(registry), hub_(hub), peers_(peers), store_(store), tokens_(tokens), facts_(facts) {}

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetJobStats(grpc::CallbackServerContext* context, const v1::GetJobStatsRequest* request,
                                        v1::GetJobStatsResponse* response) override;
  grpc::ServerUnaryReactor* ListWindows(grpc::CallbackServerContext* context, const v1::ListWindowsRequest* request,
                                        v1::ListWindowsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchWindowsResponse>* WatchWindows(grpc::CallbackServerContext* context,
                                                                   const v1::WatchWindowsRequest* request) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context, const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;

 private:
  template <typename Watch>
  grpc::ServerWriteReactor<v1::WatchWindowsResponse>* Watched(std::shared_ptr<Watch> watch);
  void TellOfMissingRanks(const std::string& job, WindowWatch::Nodes* nodes);

  Registry* const registry_;
  WatchHub* const hub_;
  Peers* const peers_;
  const Store* const store_;
  const PageTokens tokens_;
  const NodeFacts facts_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_STATS_SERVICE_H_
