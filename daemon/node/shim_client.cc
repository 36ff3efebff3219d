#include "daemon/node/shim_client.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gradgate {
namespace {

// As many as the kernel passes at once: closing those for which there is no room would be done here and now, and may wait.
constexpr size_t kMaxDescriptors = 253;

void TakeDescriptors(msghdr& message, Packet& packet) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      packet.descriptors.emplace_back(fd);
    }
  }
}

// A socket without room gets nothing: the client does not read, or has gone, and its end will tell.
template <typename Frame>
bool Send(int fd, const Frame& frame) {
  return send(fd, &frame, sizeof(frame), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(frame));
}

template <size_t kSize>
void CopyText(absl::string_view text, char (&out)[kSize]) {
  std::memset(out, 0, kSize);
  std::memcpy(out, text.data(), std::min(text.size(), kSize - 1));
}

}  // namespace

void ShimClient::Receive(Packet& packet) {
  packet.descriptors.clear();
  packet.bytes = 0;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  // When the peer closes with our answer unread, the socket reports ECONNRESET once, ahead of what the peer sent before.
  for (int attempt = 0; attempt < 2; ++attempt) {
    iovec vector{packet.data, sizeof(packet.data)};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t got;
    do {
      got = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == ECONNRESET) continue;
    if (got < 0) {
      packet.kind = errno == EAGAIN || errno == EWOULDBLOCK ? Packet::Kind::kNothing : Packet::Kind::kEnd;
      return;
    }
    TakeDescriptors(message, packet);
    packet.kind = got == 0 ? Packet::Kind::kEnd : Packet::Kind::kData;
    packet.bytes = static_cast<size_t>(got);
    packet.truncated = (message.msg_flags & MSG_TRUNC) != 0;
    packet.descriptors_truncated = (message.msg_flags & MSG_CTRUNC) != 0;
    return;
  }
  packet.kind = Packet::Kind::kEnd;
}

void ShimClient::SendWelcome(uint32_t slot, absl::string_view daemon_version) const {
  link::WelcomeFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kWelcome, sizeof(frame));
  frame.slot = slot;
  CopyText(daemon_version, frame.daemon_version);
  Send(socket_.get(), frame);
}

void ShimClient::SendReject(link::RejectReason reason, absl::string_view message) const {
  SendRejectTo(socket_.get(), reason, message);
}

bool ShimClient::SendPolicy(link::PolicyFrame policy) {
  policy.header = link::MakeHeader(link::FrameType::kPolicy, sizeof(policy));
  if (!Send(socket_.get(), policy)) return false;
  offered_version_ = policy.version;
  return true;
}

void SendRejectTo(int fd, link::RejectReason reason, absl::string_view message) {
  link::RejectFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kReject, sizeof(frame));
  frame.reason = static_cast<uint32_t>(reason);
  CopyText(message, frame.message);
  Send(fd, frame);
}

}  // namespace gradgate
