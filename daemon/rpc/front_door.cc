#include "daemon/rpc/front_door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gradgate {
namespace {

constexpr int kBacklog = 1024;
constexpr int kAcceptsAtOnce = 64;  // of one listener, then the others have their turn
constexpr int kPauseMs = 100;       // with no descriptor left
constexpr int kRenumberFrom = 256;  // below lie those of the daemon itself
constexpr int64_t kTellEveryNs = 60'000'000'000;

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

ConnectionTable::Peer PeerOfSocket(int fd) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return {"an unknown uid"};
  return {absl::StrCat("uid ", peer.uid), peer.uid};
}

ConnectionTable::Peer PeerOfTcp(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  char text[INET6_ADDRSTRLEN] = "an unknown address";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return {text};
  if (address.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr, text, sizeof(text));
  } else {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&address)->sin_addr, text, sizeof(text));
  }
  return {text};
}

// Answers are small and are waited for.
void SetNoDelay(int fd) {
  const int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

FrontDoor::FrontDoor(size_t max_connections, LogLine log)
    : log_(std::move(log)), socket_table_(max_connections), tcp_table_(max_connections) {}

absl::Status FrontDoor::BindSocket(const std::string& path) {
  absl::StatusOr<ListeningSocket> socket = ListeningSocket::Listen(path, 0660, kBacklog, SOCK_STREAM);
  if (!socket.ok()) return socket.status();
  socket_.emplace(*std::move(socket));
  return absl::OkStatus();
}

absl::Status FrontDoor::BindTcp(const HostPort& address) {
  absl::StatusOr<TcpListeners> listeners = ListenTcp(address);
  if (!listeners.ok()) return listeners.status();
  tcp_ = *std::move(listeners);
  return absl::OkStatus();
}

absl::Status FrontDoor::Open(Give give_socket, Give give_tcp) {
  give_socket_ = std::move(give_socket);
  give_tcp_ = std::move(give_tcp);
  wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return absl::UnavailableError(absl::StrCat("cannot wait for connections: ", std::strerror(errno)));
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void FrontDoor::Close() {
  if (thread_.joinable()) {
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  tcp_.sockets.clear();
  socket_.reset();
}

void FrontDoor::Run() {
  std::vector<Listener> listeners;
  if (socket_) listeners.push_back({socket_->fd(), &socket_table_, false});
  for (const UniqueFd& socket : tcp_.sockets) listeners.push_back({socket.get(), &tcp_table_, true});
  std::vector<pollfd> waited{{wake_.get(), POLLIN, 0}};
  for (const Listener& listener : listeners) waited.push_back({listener.fd, POLLIN, 0});
  while (waited[0].revents == 0) {
    if (poll(waited.data(), waited.size(), -1) < 0) continue;  // EINTR
    bool starved = false;
    for (size_t i = 0; i < listeners.size(); ++i) {
      if (waited[i + 1].revents == 0) continue;
      int accepted = 0;
      while (accepted < kAcceptsAtOnce && AcceptOne(listeners[i])) ++accepted;
      starved |= accepted == 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS);
    }
    if (starved) (void)poll(waited.data(), 1, kPauseMs);
  }
}

bool FrontDoor::AcceptOne(const Listener& listener) {
  UniqueFd connection(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection) return errno == ECONNABORTED || errno == EINTR;
  connection = Renumbered(std::move(connection));
  if (listener.is_tcp) SetNoDelay(connection.get());
  const absl::Status admitted =
      listener.table->Admit(connection.get(), listener.is_tcp ? PeerOfTcp(connection.get()) : PeerOfSocket(connection.get()));
  if (!admitted.ok()) {
    TellRefused(admitted);
    return true;
  }
  (listener.is_tcp ? give_tcp_ : give_socket_)(connection.Release());
  return true;
}

// The lowest number from next_number_ on, and from the beginning when there is none.
UniqueFd FrontDoor::Renumbered(UniqueFd connection) {
  for (const int from : {std::max(next_number_, kRenumberFrom), kRenumberFrom}) {
    const int moved = fcntl(connection.get(), F_DUPFD_CLOEXEC, from);
    if (moved < 0) continue;
    // Again, by a call that ThreadSanitizer follows: over a descriptor whose beginning it has not seen it ends the process.
    (void)dup3(connection.get(), moved, O_CLOEXEC);
    next_number_ = moved + 1;
    return UniqueFd(moved);
  }
  return connection;
}

void FrontDoor::TellRefused(const absl::Status& why) {
  const int64_t now_ns = NowNs();
  if (!log_ || (told_at_ns_ != 0 && now_ns - told_at_ns_ < kTellEveryNs)) return;
  told_at_ns_ = now_ns;
  log_(absl::StrCat(why.message(), " (not told again for a minute)"));
}

}  // namespace gradgate
