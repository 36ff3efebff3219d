#include "daemon/rpc/peers.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/rpc/fake_peer.h"
#include "tests/daemon/rpc/fake_store.h"

namespace gradgate {
namespace {

using testing::DeadAddress;
using testing::DeafPort;
using testing::FakePeer;
using testing::FakeStore;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Answer = PeerAnswer<v1::GetJobStatsResponse>;
constexpr char kMethod[] = "/gradgate.v1.SyncStatsService/GetJobStats";
constexpr absl::Duration kLongest = absl::Seconds(20);

FakePeer::Behaviour Says(const std::string& job) {
  v1::GetJobStatsResponse response;
  response.mutable_job()->set_job_name(job);
  return [response](const std::string&, const std::string&) { return FakePeer::Answer(response); };
}
FakePeer::Behaviour Fails(grpc::StatusCode code, const std::string& text) {
  return [=](const std::string&, const std::string&) { return FakePeer::Reply{grpc::Status(code, text)}; };
}
FakePeer::Behaviour Hangs() {
  return [](const std::string&, const std::string&) { return FakePeer::Never(); };
}

class PeersTest : public ::testing::Test {
 protected:
  explicit PeersTest(PeersOptions options = {.node_name = "self", .address = "127.0.0.1:1"}) { Make(options); }

  void Make(const PeersOptions& options) { peers_ = Peers::Create(&store_, options); }

  std::future<std::vector<Answer>> Start(absl::Duration wait, std::shared_ptr<Asking>* asking = nullptr) {
    auto promise = std::make_shared<std::promise<std::vector<Answer>>>();
    v1::GetJobStatsRequest request;
    request.set_job("job");
    auto started = peers_->AskAll<v1::GetJobStatsResponse>(
        kMethod, request, absl::Now() + wait,
        [promise](std::vector<Answer> answers) { promise->set_value(std::move(answers)); });
    if (asking != nullptr) *asking = std::move(started);
    return promise->get_future();
  }
  static std::vector<Answer> Get(std::future<std::vector<Answer>> future) {
    EXPECT_EQ(future.wait_for(absl::ToChronoMilliseconds(kLongest)), std::future_status::ready) << "done never came";
    return future.get();
  }
  std::vector<Answer> Ask(absl::Duration wait = absl::Seconds(10)) { return Get(Start(wait)); }

  FakeStore store_;
  std::unique_ptr<Peers> peers_;
};

TEST_F(PeersTest, NobodyToAskIsDoneAtOnce) {
  std::atomic<bool> done = false;
  peers_->AskAll<v1::GetJobStatsResponse>(kMethod, v1::GetJobStatsRequest(), absl::InfiniteFuture(),
                                          [&](std::vector<Answer> answers) { done = answers.empty(); });
  EXPECT_TRUE(done);
}

TEST_F(PeersTest, AllAreAskedOfTheirNodeAloneAndTheirAnswersComeByName) {
  std::vector<std::string> seen;
  FakePeer a([&](const std::string& method, const std::string& bytes) {
    v1::GetJobStatsRequest request;
    EXPECT_TRUE(request.ParseFromString(bytes));
    EXPECT_EQ(request.scope(), v1::SCOPE_NODE) << "a peer that asked others in turn would never end";
    EXPECT_EQ(request.job(), "job");
    EXPECT_EQ(method, kMethod);
    v1::GetJobStatsResponse response;
    response.mutable_job()->set_job_name("of a");
    return FakePeer::Answer(response);
  });
  FakePeer b(Says("of b"));
  store_.AddNode("b", b.address());
  store_.AddNode("a", a.address());
  const auto answers = Ask();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].node.node_name(), "a");
  EXPECT_EQ(answers[0].answer->job().job_name(), "of a");
  EXPECT_EQ(answers[1].node.address(), b.address());
  EXPECT_EQ(answers[1].answer->job().job_name(), "of b");
  for (const Answer& answer : answers) {
    EXPECT_TRUE(answer.node.answered());
    EXPECT_EQ(answer.node.error(), "");
    EXPECT_GT(answer.node.answer_duration().nanos(), 0);
  }
}

TEST_F(PeersTest, OnlySomeMayBeAsked) {
  FakePeer a(Says("a")), b(Says("b"));
  store_.AddNode("a", a.address());
  store_.AddNode("b", b.address());
  std::promise<std::vector<Answer>> promise;
  peers_->AskAll<v1::GetJobStatsResponse>(
      kMethod, v1::GetJobStatsRequest(), absl::Now() + kLongest,
      [&](std::vector<Answer> answers) { promise.set_value(std::move(answers)); }, absl::flat_hash_set<std::string>{"b"});
  const auto answers = promise.get_future().get();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].node.node_name(), "b");
  EXPECT_EQ(a.call_count, 0);
}

TEST_F(PeersTest, WhoeverDoesNotAnswerIsNamedWithTheReason) {
  FakePeer good(Says("good")), hung(Hangs()), other(Fails(grpc::StatusCode::UNIMPLEMENTED, ""));
  FakePeer broken(Fails(grpc::StatusCode::INTERNAL, "out of \x1b[31mpaint"));
  FakePeer garbage([](const std::string&, const std::string&) {
    return FakePeer::Reply{grpc::Status::OK, std::string("\xff\xff\xff", 3)};
  });
  FakePeer without_job(Fails(grpc::StatusCode::NOT_FOUND, "no job"));
  DeafPort deaf;
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"broken", "failed with code 13: (text that cannot be shown)"},
      {"dead", "cannot be reached: "},
      {"deaf", "did not answer within "},
      {"garbage", "answered 3 bytes that are no answer to this question"},
      {"good", ""},
      {"hung", "did not answer within 500ms"},
      {"nowhere", "announces no address where it could be asked"},
      {"other", "does not know this question; it is another version of gradgated, or no gradgated"},
      {"remote", "is asked by TLS, for which this daemon has no certificate (--tls_cert)"},
      {"unix", "announces an address that is not HOST:PORT"},
      {"without_job", ""},
  };
  store_.AddNode("broken", broken.address());
  store_.AddNode("dead", DeadAddress());
  store_.AddNode("deaf", deaf.address());
  store_.AddNode("garbage", garbage.address());
  store_.AddNode("good", good.address());
  store_.AddNode("hung", hung.address());
  store_.AddNode("nowhere", "");
  store_.AddNode("other", other.address());
  store_.AddNode("remote", "192.0.2.1:9766");
  store_.AddNode("unix", "unix:/run/gradgate/api.sock");
  store_.AddNode("without_job", without_job.address());
  const absl::Time begin = absl::Now();
  const auto answers = Ask(absl::Milliseconds(500));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << "one deadline for all";
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto& [name, error] = expected[i];
    SCOPED_TRACE(name);
    EXPECT_EQ(answers[i].node.node_name(), name);
    EXPECT_THAT(answers[i].node.error(), error.empty() ? StartsWith("") : StartsWith(error));
    EXPECT_EQ(answers[i].node.answered(), error.empty());
    EXPECT_EQ(answers[i].answer.ok(), name == "good");
  }
  EXPECT_TRUE(absl::IsNotFound(answers.back().answer.status()));
  EXPECT_TRUE(absl::IsDataLoss(answers[3].answer.status()));
}

TEST_F(PeersTest, EntriesThatNoDaemonWroteAreLeftOut) {
  FakePeer good(Says("good"));
  store_.AddNode("good", good.address());
  store_.AddNode("self", good.address());
  store_.AddNode("former-self", "127.0.0.1:1");
  store_.Set("nodes/bytes", "\xff\xff");
  store_.Set("nodes/", "");
  store::v1::StoredNode node;
  node.set_node_name("another");
  store_.Set("nodes/name", node.SerializeAsString());
  const std::string escape = "e\x1b[2Jvil", lengthy(300, 'x');
  for (const std::string& name : {escape, lengthy}) store_.AddNode(name, good.address());
  const auto known = peers_->Known();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0].node_name(), "good");
}

TEST_F(PeersTest, HalfOfManyHangAndTheTimeIsOneDeadline) {
  constexpr int kPeers = 64;
  std::vector<std::unique_ptr<FakePeer>> servers;
  for (int i = 0; i < kPeers; ++i) {
    servers.push_back(std::make_unique<FakePeer>(i % 2 == 0 ? Says("job") : Hangs()));
    store_.AddNode(absl::StrCat("n", 100 + i), servers.back()->address());
  }
  const absl::Time begin = absl::Now();
  const auto answers = Ask(absl::Seconds(1));
  const absl::Duration first = absl::Now() - begin;
  EXPECT_GE(first, absl::Milliseconds(990));
  EXPECT_LT(first, absl::Seconds(6));
  ASSERT_EQ(answers.size(), 64u);
  for (int i = 0; i < kPeers; ++i) EXPECT_EQ(answers[i].node.answered(), i % 2 == 0) << i << answers[i].node.error();
  // Those that hung are not waited for as long again.
  const absl::Time again = absl::Now();
  const auto second = Ask(absl::Seconds(15));
  EXPECT_LT(absl::Now() - again, absl::Seconds(8));
  for (int i = 0; i < kPeers; ++i) EXPECT_EQ(second[i].node.answered(), i % 2 == 0) << i << second[i].node.error();
  EXPECT_EQ(second[1].node.error(), "did not answer within 300ms, nor a longer question shortly before");
}

TEST_F(PeersTest, OneThatHungIsAskedInFullAgainOnceItAnswers) {
  std::atomic<bool> hangs = true;
  std::atomic<int> delay_ms = 0;
  FakePeer peer([&](const std::string&, const std::string&) {
    if (hangs) return FakePeer::Never();
    auto reply = FakePeer::Answer(v1::GetJobStatsResponse());
    reply.delay = absl::Milliseconds(delay_ms.load());
    return reply;
  });
  store_.AddNode("a", peer.address());
  EXPECT_FALSE(Ask(absl::Seconds(1))[0].node.answered());
  hangs = false;
  EXPECT_TRUE(Ask()[0].node.answered()) << "by a new connection, within the brief time";
  delay_ms = 600;
  EXPECT_TRUE(Ask()[0].node.answered()) << "slower than the brief time";
}

TEST_F(PeersTest, ShortQuestionsProveNothingAgainstANode) {
  FakePeer peer([&](const std::string&, const std::string&) {
    auto reply = FakePeer::Answer(v1::GetJobStatsResponse());
    reply.delay = absl::Milliseconds(600);
    return reply;
  });
  store_.AddNode("a", peer.address());
  EXPECT_FALSE(Ask(absl::Milliseconds(400))[0].node.answered());
  EXPECT_TRUE(Ask()[0].node.answered());
}

TEST_F(PeersTest, CancelEndsAllCallsSoon) {
  FakePeer a(Hangs()), b(Hangs());
  store_.AddNode("a", a.address());
  store_.AddNode("b", b.address());
  std::shared_ptr<Asking> asking;
  auto future = Start(absl::Minutes(5), &asking);
  const absl::Time give_up = absl::Now() + kLongest;
  while ((a.call_count == 0 || b.call_count == 0) && absl::Now() < give_up) std::this_thread::yield();
  asking->Cancel();
  asking->Cancel();
  const auto answers = Get(std::move(future));
  EXPECT_EQ(answers[0].node.error(), "the question was given up before it answered");
  while ((a.cancelled_count == 0 || b.cancelled_count == 0) && absl::Now() < give_up) std::this_thread::yield();
  EXPECT_EQ(a.cancelled_count, 1) << "the peer is told too";
  asking->Cancel();
}

TEST_F(PeersTest, DestructionEndsWhatIsUnderWay) {
  FakePeer hung(Hangs());
  store_.AddNode("a", hung.address());
  auto future = Start(absl::Minutes(5));
  peers_.reset();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(0)), std::future_status::ready) << "done came before the end";
  EXPECT_FALSE(future.get()[0].node.answered());
}

TEST_F(PeersTest, TooManyCallsAreToldSoAndOthersAreAskedAgainLater) {
  Make({.node_name = "self", .max_calls = 3});
  FakePeer hung(Hangs());
  for (const char* name : {"a", "b"}) store_.AddNode(name, hung.address());
  std::shared_ptr<Asking> asking;
  auto first = Start(absl::Minutes(5), &asking);
  FakePeer good(Says("x"));
  for (const char* name : {"a", "b"}) store_.AddNode(name, good.address());
  const auto second = Ask();
  EXPECT_TRUE(second[0].node.answered());
  EXPECT_EQ(second[1].node.error(), "was not asked: too many questions to other nodes are under way");
  asking->Cancel();
  Get(std::move(first));
  const auto third = Ask();
  EXPECT_TRUE(third[0].node.answered() && third[1].node.answered());
}

TEST_F(PeersTest, AnswersThatAreTooLargeAreRefused) {
  Make({.node_name = "self", .max_answer_bytes = 100'000, .max_total_bytes = 120'000});
  FakePeer small(Says("small")), large(Says(std::string(80'000, 'x'))), huge(Says(std::string(200'000, 'x')));
  store_.AddNode("huge", huge.address());
  store_.AddNode("large1", large.address());
  store_.AddNode("large2", large.address());
  store_.AddNode("small", small.address());
  const auto answers = Ask();
  EXPECT_THAT(answers[0].node.error(), StartsWith("its answer cannot be taken: "));
  EXPECT_NE(answers[1].node.answered(), answers[2].node.answered()) << "both are too much";
  const Answer& refused = answers[answers[1].node.answered() ? 2 : 1];
  EXPECT_EQ(refused.node.error(), "its answer cannot be taken: all answers together are too large");
  EXPECT_TRUE(answers[3].node.answered());
}

TEST_F(PeersTest, NodesComeAndGoWhileQuestionsRun) {
  FakePeer a(Says("a")), b(Says("b"));
  store_.AddNode("a", a.address());
  std::atomic<bool> stop = false;
  std::thread changes([&] {
    for (int i = 0; !stop; ++i) {
      store_.AddNode("b", i % 3 == 0 ? a.address() : b.address());
      if (i % 2 == 0) store_.RemoveNode("b");
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> askers;
  for (int t = 0; t < 3; ++t) {
    askers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const auto answers = Ask();
        EXPECT_TRUE(answers[0].node.answered()) << answers[0].node.error();
        for (const Answer& answer : answers) EXPECT_TRUE(answer.node.answered()) << answer.node.error();
      }
    });
  }
  for (auto& asker : askers) asker.join();
  stop = true;
  changes.join();
}

TEST_F(PeersTest, SaysWhatItIsAndWhetherItIsAlone) {
  EXPECT_EQ(peers_->Self().node_name(), "self");
  EXPECT_TRUE(peers_->Self().answered());
  EXPECT_EQ(peers_->Self().note(), "");
  store_.SetHealth(testing::MakeHealth(false, true, "memory"));
  EXPECT_THAT(peers_->Self().note(), HasSubstr("no common store (gradgated --store)"));
  store_.SetHealth(testing::MakeHealth(true, false, "etcd", "no answer since noon"));
  EXPECT_THAT(peers_->Self().note(), HasSubstr("those last known: no answer since noon"));
  const auto alone = Peers::Create(nullptr, {.node_name = "alone"});
  EXPECT_THAT(alone->Self().note(), HasSubstr("no common store"));
  EXPECT_TRUE(alone->Known().empty());
}

TEST(PeersDeadline, LeavesTimeToAnswerTheCaller) {
  const absl::Time now = absl::Now();
  EXPECT_EQ(Peers::DeadlineFor(absl::InfiniteFuture(), now), now + absl::Seconds(2));
  EXPECT_EQ(Peers::DeadlineFor(now + absl::Seconds(5), now), now + absl::Seconds(2));
  EXPECT_EQ(Peers::DeadlineFor(now + absl::Seconds(1), now), now + absl::Milliseconds(800));
  EXPECT_EQ(Peers::DeadlineFor(now - absl::Seconds(1), now), now);
}

}  // namespace
}  // namespace gradgate
