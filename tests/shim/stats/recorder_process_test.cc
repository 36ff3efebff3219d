// Two processes: the page is read through a descriptor that crossed a socket, while its owner lives and after it was killed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "shim/stats/recorder.h"
#include "tests/shim/stats/page_reader.h"

namespace gradgate {
namespace {

void SendDescriptor(int socket, int fd) {
  char byte = 'd';
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != 1) ::_exit(3);
}

int ReceiveDescriptor(int socket) {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  return fd;
}

// The trainer: passes its page, counts when told to, and lives until it is killed.
[[noreturn]] void Trainer(int socket) {
  std::unique_ptr<Recorder> recorder;
  if (!Recorder::Create({}, &recorder).ok()) ::_exit(2);
  SendDescriptor(socket, recorder->fd());
  char byte = 0;
  while (::read(socket, &byte, 1) == 1) {
    recorder->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, 64, 1, true, 1, 77);
    page::WindowRecord record{};
    record.window_index = 0;
    record.gradient_bytes = 64;
    recorder->WindowClosed(record);
    if (::write(socket, &byte, 1) != 1) ::_exit(4);
  }
  ::_exit(5);
}

TEST(RecorderProcess, PageIsReadThroughAPassedDescriptorAlsoAfterItsOwnerWasKilled) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const pid_t trainer = ::fork();
  ASSERT_GE(trainer, 0);
  if (trainer == 0) {
    ::close(sockets[0]);
    Trainer(sockets[1]);
  }
  ::close(sockets[1]);
  const timeval deadline = {10, 0};
  ASSERT_EQ(::setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline)), 0);

  const int fd = ReceiveDescriptor(sockets[0]);
  ASSERT_GE(fd, 0);
  void* memory = ::mmap(nullptr, sizeof(page::StatsPage), PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto& page = *static_cast<const page::StatsPage*>(memory);
  EXPECT_EQ(page.header.magic.load(std::memory_order_acquire), page::kMagic);
  EXPECT_EQ(page.identity.process_id, trainer);
  EXPECT_EQ(page.cells[0][0].issued_count[0].load(), 0u);

  char byte = 'c';
  ASSERT_EQ(::write(sockets[0], &byte, 1), 1);
  ASSERT_EQ(::read(sockets[0], &byte, 1), 1);
  EXPECT_EQ(page.cells[0][0].issued_count[0].load(), 1u);

  ASSERT_EQ(::kill(trainer, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(trainer, &status, 0), trainer);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(page.cells[0][0].bytes[0].load(), 64u);
  ASSERT_TRUE(test::ReadWindow(page, 0).has_value());
  EXPECT_EQ(test::ReadWindow(page, 0)->gradient_bytes, 64u);
  ASSERT_TRUE(test::ReadEvent(page, 0).has_value());
  EXPECT_EQ(test::ReadEvent(page, 0)->time_ns, 77u);
  ::munmap(memory, sizeof(page::StatsPage));
  ::close(fd);
  ::close(sockets[0]);
}

}  // namespace
}  // namespace gradgate
