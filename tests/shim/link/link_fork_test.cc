// A trainer whose workers are forked: data loaders.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/link/fork_guard.h"
#include "tests/shim/link/link_fixture.h"

namespace gradgate::test {
namespace {

class LinkForkTest : public LinkTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe2(release_, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(alive_, O_CLOEXEC), 0);
  }

  // Both ends of both pipes are the worker's to keep: it lives until `release_` ends, and `alive_` ends with it.
  [[noreturn]] void Worker(Link* link) {
    ::close(release_[1]);
    ::close(alive_[0]);
    link->Poll(now_ns_ + 100 * kSecondNs);  // does nothing in a child
    link->Goodbye(false);
    Recorder::AddShared(recorder_->page().cells[0][0].issued_count[0], 1000);
    recorder_->WindowClosed({});
    char byte = 'r';
    if (::write(alive_[1], &byte, 1) != 1) ::_exit(3);
    while (::read(release_[0], &byte, 1) > 0) {
    }
    ::_exit(0);
  }

  // The trainer: connects, forks its worker, waits to be killed.
  [[noreturn]] void Trainer() {
    auto link = MakeLink();
    ForkGuard page_guard(nullptr, &recorder_->page(), sizeof(page::StatsPage));
    recorder_->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, 8, 1, true, 1, 5);
    link->Poll(now_ns_);
    if (::fork() == 0) Worker(link.get());
    ::close(release_[0]);
    ::close(release_[1]);
    ::close(alive_[0]);
    ::close(alive_[1]);
    while (true) ::pause();
  }

  bool WaitFor(int fd, int timeout_ms) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
  }

  int release_[2];
  int alive_[2];
};

TEST_F(LinkForkTest, DeathIsSeenAtOnceWhileAForkedWorkerLives) {
  FakeDaemon daemon(directory_);
  const pid_t trainer = ::fork();
  ASSERT_GE(trainer, 0);
  if (trainer == 0) Trainer();
  ::close(release_[0]);
  ::close(alive_[1]);
  const int connection = daemon.AcceptHello();
  ASSERT_TRUE(WaitFor(alive_[0], kDeadlineMs)) << "the worker did not start";
  char byte = 0;
  ASSERT_EQ(::read(alive_[0], &byte, 1), 1) << "the worker failed";
  EXPECT_FALSE(WaitFor(connection, 0)) << "the worker said something, or its end was seen as its parent's";
  // The trainer's own count, without the worker's.
  EXPECT_FALSE(daemon.HasCaller());

  ASSERT_EQ(::kill(trainer, SIGKILL), 0);
  ASSERT_EQ(::waitpid(trainer, nullptr, 0), trainer);
  EXPECT_TRUE(FakeDaemon::Receive(connection).end);
  EXPECT_FALSE(WaitFor(alive_[0], 0)) << "the worker should still live";

  ::close(release_[1]);
  EXPECT_TRUE(WaitFor(alive_[0], kDeadlineMs)) << "the worker did not end";
  ::close(alive_[0]);
}

TEST_F(LinkForkTest, WhatAChildCountsIsNotSeenByItsParent) {
  FakeDaemon daemon(directory_);
  int connection = -1;
  auto link = MakeWelcomed(&daemon, &connection);
  ForkGuard page_guard(nullptr, &recorder_->page(), sizeof(page::StatsPage));
  recorder_->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, 8, 1, true, 1, 5);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (link->welcomed()) ::_exit(2);
    for (int i = 0; i < 3; ++i) link->Poll(now_ns_ + (100 + i) * kSecondNs);
    if (link->Due(now_ns_ + 1000 * kSecondNs)) ::_exit(3);
    recorder_->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, 8, 1, true, 1, 6);
    recorder_->WindowClosed({});
    link->Goodbye(false);
    link.reset();
    ::_exit(recorder_->page().cells[0][0].issued_count[0].load() == 1 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(recorder_->page().cells[0][0].issued_count[0].load(), 1u);
  EXPECT_EQ(recorder_->page().ring.event_next.load(), 1u);
  EXPECT_EQ(recorder_->page().ring.window_next.load(), 0u);
  EXPECT_TRUE(link->welcomed());
  EXPECT_FALSE(daemon.HasCaller());

  // The parent's connection still works.
  link->Goodbye(false);
  EXPECT_EQ(FakeDaemon::Receive(connection).As<link::GoodbyeFrame>().failed, 0u);
}

}  // namespace
}  // namespace gradgate::test
