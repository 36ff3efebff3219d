// Several daemons' gRPC servers in one process, each with its own registry, and a store that they share.

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/clock.h"
#include "daemon/policy/policy_desk.h"
#include "daemon/rpc/server.h"
#include "daemon/store/memory_store.h"
#include "gmock/gmock.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/rpc/fake_peer.h"
#include "tests/daemon/rpc/fake_store.h"

namespace gradgate {
namespace {

using testing::DeadAddress;
using testing::DeafPort;
using ::testing::ElementsAre;
using testing::FakeIdentity;
using testing::FakePage;
using testing::FakePeer;
using testing::FakeStore;
using ::testing::HasSubstr;

constexpr uint32_t kUid = 1000;

class Daemons : public ::testing::Test {
 protected:
  struct Daemon {
    std::string name;
    std::string socket;
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
    daemon.registry = std::make_unique<Registry>(RegistryOptions{}, &clock_);
    RpcOptions options;
    options.socket_path = daemon.socket;
    options.tcp_listen = tls.all() ? "0.0.0.0:0" : "127.0.0.1:0";
    options.tls = tls;
    options.store = store;
    options.node_name = daemon.name;
    options.version = "1.2.3";
    daemon.desk = std::make_unique<PolicyDesk>(&daemon.policies, &clock_, daemon.name);
    auto server = RpcServer::Start(options, daemon.registry.get(), daemon.desk.get());
    EXPECT_TRUE(server.ok()) << server.status();
    daemon.server = *std::move(server);
    daemon.stub =
        v1::SyncStatsService::NewStub(grpc::CreateChannel("unix:" + daemon.socket, grpc::InsecureChannelCredentials()));
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
  SystemClock clock_;
  FakeStore store_;
  std::vector<std::unique_ptr<FakePage>> pages_;
  std::vector<std::unique_ptr<Daemon>> daemons_;
  grpc::Status status_;
};

TEST_F(Daemons, AnyOfThemAnswersForTheWholeJob) {
  Add(3);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    FakePage& page = Run(rank / 2, {.rank = rank, .world_size = 4}, kUid, 3);
    page.page().totals.micro_step_count.store(10);
  }
  for (size_t daemon = 0; daemon < 3; ++daemon) {
    const auto stats = Stats(daemon, "job");
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    EXPECT_THAT(Ranks(stats), ElementsAre(0, 1, 2, 3)) << "also the daemon without any";
    EXPECT_EQ(stats.totals().micro_step_count(), 40);
    EXPECT_EQ(stats.job().running_rank_count(), 4);
    EXPECT_EQ(stats.ranks(3).node_name(), "n002");
    ASSERT_EQ(stats.nodes_size(), 3);
    EXPECT_EQ(stats.nodes(0).node_name(), daemons_[daemon]->name) << "the one that was asked";
    EXPECT_EQ(stats.nodes(0).address(), "");
    for (const auto& node : stats.nodes()) EXPECT_TRUE(node.answered()) << node.error();
    const auto jobs = Jobs(daemon);
    ASSERT_EQ(jobs.jobs_size(), 1);
    EXPECT_EQ(jobs.jobs(0).running_rank_count(), 4);
    EXPECT_EQ(jobs.nodes_size(), 3);
  }
}

TEST_F(Daemons, ScopeNodeAsksNobody) {
  Add(2);
  Run(0, {.rank = 0});
  Run(1, {.rank = 1});
  const auto stats = Stats(0, "job", v1::SCOPE_NODE);
  EXPECT_THAT(Ranks(stats), ElementsAre(0));
  ASSERT_EQ(stats.nodes_size(), 1);
  EXPECT_EQ(stats.nodes(0).node_name(), "n001");
  EXPECT_EQ(stats.ranks(0).node_name(), "n001");
  EXPECT_EQ(Jobs(1, v1::SCOPE_NODE).jobs(0).running_rank_count(), 1);
  Add(1);
  Stats(2, "job", v1::SCOPE_NODE);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(Daemons, WithoutACommonStoreItAnswersForItselfAndSaysSo) {
  Add(nullptr);
  Run(0, {.rank = 0});
  const auto stats = Stats(0, "job");
  EXPECT_THAT(Ranks(stats), ElementsAre(0));
  ASSERT_EQ(stats.nodes_size(), 1);
  EXPECT_THAT(stats.nodes(0).note(), HasSubstr("no common store"));
}

TEST_F(Daemons, ThoseThatDoNotAnswerAreNamed) {
  Add(2);
  DeafPort deaf;
  store_.AddNode("deaf", deaf.address());
  store_.AddNode("dead", DeadAddress());
  Run(0, {.rank = 0, .world_size = 4});
  Run(1, {.rank = 1, .world_size = 4});
  const absl::Time begin = absl::Now();
  const auto stats = Stats(0, "job");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(8));
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(Ranks(stats), ElementsAre(0, 1));
  ASSERT_EQ(stats.nodes_size(), 4);
  EXPECT_EQ(stats.nodes(1).node_name(), "dead");
  EXPECT_THAT(stats.nodes(1).error(), HasSubstr("cannot be reached"));
  EXPECT_THAT(stats.nodes(2).error(), HasSubstr("did not answer within "));
  EXPECT_TRUE(stats.nodes(3).answered());
  Stats(0, "nobody");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status_.error_message(), HasSubstr("on the 2 nodes that answered; no answer from dead (cannot be reached"));
}

TEST_F(Daemons, BrokenAnswersAreNamedAndLeftOut) {
  Add(1);
  Run(0, {.rank = 0});
  v1::GetJobStatsResponse evil;
  evil.mutable_job()->set_job_name("job");
  evil.mutable_job()->set_run_id("\x1b[2J");
  FakePeer peer([&](const std::string&, const std::string&) { return FakePeer::Answer(evil); });
  store_.AddNode("evil", peer.address());
  const auto stats = Stats(0, "job");
  EXPECT_THAT(Ranks(stats), ElementsAre(0));
  EXPECT_EQ(stats.nodes(1).error(), "its answer is broken: text that cannot be shown");
  EXPECT_FALSE(stats.nodes(1).answered());
}

TEST_F(Daemons, ANameMeansTheRunThatStartedLastOnAnyNode) {
  Add(3);
  const std::string old_run(16, 'o'), new_run(16, 'n');
  Run(0, {.run_id_bytes = old_run, .rank = 0, .wall_time_ns = 1'700'000'000'000'000'000});
  Run(1, {.run_id_bytes = old_run, .rank = 1, .wall_time_ns = 1'700'000'000'000'000'000});
  Run(2, {.run_id_bytes = new_run, .rank = 0, .wall_time_ns = 1'700'000'900'000'000'000});
  // Clocks differ: here the old run seems younger, though its first rank is not.
  Run(1, {.run_id_bytes = new_run, .rank = 1, .wall_time_ns = 1'600'000'000'000'000'000});
  for (size_t daemon = 0; daemon < 2; ++daemon) {
    const auto stats = Stats(daemon, "job");
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    EXPECT_THAT(Ranks(stats), ElementsAre(0, 1)) << daemon;
    EXPECT_EQ(stats.job().run_id(), "6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e") << daemon;
  }
}

TEST_F(Daemons, AnotherUserCannotPutRanksIntoAJob) {
  Add(2);
  Run(0, {.rank = 0, .world_size = 2});
  Run(1, {.rank = 1, .world_size = 2}, 666);
  Stats(0, "job");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status_.error_message(), HasSubstr("666/job (run 111111111111), 1000/job (run 111111111111); give one of these"));
  for (const uint32_t uid : {kUid, 666u}) {
    const auto named = Stats(0, absl::StrCat(uid, "/job"));
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    EXPECT_EQ(named.job().user_id(), uid);
    EXPECT_THAT(Ranks(named), ElementsAre(uid == kUid ? 0 : 1)) << "on whichever node it is";
  }
  const auto stats = Stats(0, "11111111111111111111111111111111");
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_THAT(Ranks(stats), ElementsAre(0));
  EXPECT_THAT(stats.nodes(1).note(), HasSubstr("of uid 666"));
  EXPECT_EQ(Jobs(0).jobs_size(), 2);
}

// Somebody who claims the run on another node, where it has ranks, too.
TEST_F(Daemons, WhoClaimsARunTakesNoRankOfItAway) {
  Add(3);
  const std::string run(32, '1');
  Run(0, {.rank = 0, .world_size = 3});
  Run(1, {.rank = 1, .world_size = 3});
  Run(1, {.rank = 2, .world_size = 3}, 666);
  Run(2, {.rank = 2, .world_size = 3});
  for (const std::string& job :
       {run, absl::StrCat(kUid, "/", run), absl::StrCat(kUid, "/job"), absl::StrCat(kUid, "/111111")}) {
    const auto stats = Stats(0, job);
    ASSERT_TRUE(status_.ok()) << job << ": " << status_.error_message();
    EXPECT_EQ(stats.job().user_id(), kUid) << job;
    EXPECT_THAT(Ranks(stats), ElementsAre(0, 1, 2)) << job;
  }
  Stats(1, run);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << "there it is not clear whose is meant";
  EXPECT_THAT(status_.error_message(), HasSubstr(absl::StrCat(kUid, "/", run)));
  EXPECT_THAT(Ranks(Stats(1, absl::StrCat(kUid, "/", run))), ElementsAre(0, 1, 2));
  EXPECT_THAT(Ranks(Stats(1, absl::StrCat("666/", run))), ElementsAre(2));
  Stats(0, "job");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status_.error_message(), HasSubstr("node n001: jobs of several users"));
}

TEST_F(Daemons, WindowsOfAllNodesPageTogether) {
  Add(2);
  Run(0, {.rank = 0}, kUid, 5);
  Run(1, {.rank = 1}, kUid, 3);
  v1::ListWindowsRequest request;
  request.set_job("job");
  request.set_page_size(2);
  std::vector<std::string> seen;
  do {
    v1::ListWindowsResponse page;
    const grpc::Status status = Call(0, &v1::SyncStatsService::Stub::ListWindows, request, &page);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(page.job().running_rank_count(), 2);
    EXPECT_EQ(page.nodes_size(), 2);
    for (const auto& window : page.windows()) {
      seen.push_back(absl::StrCat(window.window_index(), ":", window.ranks_size(), window.complete() ? " complete" : ""));
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(seen, ElementsAre("0:2 complete", "1:2 complete", "2:2 complete", "3:1", "4:1"));
  request.set_page_token("nonsense");
  v1::ListWindowsResponse page;
  EXPECT_EQ(Call(0, &v1::SyncStatsService::Stub::ListWindows, request, &page).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(Daemons, NodesAreListedWithTheirJobs) {
  Add(2);
  DeafPort deaf;
  store_.AddNode("deaf", deaf.address());
  Run(1, {.rank = 0});
  v1::ListNodesResponse response;
  ASSERT_TRUE(Call(0, &v1::SyncStatsService::Stub::ListNodes, {}, &response).ok());
  ASSERT_EQ(response.nodes_size(), 3);
  EXPECT_EQ(response.nodes(0).answer().node_name(), "n001");
  EXPECT_EQ(response.nodes(0).version(), "1.2.3");
  EXPECT_EQ(response.nodes(0).jobs_size(), 0);
  EXPECT_EQ(response.nodes(1).answer().node_name(), "deaf");
  EXPECT_FALSE(response.nodes(1).answer().answered());
  EXPECT_EQ(response.nodes(1).version(), "7.7.7") << "as it announced itself";
  EXPECT_EQ(response.nodes(2).jobs(0).job_name(), "job");
  EXPECT_GT(response.nodes(2).start_time().seconds(), 1'700'000'000);
  EXPECT_EQ(response.store(), "fake");
  EXPECT_TRUE(response.store_shared());
}

TEST_F(Daemons, ACallerThatGoesAwayEndsTheQuestionsToOthers) {
  Add(1);
  FakePeer hung([](const std::string&, const std::string&) { return FakePeer::Never(); });
  store_.AddNode("hung", hung.address());
  grpc::ClientContext context;
  v1::GetJobStatsRequest request;
  request.set_job("job");
  v1::GetJobStatsResponse response;
  std::thread caller([&] {
    EXPECT_EQ(daemons_[0]->stub->GetJobStats(&context, request, &response).error_code(), grpc::StatusCode::CANCELLED);
  });
  const absl::Time begin = absl::Now();
  while (hung.call_count == 0 && absl::Now() < begin + absl::Seconds(10)) std::this_thread::yield();
  context.TryCancel();
  caller.join();
  while (hung.cancelled_count == 0 && absl::Now() < begin + absl::Seconds(10)) std::this_thread::yield();
  EXPECT_EQ(hung.cancelled_count, 1);
}

TEST_F(Daemons, ShutDownDoesNotWaitForOthers) {
  Add(1);
  FakePeer hung([](const std::string&, const std::string&) { return FakePeer::Never(); });
  store_.AddNode("hung", hung.address());
  std::thread caller([&] { Stats(0, "job"); });
  const absl::Time begin = absl::Now();
  while (hung.call_count == 0 && absl::Now() < begin + absl::Seconds(10)) std::this_thread::yield();
  const absl::Time stop = absl::Now();
  daemons_[0]->server->ShutDown(absl::Milliseconds(50));
  EXPECT_LT(absl::Now() - stop, absl::Seconds(1));
  caller.join();
}

TEST_F(Daemons, DaemonsComeAndGoWhileTheyAreAsked) {
  Add(3);
  for (uint32_t rank = 0; rank < 3; ++rank) Run(rank, {.rank = rank, .world_size = 3});
  std::atomic<bool> stop = false;
  std::thread changes([&] {
    while (!stop) {
      store_.RemoveNode("n003");
      store_.AddNode("n003", Address(*daemons_[2]));
    }
  });
  for (int i = 0; i < 200; ++i) {
    const auto stats = Stats(static_cast<size_t>(i) % 2, "job");
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    ASSERT_GE(stats.ranks_size(), 2);
    ASSERT_EQ(stats.ranks_size(), stats.nodes_size()) << "what was asked has answered";
  }
  stop = true;
  changes.join();
  daemons_[2]->server->ShutDown(absl::ZeroDuration());
  const auto stats = Stats(0, "job");
  EXPECT_THAT(Ranks(stats), ElementsAre(0, 1));
  EXPECT_THAT(stats.nodes(2).error(), HasSubstr("cannot be reached"));
}

TEST_F(Daemons, AmongThemselvesTheySpeakTlsWithTheirOwnCertificates) {
  if (std::system("command -v openssl > /dev/null") != 0) GTEST_SKIP() << "openssl is not installed";
  files_ = {"ca.key", "ca.crt", "ca.srl", "ext", "node.key", "node.csr", "node.crt", "other.key", "other.crt"};
  const std::string script =
      "cd " + directory_ +
      " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days 1 -subj "
      "/CN=ca"
      " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout other.key -out other.crt -days 1 "
      "-subj /CN=other -addext subjectAltName=IP:127.0.0.1"
      " && echo subjectAltName=IP:127.0.0.1 > ext"
      " && openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout node.key -out node.csr -subj /CN=node"
      " && openssl x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 1 -extfile ext -out node.crt";
  ASSERT_EQ(std::system(("( " + script + " ) > /dev/null 2>&1").c_str()), 0);
  const auto file = [&](const char* name) { return directory_ + "/" + name; };
  const TlsFiles good{file("node.crt"), file("node.key"), file("ca.crt")};
  Add(&store_, good);
  Add(&store_, good);
  Add(&store_, {file("other.crt"), file("other.key"), file("other.crt")});
  for (uint32_t rank = 0; rank < 3; ++rank) Run(rank, {.rank = rank, .world_size = 3});
  const auto stats = Stats(0, "job");
  EXPECT_THAT(Ranks(stats), ElementsAre(0, 1)) << "not of the one with another authority's certificate";
  EXPECT_FALSE(stats.nodes(2).answered());
  EXPECT_THAT(stats.nodes(2).error(), HasSubstr("cannot be reached"));
  // Without a certificate nobody beyond this machine, or who says that it speaks TLS, is asked.
  Add(&store_);
  const auto without = Stats(3, "job");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status_.error_message(), HasSubstr("has no certificate (--tls_cert)"));
}

// How long an answer takes, printed for people; the bound is far above.
TEST_F(Daemons, TimeOfAnAnswer) {
  const auto measure = [&](const char* what) {
    std::vector<absl::Duration> times;
    for (int i = 0; i < 60; ++i) {
      const absl::Time begin = absl::Now();
      Stats(0, "job");
      times.push_back(absl::Now() - begin);
      ASSERT_TRUE(status_.ok()) << status_.error_message();
    }
    std::sort(times.begin(), times.end());
    std::printf("GetJobStats over %s: shortest %.1f ms, median %.2f ms, longest %.1f ms\n", what,
                absl::ToDoubleMilliseconds(times[0]), absl::ToDoubleMilliseconds(times[30]),
                absl::ToDoubleMilliseconds(times.back()));
    EXPECT_LT(times[30], absl::Seconds(1));
  };
  Add(1);
  for (uint32_t rank = 0; rank < 2; ++rank) Run(0, {.rank = rank, .world_size = 66});
  measure("1 daemon of 2 ranks");
  Add(3);
  for (uint32_t rank = 2; rank < 8; ++rank) Run(rank / 2, {.rank = rank, .world_size = 66});
  measure("4 daemons of 2 ranks");
  Add(29);
  for (uint32_t rank = 8; rank < 66; ++rank) Run(rank / 2, {.rank = rank, .world_size = 66});
  measure("33 daemons of 2 ranks");
}

}  // namespace
}  // namespace gradgate
