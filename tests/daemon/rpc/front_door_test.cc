// Accepting: numbers that are not used again at once, descriptors that run out, addresses, the socket's file.

#include "daemon/rpc/front_door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using ::testing::HasSubstr;

class FrontDoorTest : public ::testing::Test {
 protected:
  void TearDown() override {
    door_.Close();
    MutexLock lock(&mutex_);
    for (const int fd : given_) close(fd);
  }
  std::string path() { return directory_ / "api.sock"; }

  absl::Status Open() {
    const auto keep = [this](int fd) {
      MutexLock lock(&mutex_);
      given_.push_back(fd);
    };
    return door_.Open(keep, keep);
  }
  std::vector<int> Given(size_t count) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (absl::Now() < deadline) {
      {
        MutexLock lock(&mutex_);
        if (given_.size() >= count) return given_;
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
    ADD_FAILURE() << "not " << count << " connections";
    return std::vector<int>(count, -1);
  }
  UniqueFd Connect() {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << std::strerror(errno);
    return fd;
  }
  static int ConnectTcp(int family, const char* host, int port) {
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in v4{AF_INET, htons(static_cast<uint16_t>(port)), {}, {}};
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<uint16_t>(port));
    if (family == AF_INET) inet_pton(family, host, &v4.sin_addr);
    if (family == AF_INET6) inet_pton(family, host, &v6.sin6_addr);
    const int result = family == AF_INET ? connect(fd.get(), reinterpret_cast<sockaddr*>(&v4), sizeof(v4))
                                         : connect(fd.get(), reinterpret_cast<sockaddr*>(&v6), sizeof(v6));
    return result == 0 ? 0 : errno;
  }

  testing::TempDir directory_;
  Mutex mutex_;
  std::vector<int> given_ ABSL_GUARDED_BY(mutex_);
  FrontDoor door_{64};
};

TEST_F(FrontDoorTest, SocketIsOfItsOwnerAndGroupAndGoesAway) {
  const mode_t former = umask(0);
  ASSERT_TRUE(door_.BindSocket(path()).ok());
  umask(former);
  struct stat file;
  ASSERT_EQ(stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0660u);
  EXPECT_EQ(file.st_uid, geteuid());
  EXPECT_EQ(file.st_gid, getegid());
  FrontDoor second(64);
  EXPECT_EQ(second.BindSocket(path()).code(), absl::StatusCode::kAlreadyExists);
  door_.Close();
  EXPECT_NE(access(path().c_str(), F_OK), 0);
}

TEST_F(FrontDoorTest, UserIsTheKernelsWord) {
  ASSERT_TRUE(door_.BindSocket(path()).ok());
  ASSERT_TRUE(Open().ok());
  const UniqueFd client = Connect();
  const int fd = Given(1)[0];
  EXPECT_EQ(door_.sockets()->UidOf(absl::StrCat("fd:", fd)), geteuid());
}

TEST_F(FrontDoorTest, NumberOfAConnectionThatEndedIsNotTheNextOnes) {
  ASSERT_TRUE(door_.BindSocket(path()).ok());
  ASSERT_TRUE(Open().ok());
  int former = -1;
  for (size_t i = 1; i <= 20; ++i) {
    const UniqueFd client = Connect();
    const int fd = Given(i)[i - 1];
    EXPECT_NE(fd, former);
    close(former = fd);
    MutexLock lock(&mutex_);
    given_[i - 1] = -1;
  }
}

TEST_F(FrontDoorTest, GoesOnWhenDescriptorsHadRunOut) {
  ASSERT_TRUE(door_.BindSocket(path()).ok());
  ASSERT_TRUE(Open().ok());
  UniqueFd waiting = Connect();
  ASSERT_GE(Given(1)[0], 0);
  waiting.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit former;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &former), 0);
  rlimit low = former;
  low.rlim_cur = static_cast<rlim_t>(dup(0));  // none from here on
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(connect(waiting.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  absl::SleepFor(absl::Milliseconds(50));  // for it to find out; nothing tells that it has
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &former), 0);
  close(static_cast<int>(low.rlim_cur));
  EXPECT_GE(Given(2)[1], 0);
}

TEST_F(FrontDoorTest, WildcardIsAllAddressesOfBothKinds) {
  for (const char* host : {"0.0.0.0", "::"}) {
    FrontDoor door(64);
    ASSERT_TRUE(door.BindTcp({host, 0}).ok());
    EXPECT_EQ(ConnectTcp(AF_INET, "127.0.0.1", door.tcp_port()), 0);
    const int by_v6 = ConnectTcp(AF_INET6, "::1", door.tcp_port());
    EXPECT_TRUE(by_v6 == 0 || by_v6 == EADDRNOTAVAIL || by_v6 == EAFNOSUPPORT) << std::strerror(by_v6);
  }
}

TEST_F(FrontDoorTest, LoopbackIsLoopbackAlone) {
  ASSERT_TRUE(door_.BindTcp({"127.0.0.1", 0}).ok());
  EXPECT_EQ(ConnectTcp(AF_INET, "127.0.0.1", door_.tcp_port()), 0);
  EXPECT_EQ(ConnectTcp(AF_INET, "127.0.0.2", door_.tcp_port()), ECONNREFUSED);
  FrontDoor by_name(64);
  ASSERT_TRUE(by_name.BindTcp({"localhost", 0}).ok());
  EXPECT_EQ(ConnectTcp(AF_INET, "127.0.0.1", by_name.tcp_port()), 0);
}

TEST_F(FrontDoorTest, AddressThatCannotBeBoundIsNamed) {
  ASSERT_TRUE(door_.BindTcp({"127.0.0.1", 0}).ok());
  FrontDoor other(64);
  const auto error = [&](const HostPort& address) { return std::string(other.BindTcp(address).message()); };
  EXPECT_THAT(error({"127.0.0.1", door_.tcp_port()}), HasSubstr("Address already in use"));
  EXPECT_THAT(error({"0.0.0.0", door_.tcp_port()}), HasSubstr("Address already in use"));
  EXPECT_THAT(error({"192.0.2.1", 0}), HasSubstr("cannot serve gRPC on 192.0.2.1:0: Cannot assign requested address"));
  EXPECT_THAT(error({"no.such.host.invalid", 1}), HasSubstr("cannot serve gRPC on no.such.host.invalid:1"));
}

}  // namespace
}  // namespace gradgate
