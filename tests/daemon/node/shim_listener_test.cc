#include "daemon/node/shim_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/fake_trainer.h"
#include "tests/daemon/node/listener_fixture.h"

namespace gradgate {
namespace {

using ::testing::Contains;
using testing::FakePage;
using testing::FakeTrainer;
using ::testing::HasSubstr;
using testing::kDeadline;
using testing::ListenerTest;
using testing::MakeHello;
using testing::OpenDescriptors;
using Kind = FakeTrainer::Answer::Kind;

TEST_F(ListenerTest, HelloIsWelcomedAndCounted) {
  Start();
  FakePage page({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()));
  const auto answer = trainer.Receive();
  ASSERT_EQ(answer.kind, Kind::kWelcome) << answer.message;
  EXPECT_EQ(answer.slot, 0u);
  EXPECT_EQ(answer.message, "1.2.3");
  page.page().totals.step_count.store(3);
  EXPECT_EQ(registry_.GetJobStats("job")->ranks[0].counters.totals.step_count, 3u);
  EXPECT_EQ(registry_.GetJobStats("job")->job.user_id, getuid());
  struct stat file;
  ASSERT_EQ(stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0666u);
}

TEST_F(ListenerTest, EndOfFileIsLost) {
  Start();
  FakePage page({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()));
  ASSERT_EQ(trainer.Receive().kind, Kind::kWelcome);
  trainer.Disconnect();
  EXPECT_TRUE(Await([&] { return StateOf(0) == RankState::kLost; }));
  const std::lock_guard<std::mutex> lock(mutex_);
  EXPECT_THAT(log_, Contains(HasSubstr("lost rank 0 of job \"job\"")));
}

TEST_F(ListenerTest, GoodbyeIsFinished) {
  Start();
  FakePage page({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
  ASSERT_TRUE(trainer.SendGoodbye());
  trainer.Disconnect();
  EXPECT_TRUE(Await([&] { return StateOf(0) == RankState::kFinished; }));
}

TEST_F(ListenerTest, GoodbyeWithAnErrorIsFailed) {
  Start();
  FakePage page({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
  ASSERT_TRUE(trainer.SendGoodbye(/*failed=*/true));
  EXPECT_TRUE(Await([&] { return StateOf(0) == RankState::kFailed; }));
}

// The kernel then reports a reset ahead of the goodbye.
TEST_F(ListenerTest, GoodbyeCountsEvenWhenTheWelcomeWasNeverRead) {
  Start();
  FakePage page({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()));
  ASSERT_TRUE(Await([&] { return registry_.ListJobs().size() == 1; }));
  ASSERT_TRUE(trainer.SendGoodbye());
  trainer.Disconnect();
  EXPECT_TRUE(Await([&] { return StateOf(0) != RankState::kRunning; }));
  EXPECT_EQ(StateOf(0), RankState::kFinished);
}

TEST_F(ListenerTest, KilledTrainerIsToldAtOnce) {
  Start();
  FakePage page({});
  const pid_t child = fork();
  if (child == 0) {
    FakeTrainer trainer(path());
    if (!trainer.SendHello(page.fd())) _exit(1);
    pause();
    _exit(0);
  }
  ASSERT_TRUE(Await([&] { return registry_.ListJobs().size() == 1; }));
  const absl::Time killed = absl::Now();
  kill(child, SIGKILL);
  EXPECT_TRUE(Await([&] { return StateOf(0) == RankState::kLost; }));
  EXPECT_LT(absl::Now() - killed, absl::Seconds(1));
  waitpid(child, nullptr, 0);
}

// What feeds the watchdog: a loop that is held up says nothing.
TEST_F(ListenerTest, AliveIsToldByTheLoopAlone) {
  const auto turns = std::make_shared<std::counting_semaphore<>>(0);
  ListenerOptions options;
  options.alive = [turns](uint64_t) { turns->release(); };
  poll_interval_ = absl::Milliseconds(1);
  Start(options);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(turns->try_acquire_for(kDeadline));
  FakePage page({});
  FakeTrainer trainer(path());
  int more = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);  // which the loop wants, to tell of a new rank
    ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
    while (turns->try_acquire()) continue;
    while (more < 100 && turns->try_acquire_for(std::chrono::milliseconds(50))) ++more;
  }
  EXPECT_LE(more, 1) << "the rest of that turn";
  EXPECT_TRUE(turns->try_acquire_for(kDeadline));
}

TEST_F(ListenerTest, TruncatedFrame) {
  Start();
  const link::HelloFrame hello = MakeHello();
  FakePage page({});
  ExpectRefused(&hello, 10, {}, Rejection::kFrameShort, link::RejectReason::kUnspecified);
  ExpectRefused(&hello, sizeof(hello) - 1, {page.fd()}, Rejection::kFrameSize, link::RejectReason::kUnspecified);
}

TEST_F(ListenerTest, OversizedFrame) {
  Start();
  std::vector<char> bytes(100'000);
  const link::HelloFrame hello = MakeHello();
  std::memcpy(bytes.data(), &hello, sizeof(hello));
  ExpectRefused(bytes.data(), bytes.size(), {}, Rejection::kFrameLong, link::RejectReason::kUnspecified);
}

TEST_F(ListenerTest, UnknownType) {
  Start();
  link::HelloFrame hello = MakeHello();
  hello.header.type = 77;
  ExpectRefused(&hello, sizeof(hello), {}, Rejection::kFrameUnknownType, link::RejectReason::kUnspecified);
}

TEST_F(ListenerTest, AnotherMajorIsToldSo) {
  Start();
  link::HelloFrame hello = MakeHello();
  hello.header.major = 9;
  ExpectRefused(&hello, sizeof(hello), {}, Rejection::kFrameVersion, link::RejectReason::kVersion);
}

TEST_F(ListenerTest, NoDescriptor) {
  Start();
  const link::HelloFrame hello = MakeHello();
  ExpectRefused(&hello, sizeof(hello), {}, Rejection::kDescriptorMissing, link::RejectReason::kPage);
}

TEST_F(ListenerTest, SeveralDescriptorsAreRefusedAndAllClosed) {
  Start();
  FakePage page({});
  const link::HelloFrame hello = MakeHello();
  const size_t before = OpenDescriptors();
  ExpectRefused(&hello, sizeof(hello), {page.fd(), page.fd()}, Rejection::kDescriptorSurplus, link::RejectReason::kPage);
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.Send(&hello, sizeof(hello), std::vector<int>(100, page.fd())));
  EXPECT_EQ(trainer.Receive().kind, Kind::kReject);
  EXPECT_EQ(trainer.Receive().kind, Kind::kEnd);
  trainer.Disconnect();
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(ListenerTest, GoodbyeWithADescriptorIsRefused) {
  Start();
  FakePage page({});
  link::GoodbyeFrame goodbye{};
  goodbye.header = link::MakeHeader(link::FrameType::kGoodbye, sizeof(goodbye));
  ExpectRefused(&goodbye, sizeof(goodbye), {page.fd()}, Rejection::kDescriptorSurplus, link::RejectReason::kPage);
}

TEST_F(ListenerTest, UnsealedPageIsRefused) {
  Start();
  FakePage page({}, {.seals = 0});
  const link::HelloFrame hello = MakeHello();
  ExpectRefused(&hello, sizeof(hello), {page.fd()}, Rejection::kPageUnsealed, link::RejectReason::kPage);
}

TEST_F(ListenerTest, GoodbyeBeforeHello) {
  Start();
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendGoodbye());
  ExpectRefusal(trainer, Rejection::kHelloMissing, link::RejectReason::kUnspecified);
}

TEST_F(ListenerTest, HelloTwiceEndsTheConnection) {
  Start();
  FakePage page({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
  ASSERT_TRUE(trainer.SendHello(page.fd()));
  ExpectRefusal(trainer, Rejection::kHelloTwice, link::RejectReason::kUnspecified);
  EXPECT_TRUE(Await([&] { return StateOf(0) == RankState::kLost; }));
}

TEST_F(ListenerTest, SilentClientIsDropped) {
  Start({.hello_timeout = absl::Milliseconds(50)});
  FakeTrainer trainer(path());
  ExpectRefusal(trainer, Rejection::kHelloTimeout, link::RejectReason::kUnspecified);
}

TEST_F(ListenerTest, TooManyClientsAreRefusedAndTheOthersStay) {
  Start({.max_clients = 1});
  FakePage page({}), other({.rank = 1});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
  {
    FakeTrainer refused(path());
    ExpectRefusal(refused, Rejection::kClientLimit, link::RejectReason::kLimit);
  }
  EXPECT_EQ(StateOf(0), RankState::kRunning);
  ASSERT_TRUE(trainer.SendGoodbye());
  ASSERT_TRUE(Await([&] { return StateOf(0) == RankState::kFinished; }));
  FakeTrainer next(path());
  ASSERT_TRUE(next.SendHello(other.fd()));
  EXPECT_EQ(next.Receive().kind, Kind::kWelcome);
}

TEST_F(ListenerTest, DuplicateRankIsRefused) {
  Start();
  FakePage page({}), same({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
  FakeTrainer second(path());
  ASSERT_TRUE(second.SendHello(same.fd()));
  ExpectRefusal(second, Rejection::kRankDuplicate, link::RejectReason::kIdentity);
  EXPECT_EQ(StateOf(0), RankState::kRunning);
}

TEST_F(ListenerTest, ReconnectRightAfterTheEndIsNeverADuplicate) {
  Start();
  FakePage page({});
  for (int round = 0; round < 50; ++round) {
    FakeTrainer trainer(path());
    ASSERT_TRUE(trainer.SendHello(page.fd()));
    const auto answer = trainer.Receive();
    ASSERT_EQ(answer.kind, Kind::kWelcome) << round << ": " << answer.message;
    EXPECT_EQ(answer.slot, 0u);
  }
}

TEST_F(ListenerTest, RestartedDaemonReadsOn) {
  Start();
  FakePage page({});
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
  page.page().totals.step_count.store(7);
  Stop();
  EXPECT_EQ(trainer.Receive().kind, Kind::kEnd);
  EXPECT_NE(access(path().c_str(), F_OK), 0) << "the socket file is removed";
  Registry fresh{RegistryOptions{}, &clock_};
  auto listener = ShimListener::Create({.socket_path = path()}, &clock_, &fresh, &rejections_, {});
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::thread loop([&] { (*listener)->Run(); });
  FakeTrainer again(path());
  EXPECT_TRUE(again.SendHello(page.fd()) && again.Receive().kind == Kind::kWelcome);
  EXPECT_EQ(fresh.GetJobStats("job")->ranks[0].counters.totals.step_count, 7u);
  (*listener)->Stop();
  loop.join();
}

TEST_F(ListenerTest, SecondDaemonIsRefusedAndTheFirstStays) {
  Start();
  Registry other{RegistryOptions{}, &clock_};
  const auto second = ShimListener::Create({.socket_path = path()}, &clock_, &other, &rejections_, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another gradgated listens on " + path()));
  FakeTrainer trainer(path());
  EXPECT_TRUE(trainer.connected());
}

TEST_F(ListenerTest, StaleSocketFileIsReplaced) {
  {
    UniqueFd dead(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_EQ(access(path().c_str(), F_OK), 0);
  Start();
  EXPECT_TRUE(FakeTrainer(path()).connected());
}

TEST_F(ListenerTest, FileInTheWayIsNotRemoved) {
  UniqueFd file(open(path().c_str(), O_CREAT | O_WRONLY, 0600));
  const auto listener = ShimListener::Create({.socket_path = path()}, &clock_, &registry_, &rejections_, {});
  EXPECT_EQ(listener.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(access(path().c_str(), F_OK), 0);
  unlink(path().c_str());
}

TEST_F(ListenerTest, PathTooLongForASocketIsNamed) {
  const std::string too_long = directory_ + "/" + std::string(120, 'x');
  const auto listener = ShimListener::Create({.socket_path = too_long}, &clock_, &registry_, &rejections_, {});
  EXPECT_EQ(listener.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gradgate
