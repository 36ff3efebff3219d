#include "shim/reduce/gloo/gloo_transport.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shim/reduce/clock.h"
#include "shim/reduce/file_store.h"
#include "tests/shim/reduce/temporary_directory.h"

namespace gradgate {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
int64_t InSeconds(double seconds) { return MonotonicNs() + static_cast<int64_t>(seconds * 1e9); }

GlooOptions Options(uint32_t rank, uint32_t world_size, Store* store, double seconds = 60) {
  GlooOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.store = store;
  options.interface_name = "lo";
  options.group_name = "test";
  options.timeout_ns = static_cast<int64_t>(seconds * 1e9);
  return options;
}

AllReduceRequest Request(std::vector<float>* data, double seconds) {
  AllReduceRequest request;
  request.data = data->data();
  request.element_count = data->size();
  request.deadline_ns = InSeconds(seconds);
  return request;
}

TEST(GlooTransport, MissingRanksAreNamed) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  Status statuses[2];
  std::vector<std::thread> threads;
  for (const uint32_t r : {0u, 2u}) {
    threads.emplace_back([&, r] {
      std::unique_ptr<Transport> transport;
      statuses[r / 2] = GlooTransport::Open(Options(r, 4, &store, 0.5), &transport);
      EXPECT_EQ(transport, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
    EXPECT_EQ(status.message(), "ranks [1, 3] did not come within 0.5 s");
  }
}

TEST(GlooTransport, ARankWithAnotherWorldSizeIsNamed) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  ASSERT_TRUE(store.Set("gloo/test/hello/1", "3", kSecond).ok());
  std::unique_ptr<Transport> transport;
  const Status status = GlooTransport::Open(Options(0, 2, &store), &transport);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "rank 1 has a world of '3', this rank of 2");
}

TEST(GlooTransport, ARankThatDiesBeforeItConnectsIsADeadline) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  ASSERT_TRUE(store.Set("gloo/test/hello/1", "2", kSecond).ok());
  std::unique_ptr<Transport> transport;
  const int64_t begin_ns = MonotonicNs();
  const Status status = GlooTransport::Open(Options(0, 2, &store, 0.5), &transport);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "ranks [1] came, and then did not connect; they are frozen, slow or gone");
  EXPECT_LT(MonotonicNs() - begin_ns, 10 * kSecond);
}

TEST(GlooTransport, AStoreOfAnotherRunIsRefused) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  ASSERT_TRUE(store.Set("gloo/test/hello/0", "2", kSecond).ok());
  std::unique_ptr<Transport> transport;
  const Status status = GlooTransport::Open(Options(0, 2, &store), &transport);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "the rendezvous already holds rank 0 of another run: give each run a directory or store of its own");
}

TEST(GlooTransport, BadOptionsAreRefused) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  std::unique_ptr<Transport> transport;
  const auto code = [&](const GlooOptions& options) { return GlooTransport::Open(options, &transport).code(); };
  EXPECT_EQ(code(Options(2, 2, &store)), Code::kInvalidArgument);
  EXPECT_EQ(code(Options(0, 0, &store)), Code::kInvalidArgument);
  EXPECT_EQ(code(Options(0, 2, nullptr)), Code::kInvalidArgument);
  EXPECT_EQ(code(Options(0, 2, &store, 0)), Code::kInvalidArgument);
  GlooOptions options = Options(0, 2, &store);
  options.group_name = "two words";
  EXPECT_EQ(code(options), Code::kInvalidArgument);
}

TEST(GlooTransport, AnUnusableInterfaceIsNamedWithThoseThatExist) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  std::unique_ptr<Transport> transport;
  GlooOptions options = Options(0, 2, &store);
  options.interface_name = "nosuch0";
  const auto expect_named = [&] {
    const Status status = GlooTransport::Open(options, &transport);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("'nosuch0'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("lo"), std::string::npos) << status.message();
  };
  expect_named();
  options.interface_name = "";
  ::setenv("GLOO_SOCKET_IFNAME", "nosuch0,lo", 1);
  expect_named();
  ::unsetenv("GLOO_SOCKET_IFNAME");
}

TEST(GlooTransport, WorksWithoutAnInterfaceName) {
  TemporaryDirectory directory;
  FileStore store(directory.path());
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      GlooOptions options = Options(r, 2, &store);
      options.interface_name = "";
      std::unique_ptr<Transport> transport;
      const Status opened = GlooTransport::Open(options, &transport);
      ASSERT_TRUE(opened.ok()) << opened.message();
      std::vector<float> data(3, 1);
      EXPECT_TRUE(transport->Wait(transport->Start(Request(&data, 60)), InSeconds(60)).ok());
      EXPECT_EQ(data[2], 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A rank in a process of its own; this process must have no threads yet.
class RankProcess {
 public:
  // body returns the exit code. It may write to the pipe that Read reads.
  explicit RankProcess(const std::function<int(int pipe)>& body) {
    EXPECT_EQ(::pipe(pipe_), 0);
    pid_ = ::fork();
    if (pid_ == 0) ::_exit(body(pipe_[1]));
    ::close(pipe_[1]);
  }
  ~RankProcess() {
    if (pid_ > 0) Kill();
    ::close(pipe_[0]);
  }
  bool Read() {
    char byte;
    return ::read(pipe_[0], &byte, 1) == 1;
  }
  void Kill() {
    ::kill(pid_, SIGKILL);
    Join();
  }
  int Join() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

// Opens, says so, starts one request of `count`, says so, and returns 0 if it ended as kUnavailable.
int StartOne(const std::string& directory, uint32_t rank, uint32_t world_size, size_t count, int pipe) {
  FileStore store(directory);
  std::unique_ptr<Transport> transport;
  if (!GlooTransport::Open(Options(rank, world_size, &store), &transport).ok()) return 10;
  std::vector<float> data(count, 1);
  transport->Start(Request(&data, 60));
  if (::write(pipe, "s", 1) != 1) return 11;
  return transport->Wait(1, InSeconds(30)).code() == Code::kUnavailable ? 0 : 12;
}

TEST(GlooTransport, APeerKilledInsideACollectiveFailsTheOthersSoon) {
  for (const size_t count : {size_t{10}, size_t{8} << 20}) {
    TemporaryDirectory directory;
    RankProcess killed([&](int pipe) { return StartOne(directory.path(), 1, 4, count, pipe); });
    RankProcess blocked([&](int pipe) { return StartOne(directory.path(), 2, 4, count, pipe); });
    RankProcess neighbour([&](int pipe) { return StartOne(directory.path(), 3, 4, count, pipe); });
    FileStore store(directory.path());
    std::unique_ptr<Transport> transport;
    const Status opened = GlooTransport::Open(Options(0, 4, &store), &transport);
    ASSERT_TRUE(opened.ok()) << opened.message();
    ASSERT_TRUE(killed.Read() && blocked.Read() && neighbour.Read());
    killed.Kill();
    // The others wait for this rank, which has not started.
    EXPECT_EQ(blocked.Join(), 0);
    EXPECT_EQ(neighbour.Join(), 0);
    std::vector<float> data(count, 1);
    transport->Start(Request(&data, 60));
    const Status status = transport->Wait(1, InSeconds(30));
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
  }
}

TEST(GlooTransport, APeerKilledWhileIdleFailsTheNextRequest) {
  TemporaryDirectory directory;
  RankProcess idle([&](int pipe) {
    FileStore store(directory.path());
    std::unique_ptr<Transport> transport;
    if (!GlooTransport::Open(Options(1, 2, &store), &transport).ok()) return 10;
    if (::write(pipe, "o", 1) != 1) return 11;
    for (;;) ::pause();
  });
  FileStore store(directory.path());
  std::unique_ptr<Transport> transport;
  const Status opened = GlooTransport::Open(Options(0, 2, &store), &transport);
  ASSERT_TRUE(opened.ok()) << opened.message();
  ASSERT_TRUE(idle.Read());
  std::vector<float> data(100, 1);
  transport->Start(Request(&data, 60));
  idle.Kill();
  const Status status = transport->Wait(1, InSeconds(30));
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
}

}  // namespace
}  // namespace gradgate
