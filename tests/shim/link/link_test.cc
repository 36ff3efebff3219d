#include "shim/link/link.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "tests/shim/link/link_fixture.h"

namespace gradgate::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::set<int> OpenDescriptors() {
  std::set<int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    if (::fcntl(fd, F_GETFD) >= 0) all.insert(fd);
  }
  return all;
}

TEST_F(LinkTest, HelloCarriesThePageAndItsSize) {
  FakeDaemon daemon(directory_);
  auto link = MakeLink();
  EXPECT_TRUE(link->Due(now_ns_));
  link->Poll(now_ns_);
  EXPECT_FALSE(link->Due(now_ns_ + 100 * kSecondNs));  // connected: nothing is due

  const Packet packet = FakeDaemon::Receive(daemon.Accept());
  const auto hello = packet.As<link::HelloFrame>();
  EXPECT_EQ(hello.header.magic, link::kMagic);
  EXPECT_EQ(hello.header.major, link::kMajor);
  EXPECT_EQ(hello.header.minor, link::kMinor);
  EXPECT_EQ(hello.header.type, static_cast<uint16_t>(link::FrameType::kHello));
  EXPECT_EQ(hello.header.reserved, 0u);
  EXPECT_EQ(hello.header.frame_bytes, sizeof(link::HelloFrame));
  EXPECT_EQ(hello.layout_hash, page::kLayoutHash);
  EXPECT_EQ(hello.reconnects, 0u);
  EXPECT_EQ(hello.reserved, 0u);

  ASSERT_EQ(packet.fds.size(), 1u);
  struct stat info {};
  ASSERT_EQ(::fstat(packet.fds[0], &info), 0);
  EXPECT_EQ(hello.page_bytes, static_cast<uint64_t>(info.st_size));
  void* memory = ::mmap(nullptr, hello.page_bytes, PROT_READ, MAP_SHARED, packet.fds[0], 0);
  ASSERT_NE(memory, MAP_FAILED);
  Recorder::AddOwned(recorder_->page().totals.item_count, 77);
  EXPECT_EQ(static_cast<const page::StatsPage*>(memory)->totals.item_count.load(), 77u);
  ::munmap(memory, hello.page_bytes);
  ::close(packet.fds[0]);
  EXPECT_EQ(Reconnects(), 0u);
  EXPECT_FALSE(link->welcomed());
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(LinkTest, WithoutADaemonItTriesOnceASecondAndIsQuiet) {
  auto link = MakeLink();
  link->Poll(now_ns_);
  EXPECT_FALSE(link->Due(now_ns_ + kSecondNs - 1));
  EXPECT_TRUE(link->Due(now_ns_ + kSecondNs));
  FakeDaemon daemon(directory_);
  link->Poll(now_ns_ + kSecondNs - 1);  // not due
  EXPECT_FALSE(daemon.HasCaller());
  link->Poll(now_ns_ + kSecondNs);
  daemon.AcceptHello();
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(Reconnects(), 0u);  // the first Hello is no reconnect
}

TEST_F(LinkTest, WelcomedUntilTheDaemonGoes) {
  FakeDaemon daemon(directory_);
  int connection = -1;
  auto link = MakeWelcomed(&daemon, &connection);
  daemon.Close(connection);
  link->Poll(now_ns_ + 2 * kSecondNs);
  EXPECT_FALSE(link->welcomed());
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(LinkTest, DaemonGoneIsTriedAtOnceThenOnceASecondAndTheReturnIsCounted) {
  auto daemon = std::make_unique<FakeDaemon>(directory_);
  int connection = -1;
  auto link = MakeWelcomed(daemon.get(), &connection);
  daemon->Stop();
  now_ns_ += 5 * kSecondNs;
  link->Poll(now_ns_);  // sees the end
  EXPECT_TRUE(link->Due(now_ns_));
  link->Poll(now_ns_);  // tries at once: the socket file is there, nobody listens
  EXPECT_FALSE(link->Due(now_ns_ + kSecondNs - 1));
  EXPECT_EQ(Reconnects(), 0u);

  for (uint32_t round = 1; round <= 2; ++round) {
    ASSERT_EQ(::unlink(daemon->path().c_str()), 0);
    daemon = std::make_unique<FakeDaemon>(directory_);
    now_ns_ += kSecondNs;
    link->Poll(now_ns_);
    connection = daemon->Accept();
    const Packet packet = FakeDaemon::Receive(connection);
    EXPECT_EQ(packet.As<link::HelloFrame>().reconnects, round);
    EXPECT_EQ(packet.fds.size(), 1u);
    for (int fd : packet.fds) ::close(fd);
    EXPECT_EQ(Reconnects(), round);
    daemon->Stop();
    now_ns_ += kSecondNs;
    link->Poll(now_ns_);
  }
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(LinkTest, DaemonThatHangsUpAtOnceIsNotCalledMoreThanOnceASecond) {
  FakeDaemon daemon(directory_);
  auto link = MakeLink();
  link->Poll(now_ns_);
  daemon.Close(daemon.AcceptHello());
  for (int64_t ns = 1; ns < kSecondNs; ns += kSecondNs / 100) link->Poll(now_ns_ + ns);
  EXPECT_FALSE(daemon.HasCaller());
  link->Poll(now_ns_ + kSecondNs);
  EXPECT_TRUE(daemon.HasCaller());
}

TEST_F(LinkTest, RejectIsToldOnceWithTheDaemonsWordsAndTriedAgainLater) {
  FakeDaemon daemon(directory_);
  auto link = MakeLink();
  for (int i = 0; i < 2; ++i) {
    link->Poll(now_ns_);
    const int connection = daemon.AcceptHello();
    FakeDaemon::Send(connection, Reject(link::RejectReason::kLimit, "128 clients\nare the limit; raise --max-clients"));
    link->Poll(now_ns_);
    EXPECT_TRUE(FakeDaemon::Receive(connection).end);
    EXPECT_FALSE(link->welcomed());
    EXPECT_FALSE(link->Due(now_ns_ + 5 * kSecondNs - 1)) << "full: soon again";
    now_ns_ += 5 * kSecondNs;
    EXPECT_TRUE(link->Due(now_ns_));
  }
  EXPECT_THAT(told_, ElementsAre(Pair("link_rejected", HasSubstr("128 clients?are the limit; raise --max-clients"))));

  link->Poll(now_ns_);  // another reason is told as well, also one that this shim does not know
  FakeDaemon::Send(daemon.AcceptHello(), Reject(link::RejectReason::kIdentity, "rank 0 lives"));
  link->Poll(now_ns_);
  EXPECT_FALSE(link->Due(now_ns_ + 60 * kSecondNs - 1));
  link->Poll(now_ns_ += 60 * kSecondNs);
  FakeDaemon::Send(daemon.AcceptHello(), Reject(static_cast<link::RejectReason>(4'000'000'000), "of the future"));
  link->Poll(now_ns_);
  ASSERT_EQ(told_.size(), 3u);
  EXPECT_THAT(told_[1], Pair("link_rejected", HasSubstr("rank 0 lives")));
  EXPECT_THAT(told_[2], Pair("link_rejected", HasSubstr("of the future")));
}

TEST_F(LinkTest, GarbageEndsTheConnectionForASecond) {
  FakeDaemon daemon(directory_);
  int connection = -1;
  auto link = MakeWelcomed(&daemon, &connection);
  for (int i = 0; i < 2; ++i) {
    auto frame = Welcome();
    frame.header.magic = 1;
    FakeDaemon::Send(connection, frame);
    now_ns_ += 10 * kSecondNs;
    link->Poll(now_ns_);
    EXPECT_FALSE(link->welcomed());
    EXPECT_TRUE(FakeDaemon::Receive(connection).end);
    EXPECT_FALSE(link->Due(now_ns_ + kSecondNs - 1));
    now_ns_ += kSecondNs;
    link->Poll(now_ns_);
    connection = daemon.AcceptHello();
  }
  EXPECT_THAT(told_, ElementsAre(Pair("link_garbage", HasSubstr("frame magic 1,"))));
}

TEST_F(LinkTest, OversizedPacketIsGarbage) {
  FakeDaemon daemon(directory_);
  int connection = -1;
  auto link = MakeWelcomed(&daemon, &connection);
  char packet[link::kMaxFrameBytes + 1] = {};
  const auto header = link::MakeHeader(static_cast<link::FrameType>(9), link::kMaxFrameBytes);
  std::memcpy(packet, &header, sizeof(header));  // its first 512 bytes would be ignored as an unknown frame
  FakeDaemon::SendBytes(connection, packet, sizeof(packet));
  link->Poll(now_ns_);
  EXPECT_FALSE(link->welcomed());
  EXPECT_THAT(told_, ElementsAre(Pair("link_garbage", HasSubstr("a packet longer than any frame"))));
}

TEST_F(LinkTest, DescriptorFromADaemonIsGarbageAndNotKept) {
  FakeDaemon daemon(directory_);
  int connection = -1;
  auto link = MakeWelcomed(&daemon, &connection);
  auto frame = Welcome();
  iovec part = {&frame, sizeof(frame)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  const int gift = 1;
  std::memcpy(CMSG_DATA(attached), &gift, sizeof(int));
  ASSERT_EQ(::sendmsg(connection, &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(frame)));
  const size_t before = OpenDescriptors().size();
  link->Poll(now_ns_);
  EXPECT_EQ(OpenDescriptors().size(), before - 1);  // the link's own socket, closed
  EXPECT_THAT(told_, ElementsAre(Pair("link_garbage", HasSubstr("a frame with a descriptor attached"))));
}

TEST_F(LinkTest, UnknownFramesAreIgnoredAndOnePollReadsABoundedNumber) {
  FakeDaemon daemon(directory_);
  auto link = MakeLink();
  link->Poll(now_ns_);
  const int connection = daemon.AcceptHello();
  const link::FrameHeader unknown = link::MakeHeader(static_cast<link::FrameType>(77), sizeof(link::FrameHeader));
  for (int i = 0; i < 16; ++i) FakeDaemon::Send(connection, unknown);
  FakeDaemon::Send(connection, Welcome());
  link->Poll(now_ns_);
  EXPECT_FALSE(link->welcomed());
  link->Poll(now_ns_);
  EXPECT_TRUE(link->welcomed());
  EXPECT_THAT(told_, IsEmpty());
}

// A stopped daemon: its socket accepts, reads nothing, answers nothing.
TEST_F(LinkTest, SilentDaemonNeverBlocks) {
  FakeDaemon daemon(directory_);
  const std::set<int> before = OpenDescriptors();
  auto link = MakeLink();
  link->Poll(now_ns_);
  int sockets = 0;
  for (int fd : OpenDescriptors()) {
    if (before.contains(fd)) continue;
    ++sockets;
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0) << fd;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd;
  }
  EXPECT_EQ(sockets, 1);
  for (int i = 0; i < 10'000; ++i) link->Poll(now_ns_ += kSecondNs);
  EXPECT_EQ(Reconnects(), 0u);
  link->Goodbye(false);
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(LinkTest, FullBacklogIsTriedAgainNextSecond) {
  FakeDaemon daemon(directory_, 0);
  std::vector<std::unique_ptr<Link>> others;
  // The kernel takes backlog + 1 callers; the next one gets EAGAIN.
  for (int i = 0; i < 1; ++i) {
    others.push_back(MakeLink());
    others.back()->Poll(now_ns_);
    ASSERT_FALSE(others.back()->Due(now_ns_ + 10 * kSecondNs));
  }
  auto link = MakeLink();
  link->Poll(now_ns_);
  EXPECT_FALSE(link->Due(now_ns_ + kSecondNs - 1));
  EXPECT_TRUE(link->Due(now_ns_ + kSecondNs));  // not connected
  daemon.AcceptHello();
  link->Poll(now_ns_ + kSecondNs);
  daemon.AcceptHello();
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(LinkTest, StaleSocketInTheFirstDirectoryDoesNotHideTheSecond) {
  const std::string second = directory_ + "/second";
  ASSERT_TRUE(std::filesystem::create_directory(second));
  FakeDaemon stale(directory_);
  stale.Stop();
  FakeDaemon daemon(second);
  auto link = MakeLink({directory_ + "/absent", directory_, second});
  link->Poll(now_ns_);
  daemon.AcceptHello();
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(LinkTest, FirstDirectoryThatAcceptsWins) {
  const std::string second = directory_ + "/second";
  ASSERT_TRUE(std::filesystem::create_directory(second));
  FakeDaemon first(directory_);
  FakeDaemon other(second);
  auto link = MakeLink({directory_, second});
  link->Poll(now_ns_);
  first.AcceptHello();
  EXPECT_FALSE(other.HasCaller());
}

TEST_F(LinkTest, PathThatDoesNotFitIsToldWithItsLength) {
  // 107 bytes and a zero are what sun_path holds; "/shim.sock" takes ten.
  const std::string fits = directory_ + "/" + std::string(97 - directory_.size() - 1, 'd');
  ASSERT_TRUE(std::filesystem::create_directory(fits));
  FakeDaemon daemon(fits);
  auto link = MakeLink({fits + "x", fits});
  link->Poll(now_ns_);
  daemon.AcceptHello();
  EXPECT_THAT(told_,
              ElementsAre(Pair("link_path_too_long", AllOf(HasSubstr(fits + "x/shim.sock has 108 bytes, at most 107 fit"),
                                                           HasSubstr("GRADGATE_DIR")))));
}

TEST_F(LinkTest, SocketThatIsNoneIsToldOnce) {
  FakeDaemon daemon(directory_);
  ASSERT_EQ(::unlink(daemon.path().c_str()), 0);
  const int stream = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, daemon.path().c_str(), daemon.path().size() + 1);
  ASSERT_EQ(::bind(stream, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  auto link = MakeLink();
  for (int i = 0; i < 3; ++i) link->Poll(now_ns_ += kSecondNs);
  EXPECT_THAT(told_, ElementsAre(Pair("link_connect", AllOf(HasSubstr(daemon.path()), HasSubstr("wrong type")))));
  ::close(stream);
}

TEST_F(LinkTest, WithoutAFreeDescriptorItTellsOnceAndConnectsLater) {
  FakeDaemon daemon(directory_);
  auto link = MakeLink();
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  rlimit none = former;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  link->Poll(now_ns_);
  link->Poll(now_ns_ += kSecondNs);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &former), 0);
  EXPECT_THAT(told_, ElementsAre(Pair("link_socket", HasSubstr("Too many open files"))));
  link->Poll(now_ns_ += kSecondNs);
  daemon.AcceptHello();
}

// The peer's uid is the one that called listen(): another one on a thread of its own, since the bare system call changes only
// that.
class LinkUidTest : public LinkTest {
 protected:
  static constexpr uid_t kOther = 54321;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to listen as uid " << kOther;
    ASSERT_EQ(::chmod(directory_.c_str(), 0777), 0);
    std::thread([this] {
      ASSERT_EQ(::syscall(SYS_setresuid, -1, kOther, -1), 0);
      daemon_ = std::make_unique<FakeDaemon>(directory_);
    }).join();
  }

  std::unique_ptr<FakeDaemon> daemon_;
};

TEST_F(LinkUidTest, AStrangersDaemonIsNotTrusted) {
  auto link = MakeLink();
  for (int i = 0; i < 2; ++i) {
    link->Poll(now_ns_ += kSecondNs);
    const Packet packet = FakeDaemon::Receive(daemon_->Accept());
    EXPECT_TRUE(packet.end);  // no Hello, no descriptor
    EXPECT_THAT(packet.fds, IsEmpty());
  }
  EXPECT_TRUE(link->Due(now_ns_ + kSecondNs));
  EXPECT_THAT(told_, ElementsAre(Pair("link_peer_uid",
                                      AllOf(HasSubstr("runs as uid 54321"), HasSubstr("set GRADGATE_DAEMON_UID=54321")))));
}

TEST_F(LinkUidTest, TheUidThatWasSetIsTrusted) {
  ::setenv("GRADGATE_DAEMON_UID", "54321", 1);
  auto link = MakeLink();
  ::unsetenv("GRADGATE_DAEMON_UID");
  link->Poll(now_ns_);
  daemon_->AcceptHello();
  EXPECT_THAT(told_, IsEmpty());
}

// On a thread that sees a /run of its own. Who owns /run/gradgate got it from root.
TEST_F(LinkUidTest, TheOwnerOfTheSystemDirectoryIsTrusted) {
  std::thread([this] {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0) << std::strerror(errno);
    ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0) << std::strerror(errno);
    ASSERT_EQ(::mount("none", "/run", "tmpfs", 0, nullptr), 0) << std::strerror(errno);
    ASSERT_EQ(::mkdir("/run/gradgate", 0755), 0);
    ASSERT_EQ(::chown("/run/gradgate", kOther, kOther), 0);
    daemon_.reset();
    std::thread([this] {
      ASSERT_EQ(::syscall(SYS_setresuid, -1, kOther, -1), 0);
      daemon_ = std::make_unique<FakeDaemon>("/run/gradgate");
    }).join();
    ASSERT_EQ(::mkdir("/run/other", 0755), 0);
    ASSERT_EQ(::mount("/run/gradgate", "/run/other", nullptr, MS_BIND, nullptr), 0) << std::strerror(errno);
    auto elsewhere = MakeLink({"/run/other"});
    elsewhere->Poll(now_ns_);
    EXPECT_TRUE(FakeDaemon::Receive(daemon_->Accept()).end) << "an owner elsewhere says nothing";
    auto link = MakeLink({"/run/gradgate"});
    link->Poll(now_ns_);
    daemon_->AcceptHello();
    EXPECT_THAT(told_, ElementsAre(Pair("link_peer_uid", HasSubstr("/run/other/shim.sock"))));
    ASSERT_EQ(::chown("/run/gradgate", 0, 0), 0);
    auto strangers = MakeLink({"/run/gradgate"});
    strangers->Poll(now_ns_);
    EXPECT_TRUE(FakeDaemon::Receive(daemon_->Accept()).end) << "root's directory, a stranger's daemon";
  }).join();
}

TEST_F(LinkTest, UidThatIsNoNumberIsToldAndIgnored) {
  for (const char* value : {"daemon", "12x", "-1", "99999999999"}) {
    told_.clear();
    ::setenv("GRADGATE_DAEMON_UID", value, 1);
    MakeLink();
    ::unsetenv("GRADGATE_DAEMON_UID");
    EXPECT_THAT(told_, ElementsAre(Pair("link_daemon_uid_setting", HasSubstr("'" + std::string(value) + "' is ignored"))));
  }
}

TEST_F(LinkTest, GoodbyeIsTheLastWordEvenWithFramesUnread) {
  FakeDaemon daemon(directory_);
  auto link = MakeLink();
  link->Poll(now_ns_);
  const int connection = daemon.AcceptHello();
  FakeDaemon::Send(connection, Welcome());  // never read by a Poll: a plain close would reset the connection
  link->Goodbye(true);
  link->Goodbye(false);
  const Packet packet = FakeDaemon::Receive(connection);
  EXPECT_EQ(packet.error, 0);
  const auto goodbye = packet.As<link::GoodbyeFrame>();
  EXPECT_EQ(goodbye.header.type, static_cast<uint16_t>(link::FrameType::kGoodbye));
  EXPECT_EQ(goodbye.header.frame_bytes, sizeof(goodbye));
  EXPECT_EQ(goodbye.failed, 1u);
  EXPECT_TRUE(FakeDaemon::Receive(connection).end);
  EXPECT_FALSE(link->welcomed());
  EXPECT_FALSE(link->Due(now_ns_ + 1'000'000 * kSecondNs));
  link->Poll(now_ns_ + 1'000'000 * kSecondNs);
  EXPECT_FALSE(daemon.HasCaller());
}

TEST_F(LinkTest, DestructionWithoutGoodbyeIsAnEndOfFile) {
  FakeDaemon daemon(directory_);
  int connection = -1;
  auto link = MakeWelcomed(&daemon, &connection);
  link.reset();
  EXPECT_TRUE(FakeDaemon::Receive(connection).end);
}

TEST_F(LinkTest, WithoutAnExportedPageItNeverCalls) {
  FakeDaemon daemon(directory_);
  Link link({directory_}, -1, &recorder_->page(), &LinkTest::Told, this);
  EXPECT_FALSE(link.Due(now_ns_));
  link.Poll(now_ns_);
  link.Goodbye(false);
  EXPECT_FALSE(daemon.HasCaller());
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(LinkTest, DefaultDirectoriesFollowTheEnvironment) {
  ::setenv("GRADGATE_DIR", "/somewhere", 1);
  ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_THAT(Link::DefaultDirectories(), ElementsAre("/somewhere"));
  ::setenv("GRADGATE_DIR", "", 1);
  EXPECT_THAT(Link::DefaultDirectories(), ElementsAre("/run/gradgate", "/run/user/7/gradgate"));
  ::unsetenv("GRADGATE_DIR");
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_THAT(Link::DefaultDirectories(), ElementsAre("/run/gradgate"));
}

}  // namespace
}  // namespace gradgate::test
