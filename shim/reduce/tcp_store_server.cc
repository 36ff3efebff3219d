#include "shim/reduce/tcp_store_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr int kPollMs = 1000;  // only after accept() failed for lack of descriptors
// The serving rank often ends first, and the others still want to know what became of the rest.
constexpr int64_t kLingerNs = 2'000'000'000;

void AppendU32(uint32_t value, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(value >> shift));
}

uint32_t ReadU32(const char* bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

std::string Reply(Code code, std::string_view body) {
  std::string reply;
  AppendU32(static_cast<uint32_t>(1 + body.size()), &reply);
  reply.push_back(static_cast<char>(code));
  reply.append(body);
  return reply;
}

// The keys and the connections, apart from the sockets: bytes in, bytes out.
struct Connection {
  std::string in;
  std::string out;
  std::string waiting_for;  // the key of a get not yet answered
};

class Server final : public TcpStoreServer {
 public:
  Server(int listener, int wake, uint16_t port, std::string local_host)
      : listener_(listener), wake_(wake), port_(port), local_host_(std::move(local_host)) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's, not this thread's
    thread_ = std::thread([this] { Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Server() override {
    const uint64_t one = 1;
    while (::write(wake_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
    for (const auto& [fd, connection] : connections_) ::close(fd);
    ::close(listener_);
    ::close(wake_);
  }

  uint16_t port() const override { return port_; }
  std::string local_host() const override { return local_host_; }

 private:
  // Serves until it is told to stop, and then for kLingerNs or until the last client has gone.
  void Run() {
    int64_t end_ns = 0;
    while (end_ns == 0 || (!connections_.empty() && MonotonicNs() < end_ns)) {
      std::vector<pollfd> fds = {{end_ns == 0 ? wake_ : -1, POLLIN, 0}, {accepting_ ? listener_ : -1, POLLIN, 0}};
      for (const auto& [fd, c] : connections_) fds.push_back({fd, static_cast<int16_t>(c.out.empty() ? POLLIN : POLLOUT), 0});
      const int n = ::poll(fds.data(), fds.size(), accepting_ && end_ns == 0 ? -1 : kPollMs);
      accepting_ = true;
      if (n < 0) continue;  // EINTR, ENOMEM
      if (fds[0].revents != 0) end_ns = MonotonicNs() + kLingerNs;
      for (size_t i = 2; i < fds.size(); ++i) {
        if (fds[i].revents != 0 && !Serve(fds[i].fd)) Drop(fds[i].fd);
      }
      if (fds[1].revents != 0) Accept();
    }
  }

  void Accept() {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      accepting_ = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      return;
    }
    if (connections_.size() >= kTcpStoreMaxConnections) {
      ::close(fd);
      return;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    connections_.emplace(fd, Connection());
  }

  void Drop(int fd) {
    ::close(fd);
    if (const auto it = connections_.find(fd); it != connections_.end()) {
      StopWaiting(fd, it->second);
      connections_.erase(it);
    }
  }

  void StopWaiting(int fd, const Connection& c) {
    if (c.waiting_for.empty()) return;
    auto [begin, end] = waiting_.equal_range(c.waiting_for);
    for (auto it = begin; it != end; ++it) {
      if (it->second == fd) {
        waiting_.erase(it);
        return;
      }
    }
  }

  // false: close the connection.
  bool Serve(int fd) {
    Connection& c = connections_[fd];
    if (!c.out.empty()) return Flush(fd, &c);
    char bytes[16384];
    const ssize_t n = ::recv(fd, bytes, sizeof(bytes), 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    if (!c.waiting_for.empty()) return false;
    c.in.append(bytes, static_cast<size_t>(n));
    if (c.in.size() < kTcpStoreHeaderBytes) return true;
    const size_t body = ReadU32(c.in.data());
    if (body < 2 || body > kTcpStoreMaxBodyBytes) return false;
    if (c.in.size() > kTcpStoreHeaderBytes + body) return false;  // one request at a time
    if (c.in.size() < kTcpStoreHeaderBytes + body) return true;
    const std::string request = std::exchange(c.in, std::string()).substr(kTcpStoreHeaderBytes);
    return Execute(fd, &c, request) && Flush(fd, &c);
  }

  bool Execute(int fd, Connection* c, std::string_view request) {
    const uint8_t op = static_cast<uint8_t>(request[0]);
    const size_t key_bytes = static_cast<uint8_t>(request[1]);
    if (request.size() < 2 + key_bytes) return false;
    const std::string key(request.substr(2, key_bytes));
    const std::string_view value = request.substr(2 + key_bytes);
    if (!IsStoreKey(key) || value.size() > kStoreMaxValueBytes) return false;
    if (op == kTcpStoreOpSet) {
      c->out = Set(key, value);
      return true;
    }
    if (op != kTcpStoreOpGet || !value.empty()) return false;
    if (const auto it = values_.find(key); it != values_.end()) {
      c->out = Reply(Code::kOk, it->second);
    } else {
      c->waiting_for = key;
      waiting_.emplace(key, fd);
    }
    return true;
  }

  std::string Set(const std::string& key, std::string_view value) {
    const auto old = values_.find(key);
    const size_t freed = old == values_.end() ? 0 : key.size() + old->second.size();
    if (total_bytes_ - freed + key.size() + value.size() > kTcpStoreMaxTotalBytes) {
      return Reply(Code::kResourceExhausted, "the store holds " + std::to_string(total_bytes_) + " bytes and may hold " +
                                                 std::to_string(kTcpStoreMaxTotalBytes));
    }
    total_bytes_ += key.size() + value.size() - freed;
    values_[key] = std::string(value);
    auto [begin, end] = waiting_.equal_range(key);
    for (auto it = begin; it != end; ++it) {
      Connection& waiter = connections_[it->second];
      waiter.waiting_for.clear();
      waiter.out = Reply(Code::kOk, value);  // sent when the loop finds it writable
    }
    waiting_.erase(begin, end);
    return Reply(Code::kOk, "");
  }

  static bool Flush(int fd, Connection* c) {
    while (!c->out.empty()) {
      const ssize_t n = ::send(fd, c->out.data(), c->out.size(), MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      c->out.erase(0, static_cast<size_t>(n));
    }
    return true;
  }

  const int listener_;
  const int wake_;
  const uint16_t port_;
  const std::string local_host_;
  // The thread's alone, until it is joined.
  bool accepting_ = true;
  size_t total_bytes_ = 0;
  std::unordered_map<int, Connection> connections_;
  std::unordered_map<std::string, std::string> values_;
  std::multimap<std::string, int> waiting_;
  std::thread thread_;
};

bool IsNumeric(const std::string& host) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

// A listening socket, or -1 and errno.
int ListenOn(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

uint16_t PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

Status TcpStoreServer::Listen(const std::string& host, uint16_t port, std::unique_ptr<TcpStoreServer>* server) {
  const bool exact = host == "localhost" || IsNumeric(host);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string where = (exact ? host : std::string("*")) + ":" + std::to_string(port);
  const int error = ::getaddrinfo(exact ? host.c_str() : nullptr, std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return Unavailable("cannot serve the store on " + where + ": " + ::gai_strerror(error));

  int listener = -1;
  int bind_error = EADDRNOTAVAIL;
  std::string local_host = host;
  for (const int family : {AF_INET6, AF_INET}) {  // the IPv6 wildcard takes IPv4 as well
    for (const addrinfo* a = found; a != nullptr && listener < 0; a = a->ai_next) {
      if (a->ai_family != family || (host == "localhost" && family == AF_INET6)) continue;
      listener = ListenOn(*a);
      if (listener < 0) bind_error = errno;
      if (!exact) local_host = family == AF_INET6 ? "::1" : "127.0.0.1";
    }
  }
  ::freeaddrinfo(found);
  if (listener < 0) {
    return Unavailable("cannot serve the store on " + where + ": " + std::generic_category().message(bind_error) +
                       "; choose a free port of this machine");
  }
  const int wake = ::eventfd(0, EFD_CLOEXEC);
  if (wake < 0) {
    const int eventfd_error = errno;
    ::close(listener);
    return Unavailable("cannot serve the store: eventfd: " + std::generic_category().message(eventfd_error));
  }
  *server = std::make_unique<Server>(listener, wake, PortOf(listener), local_host);
  return OkStatus();
}

}  // namespace gradgate
