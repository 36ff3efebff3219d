// Several daemons' gRPC servers in one process, each with its own registry, and a store that they share.

#ifndef GRADGATE_TESTS_DAEMON_RPC_MANY_DAEMONS_H_
#define GRADGATE_TESTS_DAEMON_RPC_MANY_DAEMONS_H_

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/clock.h"
#include "daemon/policy/policy_desk.h"
#include "daemon/rpc/server.h"
#include "daemon/store/memory_store.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/rpc/fake_store.h"

namespace gradgate::testing {

inline constexpr uint32_t kUid = 1000;

class Daemons : public ::testing::Test {
 protected:
  struct Daemon {
    std::string name;
    std::string socket;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<Registry> registry;
    MemoryStore policies;
    std::unique_ptr<PolicyDesk> desk;
    std::unique_ptr<RpcServer> server;
    std::unique_ptr<v1::SyncStatsService::Stub> stub;
  };

  Daemons() {
    std::string pattern = ::testing::TempDir() + "/gg_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~Daemons() override {
    daemons_.clear();
    std::error_code ignored;
    for (const std::string& file : files_) unlink((directory_ + "/" + file).c_str());
    rmdir(directory_.c_str());
  }

  // Named a, b, c… and known to each other unless `store` is null.
  Daemon& Add(const Store* store, const TlsFiles& tls = {}) {
    Daemon& daemon = *daemons_.emplace_back(std::make_unique<Daemon>());
    daemon.name = absl::StrCat("n", absl::Dec(daemons_.size(), absl::kZeroPad3));
    daemon.socket = absl::StrCat(directory_, "/", daemon.name, ".sock");
    daemon.registry = std::make_unique<Registry>(registry_options_, &clock_);
    RpcOptions options;
    options.socket_path = daemon.socket;
    options.tcp_listen = tls.all() ? "0.0.0.0:0" : "127.0.0.1:0";
    options.tls = tls;
    options.store = store;
    options.node_name = daemon.name;
    options.version = "1.2.3";
    options.max_watchers = 2;
    daemon.desk = std::make_unique<PolicyDesk>(&daemon.policies, &clock_, daemon.name);
    auto server = RpcServer::Start(options, daemon.registry.get(), daemon.desk.get());
    EXPECT_TRUE(server.ok()) << server.status();
    daemon.server = *std::move(server);
    daemon.channel = grpc::CreateChannel("unix:" + daemon.socket, grpc::InsecureChannelCredentials());
    daemon.stub = v1::SyncStatsService::NewStub(daemon.channel);
    if (store != nullptr) store_.AddNode(daemon.name, Address(daemon), tls.all());
    return daemon;
  }
  void Add(size_t count) {
    for (size_t i = 0; i < count; ++i) Add(&store_);
  }

  static std::string Address(const Daemon& daemon) { return absl::StrCat("127.0.0.1:", daemon.server->tcp_port()); }

  // A trainer on a node.
  FakePage& Run(size_t daemon, const FakeIdentity& identity, uint32_t uid = kUid, int windows = 0) {
    FakePage& page = *pages_.emplace_back(std::make_unique<FakePage>(identity));
    for (int i = 0; i < windows; ++i) page.CloseWindow();
    EXPECT_TRUE(daemons_[daemon]->registry->Register(uid, page.Map()).ok());
    return page;
  }

  template <typename Request, typename Response>
  grpc::Status Call(size_t daemon,
                    grpc::Status (v1::SyncStatsService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, absl::Duration timeout = absl::Seconds(15)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    return (daemons_[daemon]->stub.get()->*method)(&context, request, response);
  }

  v1::GetJobStatsResponse Stats(size_t daemon, const std::string& job, v1::Scope scope = v1::SCOPE_UNSPECIFIED) {
    v1::GetJobStatsRequest request;
    request.set_job(job);
    request.set_scope(scope);
    v1::GetJobStatsResponse response;
    status_ = Call(daemon, &v1::SyncStatsService::Stub::GetJobStats, request, &response);
    return response;
  }
  v1::ListJobsResponse Jobs(size_t daemon, v1::Scope scope = v1::SCOPE_JOB) {
    v1::ListJobsRequest request;
    request.set_scope(scope);
    v1::ListJobsResponse response;
    status_ = Call(daemon, &v1::SyncStatsService::Stub::ListJobs, request, &response);
    EXPECT_TRUE(status_.ok()) << status_.error_message();
    return response;
  }
  static std::vector<int> Ranks(const v1::GetJobStatsResponse& response) {
    std::vector<int> ranks;
    for (const auto& rank : response.ranks()) ranks.push_back(rank.rank());
    return ranks;
  }

  std::string directory_;
  std::vector<std::string> files_;
  RegistryOptions registry_options_;  // of those that are added later
  SystemClock clock_;
  FakeStore store_;
  std::vector<std::unique_ptr<FakePage>> pages_;
  std::vector<std::unique_ptr<Daemon>> daemons_;
  grpc::Status status_;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_RPC_MANY_DAEMONS_H_
