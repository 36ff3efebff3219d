#include "tests/daemon/fake_trainer.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "proto/shm/stats_page.h"

namespace gradgate::testing {

FakeTrainer::FakeTrainer(const std::string& socket_path) : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
  const timeval deadline{10, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof(deadline));
  connected_ = connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

bool FakeTrainer::Send(const void* bytes, size_t size, const std::vector<int>& descriptors) {
  iovec vector{const_cast<void*>(bytes), size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

link::HelloFrame MakeHello() {
  link::HelloFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kHello, sizeof(frame));
  frame.page_bytes = sizeof(page::StatsPage);
  frame.layout_hash = page::kLayoutHash;
  return frame;
}

bool FakeTrainer::SendHello(int page_fd) {
  const link::HelloFrame frame = MakeHello();
  return Send(&frame, sizeof(frame), {page_fd});
}

bool FakeTrainer::SendGoodbye(bool failed) {
  link::GoodbyeFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kGoodbye, sizeof(frame));
  frame.failed = failed ? 1 : 0;
  return Send(&frame, sizeof(frame));
}

FakeTrainer::Answer FakeTrainer::Receive() {
  alignas(8) char bytes[link::kMaxFrameBytes];
  const ssize_t got = recv(socket_.get(), bytes, sizeof(bytes), 0);
  Answer answer;
  if (got <= 0) {
    answer.kind = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Answer::Kind::kTimeout : Answer::Kind::kEnd;
    return answer;
  }
  link::FrameHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.type == static_cast<uint16_t>(link::FrameType::kWelcome) && got == sizeof(link::WelcomeFrame)) {
    link::WelcomeFrame frame;
    std::memcpy(&frame, bytes, sizeof(frame));
    answer.kind = Answer::Kind::kWelcome;
    answer.slot = frame.slot;
    answer.message = frame.daemon_version;
  } else if (header.type == static_cast<uint16_t>(link::FrameType::kReject) && got == sizeof(link::RejectFrame)) {
    link::RejectFrame frame;
    std::memcpy(&frame, bytes, sizeof(frame));
    answer.kind = Answer::Kind::kReject;
    answer.reason = static_cast<link::RejectReason>(frame.reason);
    answer.message = frame.message;
  } else if (header.type == static_cast<uint16_t>(link::FrameType::kPolicy) && got == sizeof(link::PolicyFrame)) {
    answer.kind = Answer::Kind::kPolicy;
    std::memcpy(&answer.policy, bytes, sizeof(answer.policy));
  }
  return answer;
}

}  // namespace gradgate::testing
