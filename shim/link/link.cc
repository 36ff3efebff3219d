#include "shim/link/link.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "shim/link/frame_reader.h"

namespace gradgate {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int kPacketsPerPoll = 16;

// Made by root alone, or for whom root wants to have it: its owner's daemon is root's choice.
constexpr const char* kSystemDirectory = "/run/gradgate";

bool IsOwner(uid_t uid, const std::string& directory) {
  struct stat info {};
  return ::lstat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == uid;
}

std::string SocketPath(const std::string& directory) { return directory + "/" + link::kShimSocketName; }

std::string ErrorText(int error) { return std::strerror(error); }

// Sends one packet whole or not at all; never blocks, never raises SIGPIPE.
bool SendPacket(int fd, const void* bytes, size_t byte_count, int attached_fd) {
  iovec part = {const_cast<void*>(bytes), byte_count};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (attached_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &attached_fd, sizeof(int));
  }
  return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(byte_count);
}

// Reads out what a socket still holds, as far as one Poll would.
void DiscardUnread(int fd) {
  char packet[link::kMaxFrameBytes];
  for (int i = 0; i < kPacketsPerPoll; ++i) {
    if (::recv(fd, packet, sizeof(packet), MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace

// Bits of told_. Rejected: one bit for each RejectReason, the last for those that this shim does not know.
enum class Link::Reason : uint32_t {
  kPathTooLong,
  kDaemonUidSetting,
  kPage,
  kSocket,
  kConnect,
  kPeerUid,
  kHello,
  kGarbage,
  kRejected,
  kRejectedLast = 31,
};

Link::Link(std::vector<std::string> directories, int page_fd, page::StatsPage* page, Log log, void* log_user)
    : directories_(std::move(directories)), page_fd_(page_fd), page_(page), log_(log), log_user_(log_user) {
  struct stat info {};
  if (page_fd_ < 0) {
    next_try_ns_ = kNever;
  } else if (::fstat(page_fd_, &info) != 0) {
    next_try_ns_ = kNever;
    Tell(Reason::kPage, "descriptor " + std::to_string(page_fd_) + " of the stats page: " + ErrorText(errno) +
                            "; no daemon will be asked to read it");
  }
  page_bytes_ = static_cast<uint64_t>(info.st_size);

  const char* setting = std::getenv("GRADGATE_DAEMON_UID");
  if (setting == nullptr || *setting == '\0') return;
  uint32_t uid = 0;
  const char* end = setting + std::strlen(setting);
  const auto [rest, error] = std::from_chars(setting, end, uid);
  if (error == std::errc() && rest == end) {
    allowed_uid_ = uid;
  } else {
    Tell(Reason::kDaemonUidSetting,
         "GRADGATE_DAEMON_UID='" + std::string(setting) + "' is ignored: give the daemon's uid as a number");
  }
}

Link::~Link() { Close(); }

std::vector<std::string> Link::DefaultDirectories() {
  const char* directory = std::getenv("GRADGATE_DIR");
  if (directory != nullptr && *directory != '\0') return {directory};
  std::vector<std::string> all = {kSystemDirectory};
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') all.push_back(std::string(runtime) + "/gradgate");
  return all;
}

void Link::Poll(int64_t now_ns) {
  if (guard_.forked()) {
    next_try_ns_ = kNever;  // the parent's page and its place at the daemon are not ours
  } else if (fd_ >= 0) {
    ReadFrames(now_ns);
  } else if (now_ns >= next_try_ns_) {
    TryConnect(now_ns);
  }
}

void Link::Goodbye(bool failed) {
  if (fd_ >= 0) {
    // Closing with packets unread resets the connection, and the peer would get that before our last word. So: no more from
    // there, then read out what is left.
    ::shutdown(fd_, SHUT_RD);
    DiscardUnread(fd_);
    const link::GoodbyeFrame frame = {link::MakeHeader(link::FrameType::kGoodbye, sizeof(link::GoodbyeFrame)), failed ? 1u : 0u,
                                      0};
    SendPacket(fd_, &frame, sizeof(frame), -1);  // on failure the daemon sees an end of file without it
  }
  Drop(kNever);
}

void Link::TryConnect(int64_t now_ns) {
  last_try_ns_ = now_ns;
  next_try_ns_ = now_ns + kSecondNs;
  for (const std::string& directory : directories_) {
    if (Connect(directory) && PeerAllowed(directory) && SendHello()) return;
    Close();
  }
}

// False where nobody listens, which is no trouble, and where the backlog is full: next second.
bool Link::Connect(const std::string& directory) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t path_bytes = directory.size() + sizeof("/") - 1 + sizeof(link::kShimSocketName);
  if (path_bytes > sizeof(address.sun_path)) {
    Tell(Reason::kPathTooLong, "socket path " + SocketPath(directory) + " has " + std::to_string(path_bytes - 1) +
                                   " bytes, at most " + std::to_string(sizeof(address.sun_path) - 1) +
                                   " fit: set GRADGATE_DIR to a shorter directory, here and for the daemon");
    return false;
  }
  std::memcpy(address.sun_path, directory.data(), directory.size());
  address.sun_path[directory.size()] = '/';
  std::memcpy(address.sun_path + directory.size() + 1, link::kShimSocketName, sizeof(link::kShimSocketName));

  int error = 0;
  {
    MutexLock lock(ForkGuard::ForkMutex());
    fd_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) error = errno;
  }
  if (fd_ < 0) {
    Tell(Reason::kSocket, "no socket for the daemon: " + ErrorText(error) + "; counting goes on, unread");
    return false;
  }
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return true;
  error = errno;
  if (error != ENOENT && error != ENOTDIR && error != ECONNREFUSED && error != EAGAIN && error != EINTR) {
    Tell(Reason::kConnect, "cannot connect to " + SocketPath(directory) + ": " + ErrorText(error) +
                               "; counting goes on, unread: check the socket's owner and mode, or set GRADGATE_DIR");
  }
  return false;
}

bool Link::PeerAllowed(const std::string& directory) {
  ucred peer = {};
  socklen_t peer_bytes = sizeof(peer);
  if (::getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) return false;
  if (peer.uid == 0 || peer.uid == ::geteuid() || static_cast<int64_t>(peer.uid) == allowed_uid_) return true;
  if (directory == kSystemDirectory && IsOwner(peer.uid, directory)) return true;
  Tell(Reason::kPeerUid, "the daemon at " + SocketPath(directory) + " runs as uid " + std::to_string(peer.uid) +
                             ", neither root nor " + std::to_string(::geteuid()) +
                             ": not trusted; set GRADGATE_DAEMON_UID=" + std::to_string(peer.uid) + " if it is yours");
  return false;
}

bool Link::SendHello() {
  const link::HelloFrame hello = {link::MakeHeader(link::FrameType::kHello, sizeof(link::HelloFrame)), page_bytes_,
                                  page::kLayoutHash, hellos_, 0};
  if (!SendPacket(fd_, &hello, sizeof(hello), page_fd_)) {
    const int error = errno;
    if (error != EPIPE && error != ECONNRESET) {  // those two: gone between connect and here
      Tell(Reason::kHello, "cannot pass the stats page to the daemon: " + ErrorText(error) + "; counting goes on, unread");
    }
    return false;
  }
  if (hellos_ > 0) page_->totals.reconnect_count.fetch_add(1, std::memory_order_relaxed);
  ++hellos_;
  return true;
}

void Link::ReadFrames(int64_t now_ns) {
  for (int i = 0; i < kPacketsPerPoll; ++i) {
    char packet[link::kMaxFrameBytes];
    iovec part = {packet, sizeof(packet)};
    msghdr message = {};  // without room for control data: descriptors that a peer attaches are closed by the kernel
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t got = ::recvmsg(fd_, &message, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {  // end of file, or a connection that broke
      Drop(std::max(now_ns, last_try_ns_ + kSecondNs));
      return;
    }
    const char* fault = nullptr;
    if ((message.msg_flags & MSG_TRUNC) != 0) fault = "a packet longer than any frame";
    if ((message.msg_flags & MSG_CTRUNC) != 0) fault = "a frame with a descriptor attached";
    if (fault != nullptr) {
      Tell(Reason::kGarbage, std::string("the daemon sent ") + fault + "; reconnecting");
      Drop(now_ns + kSecondNs);
      return;
    }
    if (!Handle(packet, static_cast<size_t>(got), now_ns)) return;
  }
}

// False if the connection was dropped.
bool Link::Handle(const void* bytes, size_t byte_count, int64_t now_ns) {
  const link::Incoming in = link::ReadPacket(bytes, byte_count);
  switch (in.verdict) {
    case link::Verdict::kIgnored:
      return true;
    case link::Verdict::kWelcome:
      welcomed_.store(true, std::memory_order_relaxed);
      return true;
    case link::Verdict::kPolicy:
      if (in.policy.version > policy_.version) policy_ = in.policy;
      return true;
    case link::Verdict::kReject:
      OnReject(in.reject, now_ns);
      return false;
    case link::Verdict::kGarbage:
      break;
  }
  Tell(Reason::kGarbage, "the daemon sent no valid frame: " + in.fault + "; are shim and daemon of the same version?");
  Drop(now_ns + kSecondNs);
  return false;
}

link::PolicyFrame Link::TakePolicy() { return std::exchange(policy_, link::PolicyFrame{}); }

void Link::OnReject(const link::RejectFrame& reject, int64_t now_ns) {
  constexpr uint32_t kFirst = static_cast<uint32_t>(Reason::kRejected);
  constexpr uint32_t kLast = static_cast<uint32_t>(Reason::kRejectedLast);
  Tell(static_cast<Reason>(kFirst + std::min(reject.reason, kLast - kFirst)),
       "the daemon rejected this process: " + link::Printable(reject.message) + "; counting goes on, unread");
  // A full daemon may have room soon; what else is wrong stays wrong for longer.
  const bool passing = reject.reason == static_cast<uint32_t>(link::RejectReason::kLimit);
  Drop(now_ns + (passing ? 5 : 60) * kSecondNs);
}

void Link::Drop(int64_t next_try_ns) {
  Close();
  next_try_ns_ = next_try_ns;
}

void Link::Close() {
  welcomed_.store(false, std::memory_order_relaxed);
  MutexLock lock(ForkGuard::ForkMutex());
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Link::Tell(Reason reason, const std::string& message) {
  constexpr const char* kCodes[] = {"link_path_too_long", "link_daemon_uid_setting", "link_page",  "link_socket",
                                    "link_connect",       "link_peer_uid",           "link_hello", "link_garbage",
                                    "link_rejected"};
  const uint32_t index = static_cast<uint32_t>(reason);
  if ((told_ >> index & 1) != 0) return;
  told_ |= 1u << index;
  if (log_ != nullptr) log_(log_user_, kCodes[std::min(index, static_cast<uint32_t>(Reason::kRejected))], message.c_str());
}

}  // namespace gradgate
