#include "daemon/node/descriptor_bin.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>

#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/hostile.h"

namespace gradgate {
namespace {

using std::chrono::steady_clock;
using testing::LingeringSocket;

constexpr std::chrono::seconds kDeadline(20);
constexpr std::chrono::seconds kPatience(1);

// Nudges, as the loop's clock would, until `done`.
bool NudgeUntil(DescriptorBin& bin, const std::function<bool()>& done) {
  const auto deadline = steady_clock::now() + kDeadline;
  while (!done()) {
    if (steady_clock::now() > deadline) return false;
    bin.Nudge();
    poll(nullptr, 0, 5);
  }
  return true;
}

bool IsClosed(const UniqueFd& read_end) {
  pollfd end{read_end.get(), POLLIN, 0};
  return poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
}

TEST(DescriptorBin, LingeringSocketHoldsUpNobodyAndIsInterrupted) {
  DescriptorBin bin;
  LingeringSocket hostile;
  const auto begin = steady_clock::now();
  bin.Take(std::move(hostile.fd));
  EXPECT_LT(steady_clock::now() - begin, kPatience);
  EXPECT_EQ(bin.waiting_count(), 1u);
  EXPECT_TRUE(NudgeUntil(bin, [&] { return bin.waiting_count() == 0; }));
  EXPECT_GE(steady_clock::now() - begin, kPatience) << "the socket did not linger, so that nothing was tested";
}

TEST(DescriptorBin, WhatWaitsDoesNotHoldUpTheRest) {
  DescriptorBin bin;
  LingeringSocket hostile[5];
  for (LingeringSocket& one : hostile) bin.Take(std::move(one.fd));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  bin.Take(UniqueFd(ends[1]));
  ASSERT_TRUE(NudgeUntil(bin, [&] { return IsClosed(read_end); }));
  EXPECT_GE(bin.waiting_count(), 4u) << "all were closed, so that nothing was tested";
  EXPECT_TRUE(NudgeUntil(bin, [&] { return bin.waiting_count() == 0; }));
}

TEST(DescriptorBin, MemoryIsClosedAtOnce) {
  DescriptorBin bin;
  testing::FakePage page({});
  const int fd = dup(page.fd());
  bin.Take(UniqueFd(fd));
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(bin.waiting_count(), 0u);
}

TEST(DescriptorBin, ConnectionWithNothingInItIsClosedAtOnce) {
  DescriptorBin bin;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd peer(ends[1]);
  const int fd = ends[0];
  bin.TakeConnection(UniqueFd(fd));
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(send(peer.get(), "x", 1, MSG_NOSIGNAL), -1) << "nothing can get in any more";
}

TEST(DescriptorBin, LingeringSocketInsideAConnectionHoldsUpNobody) {
  DescriptorBin bin;
  LingeringSocket hostile;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd sender(ends[1]);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = hostile.fd.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  ASSERT_EQ(sendmsg(sender.get(), &message, MSG_NOSIGNAL), 1);
  hostile.fd.reset();  // the packet holds it

  const auto begin = steady_clock::now();
  bin.TakeConnection(UniqueFd(ends[0]));
  EXPECT_LT(steady_clock::now() - begin, kPatience);
  EXPECT_TRUE(NudgeUntil(bin, [&] { return bin.waiting_count() == 0; }));
  EXPECT_GE(steady_clock::now() - begin, kPatience) << "the socket did not linger, so that nothing was tested";
}

TEST(DescriptorBin, IsFullUntilSomethingIsClosed) {
  DescriptorBin bin;
  LingeringSocket hostile[DescriptorBin::kMaxThreads];
  for (LingeringSocket& one : hostile) bin.Take(std::move(one.fd));
  while (!bin.full()) bin.Take(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)));
  EXPECT_TRUE(NudgeUntil(bin, [&] { return bin.waiting_count() == 0; }));
  EXPECT_FALSE(bin.full());
}

TEST(DescriptorBin, DestructionWaitsForNothing) {
  const auto begin = steady_clock::now();
  LingeringSocket hostile;
  {
    DescriptorBin bin;
    bin.Take(std::move(hostile.fd));
  }
  EXPECT_LT(steady_clock::now() - begin, kPatience);
}

}  // namespace
}  // namespace gradgate
