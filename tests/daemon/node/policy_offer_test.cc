// What the listener offers to trainers, and when.

#include <poll.h>

#include <atomic>
#include <map>

#include "daemon/node/mutex.h"
#include "daemon/node/policy_source.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/fake_trainer.h"
#include "tests/daemon/node/listener_fixture.h"

namespace gradgate::testing {
namespace {

using Kind = FakeTrainer::Answer::Kind;

class FakePolicies final : public PolicySource {
 public:
  uint64_t generation() const override {
    ++ticks_;
    return generation_;
  }
  link::PolicyFrame FrameFor(const JobKey& job, const std::string& launch_id) const override {
    MutexLock lock(&mutex_);
    ++asked_;
    asked_run_ = job.run_id;
    asked_launch_ = launch_id;
    const auto at = frames_.find(job.job_name);
    return at == frames_.end() ? link::PolicyFrame{} : at->second;
  }

  void Set(const std::string& job, uint64_t version) {
    link::PolicyFrame frame{};  // the header is the listener's
    frame.version = version;
    frame.sync_mode = 2;
    frame.content_hash = link::PolicyContentHash(frame);
    MutexLock lock(&mutex_);
    frames_[job] = frame;
    ++generation_;
  }

  uint64_t ticks() const { return ticks_; }
  uint64_t asked() const { return asked_; }
  std::string asked_run() const {
    MutexLock lock(&mutex_);
    return asked_run_;
  }

  std::string asked_launch() const {
    MutexLock lock(&mutex_);
    return asked_launch_;
  }

  // False if the listener does not look so often in time.
  bool AwaitTicks(uint64_t count) const {
    const uint64_t end = ticks_ + count;
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (ticks_ < end && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return ticks_ >= end;
  }

 private:
  std::atomic<uint64_t> generation_ = 1;
  mutable std::atomic<uint64_t> ticks_ = 0, asked_ = 0;
  mutable Mutex mutex_;
  std::map<std::string, link::PolicyFrame> frames_ ABSL_GUARDED_BY(mutex_);
  mutable std::string asked_run_ ABSL_GUARDED_BY(mutex_), asked_launch_ ABSL_GUARDED_BY(mutex_);
};

class PolicyOfferTest : public ListenerTest {
 protected:
  PolicyOfferTest() {
    policies_ = &source_;
    poll_interval_ = absl::Milliseconds(1);
  }
  ~PolicyOfferTest() override { Stop(); }

  static bool Silent(const FakeTrainer& trainer) {
    pollfd entry{trainer.fd(), POLLIN, 0};
    return poll(&entry, 1, 0) == 0;
  }

  static uint64_t NextVersion(FakeTrainer& trainer) {
    const auto answer = trainer.Receive();
    EXPECT_EQ(answer.kind, Kind::kPolicy);
    return answer.policy.version;
  }

  static void Greet(FakeTrainer& trainer, const FakePage& page) {
    ASSERT_TRUE(trainer.SendHello(page.fd()));
    ASSERT_EQ(trainer.Receive().kind, Kind::kWelcome);
  }

  FakePolicies source_;
};

TEST_F(PolicyOfferTest, AfterTheWelcomeOfItsJob) {
  source_.Set("job", 5);
  source_.Set("other", 6);
  Start();
  FakePage page({});
  FakeTrainer trainer(path());
  Greet(trainer, page);
  const auto answer = trainer.Receive();
  ASSERT_EQ(answer.kind, Kind::kPolicy);
  EXPECT_EQ(answer.policy.version, 5u);
  EXPECT_EQ(answer.policy.sync_mode, 2u);
  EXPECT_EQ(answer.policy.content_hash, link::PolicyContentHash(answer.policy));
  EXPECT_EQ(answer.policy.header.magic, link::kMagic);
  EXPECT_EQ(answer.policy.header.frame_bytes, sizeof(link::PolicyFrame));
  EXPECT_EQ(source_.asked_run(), "11111111111111111111111111111111");
  EXPECT_EQ(source_.asked_launch(), "") << "not known";
  FakePage known({.rank = 1});
  known.page().identity.launch_id[15] = 7;
  FakeTrainer other(path());
  Greet(other, known);
  EXPECT_EQ(NextVersion(other), 5u);
  EXPECT_EQ(source_.asked_launch(), "00000000000000000000000000000007");
}

TEST_F(PolicyOfferTest, NothingBeforeHelloAndNothingWhereThereIsNone) {
  source_.Set("other", 5);
  Start();
  FakePage page({});
  FakeTrainer silent(path()), trainer(path());
  Greet(trainer, page);
  source_.Set("other", 6);
  ASSERT_TRUE(source_.AwaitTicks(20));
  EXPECT_TRUE(Silent(silent));
  EXPECT_TRUE(Silent(trainer));
  source_.Set("job", 0);
  ASSERT_TRUE(source_.AwaitTicks(20));
  EXPECT_TRUE(Silent(trainer)) << "version 0 is none";
}

TEST_F(PolicyOfferTest, EachChangeOnceToEachRankOfTheJob) {
  Start();
  FakePage first({}), second({.rank = 1}), foreign({.job_name = "other", .run_id_bytes = std::string(16, '\x22')});
  FakeTrainer one(path()), two(path()), three(path());
  Greet(one, first);
  Greet(two, second);
  Greet(three, foreign);
  for (const uint64_t version : {5, 6, 9}) {
    source_.Set("job", version);
    EXPECT_EQ(NextVersion(one), version);
    EXPECT_EQ(NextVersion(two), version);
  }
  source_.Set("other", 7);
  EXPECT_EQ(NextVersion(three), 7u);
  ASSERT_TRUE(source_.AwaitTicks(20));
  for (const FakeTrainer* trainer : {&one, &two, &three}) EXPECT_TRUE(Silent(*trainer));
}

TEST_F(PolicyOfferTest, ATickWithoutAChangeAsksForNothing) {
  source_.Set("job", 5);
  Start();
  FakePage page({});
  FakeTrainer trainer(path());
  Greet(trainer, page);
  EXPECT_EQ(NextVersion(trainer), 5u);
  ASSERT_TRUE(source_.AwaitTicks(3));
  const uint64_t asked = source_.asked();
  ASSERT_TRUE(source_.AwaitTicks(1000));
  EXPECT_EQ(source_.asked(), asked);
  EXPECT_TRUE(Silent(trainer));
}

TEST_F(PolicyOfferTest, ARankThatComesBackIsOfferedItAgain) {
  source_.Set("job", 5);
  Start();
  FakePage page({});
  for (int i = 0; i < 2; ++i) {
    FakeTrainer trainer(path());
    Greet(trainer, page);
    EXPECT_EQ(NextVersion(trainer), 5u);
    trainer.Disconnect();
    ASSERT_TRUE(Await([&] { return StateOf(0) != RankState::kRunning; }));
  }
}

// Its socket fills up, and stays full for a while; the others get theirs, and it gets the latest once it reads.
TEST_F(PolicyOfferTest, AFullSocketIsTriedAgainAndHoldsNobodyUp) {
  Start();
  FakePage first({}), second({.rank = 1});
  FakeTrainer lazy(path()), keen(path());
  Greet(lazy, first);
  Greet(keen, second);
  uint64_t version = 0;
  const auto full = [&] {
    const uint64_t asked = source_.asked();
    return source_.AwaitTicks(4) && source_.asked() >= asked + 4;  // tried again at each tick
  };
  do {
    ASSERT_LT(version, 20'000u) << "the socket takes all";
    for (int i = 0; i < 50; ++i) {
      source_.Set("job", ++version);
      ASSERT_EQ(NextVersion(keen), version);
    }
  } while (!full());
  EXPECT_TRUE(Silent(keen)) << "no version twice";
  for (uint64_t seen = 0, former = 0; seen != version; former = seen) {
    seen = NextVersion(lazy);
    ASSERT_GT(seen, former);
  }
  const uint64_t asked = (source_.AwaitTicks(3), source_.asked());
  ASSERT_TRUE(source_.AwaitTicks(20));
  EXPECT_EQ(source_.asked(), asked) << "all is told";
}

TEST_F(PolicyOfferTest, OneClientsFaultHurtsNoOther) {
  Start();
  FakePage first({}), second({.rank = 1}), third({.run_id_bytes = std::string(16, '\x22')});
  FakeTrainer good(path()), gone(path()), bad(path());
  Greet(good, first);
  Greet(gone, second);
  Greet(bad, third);
  gone.Disconnect();
  ASSERT_TRUE(bad.Send("garbage", 7));
  source_.Set("job", 5);
  EXPECT_EQ(NextVersion(good), 5u);
  source_.Set("job", 6);
  EXPECT_EQ(NextVersion(good), 6u);
  ASSERT_TRUE(source_.AwaitTicks(5));
  const uint64_t asked = source_.asked();
  ASSERT_TRUE(source_.AwaitTicks(20));
  EXPECT_EQ(source_.asked(), asked) << "nobody is left who could not be told";
}

}  // namespace
}  // namespace gradgate::testing
