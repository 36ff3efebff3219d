// Questions that any of several daemons answers for all.

#include "tests/daemon/rpc/many_daemons.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gradgate/v1/diagnosis.grpc.pb.h"
#include "tests/daemon/rpc/fake_peer.h"

namespace gradgate {
namespace {

using testing::Daemons;
using testing::DeadAddress;
using testing::DeafPort;
using ::testing::ElementsAre;
using testing::FakePage;
using testing::FakePeer;
using ::testing::HasSubstr;
using testing::kUid;

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
  v1::PlanSyncRequest plan;
  plan.set_job(absl::StrCat(kUid, "/", run));
  v1::PlanSyncResponse response;
  grpc::ClientContext context;
  const auto planned = v1::DiagnosisService::NewStub(daemons_[1]->channel)->PlanSync(&context, plan, &response);
  EXPECT_THAT(planned.error_message(), HasSubstr("has closed 0 full windows")) << "both of its questions are of this user's";
  Stats(0, "job");
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status_.error_message(), HasSubstr("node n002: jobs of several users"));
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

TEST_F(Daemons, APlanIsMadeFromTheRanksOfAllNodes) {
  Add(3);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    FakePage& page = Run(rank / 2, {.rank = rank, .world_size = 4});
    page.page().roles[0].issued_count.store(50);
    page.page().cells[0][0].issued_count[0].store(50);
    page.page().cells[0][0].bytes[0].store(50 * 4000);
    for (uint64_t i = 0; i < 50; ++i) {
      page::WindowRecord record = FakePage::MakeRecord(i);
      record.suppressed_median_ns = rank == 3 ? 20'000'000 : 10'000'000;
      record.boundary_ns = record.suppressed_median_ns + 5'000'000;
      page.CloseWindow(record);
    }
  }
  const auto plan = [&](size_t daemon, v1::Scope scope) {
    v1::PlanSyncRequest request;
    request.set_job("job");
    request.set_scope(scope);
    v1::PlanSyncResponse response;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(15)));
    status_ = v1::DiagnosisService::NewStub(daemons_[daemon]->channel)->PlanSync(&context, request, &response);
    return response;
  };
  for (size_t daemon = 0; daemon < 3; ++daemon) {
    const v1::PlanSyncResponse response = plan(daemon, v1::SCOPE_UNSPECIFIED);
    ASSERT_TRUE(status_.ok()) << status_.error_message();
    EXPECT_NEAR(response.plan().numbers().compute_seconds(), 0.02, 1e-9) << "rank 3 of the other node computes longest";
    EXPECT_EQ(response.job().running_rank_count(), 4);
    EXPECT_EQ(response.nodes_size(), 3);
    for (const std::string& note : response.notes()) EXPECT_EQ(note.find("measured on"), std::string::npos) << note;
  }
  const v1::PlanSyncResponse local = plan(0, v1::SCOPE_NODE);
  EXPECT_NEAR(local.plan().numbers().compute_seconds(), 0.01, 1e-9);
  EXPECT_EQ(local.nodes_size(), 1);
  EXPECT_THAT(local.notes(), ::testing::Contains(HasSubstr("measured on 2 of 4 ranks")));
  plan(2, v1::SCOPE_NODE);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);

  daemons_[1]->server->ShutDown(absl::ZeroDuration());
  FakePeer counts_alone([](const std::string& method, const std::string&) {
    return method == "/gradgate.v1.SyncStatsService/GetJobStats"
               ? FakePeer::Reply{grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job")}
               : FakePeer::Reply{grpc::Status(grpc::StatusCode::INTERNAL, "broken")};
  });
  store_.AddNode("zz", counts_alone.address());
  const v1::PlanSyncResponse part = plan(0, v1::SCOPE_JOB);
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_NEAR(part.plan().numbers().compute_seconds(), 0.01, 1e-9);
  ASSERT_EQ(part.nodes_size(), 4);
  EXPECT_THAT(part.nodes(1).error(), HasSubstr("cannot be reached"));
  EXPECT_TRUE(part.nodes(2).answered());
  EXPECT_FALSE(part.nodes(3).answered()) << "it left out the windows";
}

TEST_F(Daemons, APlanWhoseCallerGoesAwayEndsTheQuestionsToOthers) {
  Add(1);
  Run(0, {.rank = 0}, kUid, 5);
  for (const char* silent_for : {"GetJobStats", "ListWindows"}) {
    FakePeer hung([&](const std::string& method, const std::string&) {
      const bool silent = method.find(silent_for) != std::string::npos;
      return silent ? FakePeer::Never() : FakePeer::Reply{grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job")};
    });
    store_.AddNode("hung", hung.address());
    const int calls = silent_for == std::string("GetJobStats") ? 1 : 2;
    grpc::ClientContext context;
    v1::PlanSyncRequest request;
    request.set_job("job");
    v1::PlanSyncResponse response;
    std::thread caller([&] {
      const auto stub = v1::DiagnosisService::NewStub(daemons_[0]->channel);
      EXPECT_EQ(stub->PlanSync(&context, request, &response).error_code(), grpc::StatusCode::CANCELLED);
    });
    const absl::Time begin = absl::Now();
    while (hung.call_count < calls && absl::Now() < begin + absl::Seconds(10)) std::this_thread::yield();
    context.TryCancel();
    caller.join();
    while (hung.cancelled_count == 0 && absl::Now() < begin + absl::Seconds(10)) std::this_thread::yield();
    EXPECT_EQ(hung.cancelled_count, 1) << silent_for;
    EXPECT_EQ(hung.call_count, calls) << silent_for;
  }
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
