#include "shim/link/fork_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <thread>

namespace gradgate {
namespace {

constexpr size_t kBytes = 8192;

// Runs `body` in a forked child and gives its exit status; 255 if it was killed.
int InChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return 254;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

bool Open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

std::atomic<int>* SharedPages() {
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return static_cast<std::atomic<int>*>(memory);
}

TEST(ForkGuard, DescriptorIsClosedInTheChildAlone) {
  int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int number = fd;
  ForkGuard guard(&fd, nullptr, 0);
  EXPECT_EQ(InChild([&] { return fd == -1 && !Open(number) && guard.forked() ? 0 : 1; }), 0);
  EXPECT_EQ(fd, number);
  EXPECT_TRUE(Open(number));
  EXPECT_FALSE(guard.forked());
  ::close(fd);
}

TEST(ForkGuard, NoDescriptorIsFine) {
  int fd = -1;
  ForkGuard guard(&fd, nullptr, 0);
  ForkGuard none(nullptr, nullptr, 0);
  EXPECT_EQ(InChild([&] { return fd == -1 && guard.forked() && none.forked() ? 0 : 1; }), 0);
}

TEST(ForkGuard, ChildWritesToPrivateZerosAtTheSameAddress) {
  std::atomic<int>* memory = SharedPages();
  memory[0] = 41;
  ForkGuard guard(nullptr, memory, kBytes);
  EXPECT_EQ(InChild([&] {
              if (memory[0] != 0) return 1;
              memory[0] = 7;
              memory[kBytes / sizeof(int) - 1] = 8;
              // A grandchild goes on with what its parent had, and stays private too.
              return InChild([&] { return memory[0] == 7 && guard.forked() ? 0 : 1; });
            }),
            0);
  EXPECT_EQ(memory[0], 41);
  EXPECT_EQ(memory[kBytes / sizeof(int) - 1], 0);
  ::munmap(memory, kBytes);
}

TEST(ForkGuard, OnlyLivingGuardsAct) {
  int fds[3];
  std::unique_ptr<ForkGuard> guards[3];
  for (int i = 0; i < 3; ++i) {
    fds[i] = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    guards[i] = std::make_unique<ForkGuard>(&fds[i], nullptr, 0);
  }
  const auto open_in_child = [&] { return (Open(fds[0]) ? 1 : 0) | (Open(fds[1]) ? 2 : 0) | (Open(fds[2]) ? 4 : 0); };
  EXPECT_EQ(InChild(open_in_child), 0);
  guards[1].reset();  // from the middle of the list
  EXPECT_EQ(InChild(open_in_child), 2);
  guards[2].reset();
  EXPECT_EQ(InChild(open_in_child), 6);
  guards[0].reset();
  EXPECT_EQ(InChild(open_in_child), 7);
  for (int fd : fds) ::close(fd);
}

TEST(ForkGuard, GuardMadeInAChildServesThere) {
  EXPECT_EQ(InChild([] {
              int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
              const int number = fd;
              ForkGuard guard(&fd, nullptr, 0);
              if (guard.forked()) return 1;
              const int grandchild = InChild([&] { return fd == -1 && !Open(number) ? 0 : 1; });
              return grandchild != 0 || !Open(number) ? 2 : 0;
            }),
            0);
}

// A child that is forked while another thread changes descriptors under the lock has no copy that its guard does not know.
TEST(ForkGuard, DescriptorChangedUnderTheLockIsNeverLeakedIntoAChild) {
  int fd = -1;
  int pipe_fds[2];
  ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
  ForkGuard guard(&fd, nullptr, 0);
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    while (!stop.load()) {
      MutexLock lock(ForkGuard::ForkMutex());
      if (fd >= 0) {
        ::close(fd);
        fd = -1;
      } else {
        fd = ::fcntl(pipe_fds[0], F_DUPFD_CLOEXEC, 100);
      }
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(InChild([&] { return fd == -1 && !Open(100) ? 0 : 1; }), 0) << "fork " << i;
  }
  stop = true;
  changer.join();
  if (fd >= 0) ::close(fd);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

}  // namespace
}  // namespace gradgate
