// Clients that mean harm, beside one that does not and must lose nothing.

#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/fake_trainer.h"
#include "tests/daemon/hostile.h"
#include "tests/daemon/node/listener_fixture.h"
#include "tests/daemon/witness.h"

namespace gradgate {
namespace {

using testing::FakePage;
using testing::FakeTrainer;
using testing::kWitnessJob;
using testing::LingeringSocket;
using testing::MakeHello;
using testing::OpenDescriptors;
using testing::Tally;
using testing::Witness;
using testing::WrongDescriptor;
using Kind = FakeTrainer::Answer::Kind;

constexpr uint32_t kNobody = 65534;

class HostileClientTest : public testing::ListenerTest {
 protected:
  // With a witness in training.
  void StartWithWitness(const ListenerOptions& options = {}) {
    Start(options);
    witness_ = std::make_unique<Witness>(directory_);
    ASSERT_TRUE(witness_->AwaitWelcome());
  }

  // Ends the witness and compares what the daemon read with what it did.
  void ExpectWitnessUnharmed() {
    const Tally tally = witness_->Finish();
    EXPECT_FALSE(witness_->was_disturbed());
    ASSERT_TRUE(Await([&] { return registry_.GetJobStats(kWitnessJob)->job.state != RankState::kRunning; }));
    const RankView rank = registry_.GetJobStats(kWitnessJob)->ranks.at(0);
    EXPECT_EQ(rank.state, RankState::kFinished);
    EXPECT_EQ(rank.connect_count, 1u);
    EXPECT_EQ(rank.counters.window_count(), tally.windows);
    EXPECT_EQ(rank.counters.totals.micro_step_count, tally.micro_steps);
    const CellValues& cell = rank.counters.cells[0][0];
    EXPECT_EQ(cell.issued_count[0], tally.collectives);
    EXPECT_EQ(cell.bytes[0], tally.bytes);
    EXPECT_EQ(rank.event_read_count, tally.events);
    EXPECT_EQ(rank.event_missed_count, 0u);
    EXPECT_EQ(rank.window_missed_count, 0u);
    const auto windows = registry_.ListWindows(*registry_.FindJob(kWitnessJob), std::nullopt, false, 1'000'000);
    ASSERT_EQ(windows->size(), tally.windows);
    for (size_t i = 0; i < windows->size(); ++i) EXPECT_EQ(windows->at(i).window_index, i);
  }

  // Runs `body` in a process of another user; returns its exit code.
  int RunAsNobody(const std::function<int()>& body) {
    EXPECT_EQ(chmod(directory_.c_str(), 0711), 0);
    const pid_t child = fork();
    if (child == 0) _exit(setgroups(0, nullptr) == 0 && setuid(kNobody) == 0 ? body() : 99);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  }

  std::unique_ptr<Witness> witness_;
};

TEST_F(HostileClientTest, EveryWrongDescriptorIsRefusedAndClosed) {
  StartWithWitness();
  const std::vector<WrongDescriptor> all = testing::WrongDescriptors();
  const size_t before = OpenDescriptors();
  const link::HelloFrame hello = MakeHello();
  for (const WrongDescriptor& wrong : all) {
    const uint64_t counted = rejections_.Get(wrong.reason);
    FakeTrainer hostile(path());
    ASSERT_TRUE(hostile.Send(&hello, sizeof(hello), {wrong.fd.get()}));
    const auto answer = hostile.Receive();
    EXPECT_EQ(answer.kind, Kind::kReject) << wrong.what;
    EXPECT_EQ(answer.reason, link::RejectReason::kPage) << wrong.what << ": " << answer.message;
    EXPECT_EQ(hostile.Receive().kind, Kind::kEnd) << wrong.what;
    EXPECT_EQ(rejections_.Get(wrong.reason), counted + 1) << wrong.what << ": " << answer.message;
  }
  ExpectWitnessUnharmed();
  Stop();  // its descriptors, and the witness's connection
  EXPECT_LE(OpenDescriptors(), before);
}

TEST_F(HostileClientTest, LingeringDescriptorDoesNotHoldUpTheLoop) {
  Bind();
  LingeringSocket first, second;
  const link::HelloFrame hello = MakeHello();
  // One in the packet that is read, one in a packet that is still under way when the first has ended the connection.
  FakeTrainer hostile(path());
  ASSERT_TRUE(hostile.Send(&hello, sizeof(hello), {first.fd.get()}));
  ASSERT_TRUE(hostile.Send("garbage", 7, {second.fd.get()}));
  first.fd.reset();
  second.fd.reset();
  Serve();
  const auto begin = std::chrono::steady_clock::now();
  FakePage page({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()));
  EXPECT_EQ(trainer.Receive().kind, Kind::kWelcome);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(rejections_.Get(Rejection::kPageNotMemfd), 1u);
}

// Sockets are then left alone, but pages are read on.
TEST_F(HostileClientTest, FullBinDelaysNewClientsOnly) {
  Bind();
  FakePage page({}), late_page({.rank = 1});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()));
  std::vector<LingeringSocket> lingering(DescriptorBin::kMaxThreads);
  std::vector<std::unique_ptr<FakeTrainer>> hostile;
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto send = [&](const std::vector<int>& descriptors) {
    hostile.push_back(std::make_unique<FakeTrainer>(path()));
    ASSERT_TRUE(hostile.back()->Send("garbage", 7, descriptors));
  };
  for (LingeringSocket& one : lingering) send({one.fd.get()});
  for (LingeringSocket& one : lingering) one.fd.reset();
  for (int i = 0; i < 3; ++i) send(std::vector<int>(253, null.get()));
  Serve();
  ASSERT_EQ(trainer.Receive().kind, Kind::kWelcome);
  FakeTrainer late(path());
  ASSERT_TRUE(late.SendHello(late_page.fd()));
  for (int i = 0; i < 3 * static_cast<int>(page::kWindowSlots); ++i) {
    page.CloseWindow();
    if (i % 100 == 99) registry_.Tick();
  }
  EXPECT_EQ(registry_.GetJobStats("job")->ranks[0].window_missed_count, 0u);
  EXPECT_EQ(late.Receive().kind, Kind::kWelcome) << "once closes were interrupted";
}

TEST_F(HostileClientTest, OtherUsersJobOfTheSameNameIsAnotherJob) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
  StartWithWitness();
  FakePage page({.job_name = kWitnessJob, .run_id_bytes = std::string(16, 'w'), .world_size = 1});
  const int code = RunAsNobody([&] {
    FakeTrainer hostile(path());
    return hostile.SendHello(page.fd()) && hostile.Receive().kind == Kind::kWelcome && hostile.SendGoodbye() ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  ASSERT_TRUE(Await([&] {
    const auto jobs = registry_.ListJobs();
    return jobs.size() == 2 && (jobs[0].state == RankState::kFinished || jobs[1].state == RankState::kFinished);
  }));
  for (const JobView& job : registry_.ListJobs()) {
    EXPECT_EQ(job.user_id, job.state == RankState::kFinished ? kNobody : 0u) << "the kernel's word, not the page's";
  }
}

TEST_F(HostileClientTest, OneUserCannotTakeAllConnections) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
  StartWithWitness({.max_clients = 8, .max_clients_per_user = 4});
  const int code = RunAsNobody([&] {
    std::vector<std::unique_ptr<FakeTrainer>> silent;
    for (int i = 0; i < 4; ++i) silent.push_back(std::make_unique<FakeTrainer>(path()));
    FakeTrainer surplus(path());
    const auto answer = surplus.Receive();
    const bool refused = answer.kind == Kind::kReject && answer.reason == link::RejectReason::kLimit &&
                         answer.message == "too many clients of uid 65534: 4; raise --max_clients_per_user";
    return refused && surplus.Receive().kind == Kind::kEnd ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(rejections_.Get(Rejection::kUserLimit), 1u);
  EXPECT_EQ(rejections_.Get(Rejection::kClientLimit), 0u);
  FakePage page({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()));
  EXPECT_EQ(trainer.Receive().kind, Kind::kWelcome);
  ExpectWitnessUnharmed();
}

TEST_F(HostileClientTest, SilentClientsAreDroppedAndTheWitnessIsNot) {
  StartWithWitness({.hello_timeout = absl::Milliseconds(50)});
  std::vector<std::unique_ptr<FakeTrainer>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(std::make_unique<FakeTrainer>(path()));
  for (const auto& one : silent) {
    EXPECT_EQ(one->Receive().kind, Kind::kReject);
    EXPECT_EQ(one->Receive().kind, Kind::kEnd);
  }
  EXPECT_EQ(rejections_.Get(Rejection::kHelloTimeout), 100u);
  ExpectWitnessUnharmed();
}

// It is served like any other: only its answer is lost.
TEST_F(HostileClientTest, ClientThatNeverReadsHoldsUpNobody) {
  StartWithWitness();
  FakePage page({});
  FakeTrainer deaf(path());
  ASSERT_TRUE(deaf.SendHello(page.fd()));
  ASSERT_TRUE(Await([&] { return registry_.GetJobStats("job").ok(); }));
  ASSERT_TRUE(deaf.SendHello(page.fd()));  // its Reject is not read either
  ASSERT_TRUE(Await([&] { return StateOf(0) == RankState::kLost; }));
  EXPECT_EQ(rejections_.Get(Rejection::kHelloTwice), 1u);
  ExpectWitnessUnharmed();
}

TEST(ShimClient, FullSocketIsNotWaitedFor) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd deaf(ends[1]);
  const ShimClient client(UniqueFd(ends[0]), 0, 0, absl::InfinitePast());
  for (int i = 0; i < 10'000; ++i) client.SendReject(link::RejectReason::kLimit, "nobody reads this");
  EXPECT_EQ(send(client.fd(), "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL), -1)
      << "the socket was not full, so that nothing was tested";
  int packets = 0;
  char bytes[link::kMaxFrameBytes];
  while (recv(deaf.get(), bytes, sizeof(bytes), MSG_DONTWAIT) == sizeof(link::RejectFrame)) ++packets;
  EXPECT_GT(packets, 0);
  EXPECT_LT(packets, 10'000);
}

TEST_F(HostileClientTest, CountersRunningBackwardsAreCountedAndHarmNobodyElse) {
  StartWithWitness();
  FakePage page({});
  page.page().totals.step_count.store(1000);
  FakeTrainer hostile(path());
  ASSERT_TRUE(hostile.SendHello(page.fd()) && hostile.Receive().kind == Kind::kWelcome);
  for (uint64_t step = 999; step > 900; --step) {
    page.page().totals.step_count.store(step);
    EXPECT_EQ(registry_.GetJobStats("job")->ranks[0].counters.totals.step_count, 1000u);
  }
  EXPECT_GE(registry_.GetNode().page_errors.counters_backwards_count, 99u);
  ExpectWitnessUnharmed();
}

TEST_F(HostileClientTest, ScribblingOnAPageBeingReadSpoilsThatPageAlone) {
  StartWithWitness();
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  FakePage page({});
  page.page().totals.step_count.store(7);
  FakeTrainer hostile(path());
  ASSERT_TRUE(hostile.SendHello(page.fd()) && hostile.Receive().kind == Kind::kWelcome);
  std::atomic<bool> stop = false;
  std::thread scribbler([&] {
    std::mt19937_64 random(seed);
    while (!stop.load(std::memory_order_relaxed)) testing::ScribbleWord(page.page(), random);
  });
  Counters last = registry_.GetJobStats("job")->ranks[0].counters;
  for (int query = 0; query < 5000; ++query) {
    const auto stats = registry_.GetJobStats("job");
    const RankView& rank = stats->ranks[0];
    EXPECT_TRUE(CheckGrowth(last, rank.counters).ok()) << CheckGrowth(last, rank.counters);
    EXPECT_TRUE(CheckRange(rank.counters).ok()) << CheckRange(rank.counters);
    EXPECT_EQ(rank.identity.job_name, "job") << "taken once";
    last = rank.counters;
    const auto windows = registry_.ListWindows(stats->job.id, std::nullopt, true, 1'000'000);
    for (const WindowView& window : *windows) {
      ASSERT_EQ(window.ranks.size(), 1u);
      const page::WindowRecord& record = window.ranks[0].record;
      EXPECT_EQ(record.window_index, window.window_index);
      EXPECT_TRUE(record.kind >= 1 && record.kind <= 3 && record.mode <= 4 && record.begin_ns <= record.end_ns);
    }
  }
  stop = true;
  scribbler.join();
  EXPECT_GT(registry_.GetNode().page_errors.counters_invalid_count, 0u);
  ExpectWitnessUnharmed();
}

// Ended ranks come and go; what is kept of them is bounded, and so is what the process holds.
TEST_F(HostileClientTest, ThousandsOfShortLivedJobsLeaveABoundedRest) {
  StartWithWitness();
  const size_t before = OpenDescriptors();
  for (uint32_t job = 0; job < 2000; ++job) {
    std::string run_id(16, '\0');
    std::memcpy(run_id.data(), &job, sizeof(job));
    FakePage page({.job_name = "flood", .run_id_bytes = run_id});
    FakeTrainer hostile(path());
    ASSERT_TRUE(hostile.SendHello(page.fd()));
    ASSERT_EQ(hostile.Receive().kind, Kind::kWelcome);
  }
  ASSERT_TRUE(Await([&] { return registry_.GetNode().client_count == 1; }));
  EXPECT_EQ(registry_.ListJobs().size(), 65u) << "the witness's, and --max_ended_jobs";
  EXPECT_LE(registry_.GetNode().ranks.size(), 65u);
  EXPECT_LE(OpenDescriptors(), before);
  ExpectWitnessUnharmed();
}

}  // namespace
}  // namespace gradgate
