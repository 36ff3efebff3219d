// tests/shim/link
// A daemon that does what the test says, on the test's own thread: the shim's end never waits, so neither needs another. Every
// wait here has a deadline of ten seconds.

#ifndef GRADGATE_TESTS_SHIM_LINK_FAKE_DAEMON_H_
#define GRADGATE_TESTS_SHIM_LINK_FAKE_DAEMON_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "proto/link/frames.h"

namespace gradgate::test {

inline constexpr int kDeadlineMs = 10'000;

// What one read of a connection gave.
struct Packet {
  bool end = false;  // end of file
  int error = 0;
  std::vector<char> bytes;
  std::vector<int> fds;  // owned by the test

  template <typename Frame>
  Frame As() const {
    Frame frame{};
    EXPECT_EQ(bytes.size(), sizeof(Frame));
    if (bytes.size() == sizeof(Frame)) std::memcpy(&frame, bytes.data(), sizeof(Frame));
    return frame;
  }
};

class FakeDaemon {
 public:
  explicit FakeDaemon(const std::string& directory, int backlog = 8) : path_(directory + "/shim.sock") {
    listener_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << std::strerror(errno);
    EXPECT_EQ(::listen(listener_, backlog), 0);
  }
  ~FakeDaemon() { Stop(); }

  bool HasCaller() const {
    pollfd entry{listener_, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }

  // The next connection; the test fails where there is none.
  int Accept() {
    pollfd entry{listener_, POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, kDeadlineMs), 1) << "nobody connects";
    connections_.push_back(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_GE(connections_.back(), 0);
    return connections_.back();
  }

  // Accepts, and takes the Hello.
  int AcceptHello() {
    const int connection = Accept();
    const Packet packet = Receive(connection);
    EXPECT_EQ(packet.As<link::HelloFrame>().header.type, static_cast<uint16_t>(link::FrameType::kHello));
    for (int fd : packet.fds) ::close(fd);
    return connection;
  }

  static Packet Receive(int connection) {
    Packet packet;
    pollfd entry{connection, POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, kDeadlineMs), 1) << "nothing comes";
    packet.bytes.resize(2 * link::kMaxFrameBytes);
    iovec part = {packet.bytes.data(), packet.bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = ::recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    packet.error = got < 0 ? errno : 0;
    packet.end = got == 0;
    packet.bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      packet.fds.resize(count);
      std::memcpy(packet.fds.data(), CMSG_DATA(header), count * sizeof(int));
    }
    return packet;
  }

  static void SendBytes(int connection, const void* bytes, size_t byte_count) {
    EXPECT_EQ(::send(connection, bytes, byte_count, MSG_NOSIGNAL | MSG_DONTWAIT), static_cast<ssize_t>(byte_count))
        << std::strerror(errno);
  }
  template <typename Frame>
  static void Send(int connection, const Frame& frame) {
    SendBytes(connection, &frame, sizeof(frame));
  }

  void Close(int connection) {
    std::erase(connections_, connection);
    ::close(connection);
  }

  // Gone, as if killed: all connections end, the socket file stays.
  void Stop() {
    for (int connection : connections_) ::close(connection);
    connections_.clear();
    if (listener_ >= 0) ::close(listener_);
    listener_ = -1;
  }

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  int listener_ = -1;
  std::vector<int> connections_;
};

inline link::WelcomeFrame Welcome(uint32_t slot = 5) {
  link::WelcomeFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kWelcome, sizeof(frame));
  frame.slot = slot;
  std::strcpy(frame.daemon_version, "0.1.0");
  return frame;
}

inline link::RejectFrame Reject(link::RejectReason reason, const char* text) {
  link::RejectFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kReject, sizeof(frame));
  frame.reason = static_cast<uint32_t>(reason);
  std::strncpy(frame.message, text, sizeof(frame.message) - 1);
  return frame;
}

// Gives it the hash of its content.
inline link::PolicyFrame Sealed(link::PolicyFrame frame) {
  frame.content_hash = link::PolicyContentHash(frame);
  return frame;
}

// Sound, and nothing in it but `sync_mode`.
inline link::PolicyFrame Policy(uint64_t version, uint32_t sync_mode = 0) {
  link::PolicyFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kPolicy, sizeof(frame));
  frame.version = version;
  frame.sync_mode = sync_mode;
  return Sealed(frame);
}

}  // namespace gradgate::test

#endif  // GRADGATE_TESTS_SHIM_LINK_FAKE_DAEMON_H_
