#include "shim/reduce/tcp_store.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "shim/reduce/clock.h"
#include "shim/reduce/store_limits.h"

namespace gradgate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFirstRetryMs = 5;
constexpr int kLastRetryMs = 200;

Clock::time_point At(int64_t ns) { return Clock::time_point(std::chrono::nanoseconds(ns)); }
int64_t DeadlineAfter(int64_t timeout_ns) {
  const int64_t now = MonotonicNs();
  return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}
std::string Seconds(int64_t ns) { return std::to_string(static_cast<double>(ns) / 1e9) + " s"; }
std::string ErrnoText(int error) { return std::generic_category().message(error); }

// Waits for `events`. false: the deadline passed.
bool PollUntil(int fd, int16_t events, int64_t deadline_ns) {
  for (;;) {
    const int64_t left_ms = std::clamp<int64_t>((deadline_ns - MonotonicNs() + 999'999) / 1'000'000, 0, 1 << 30);
    pollfd one = {fd, events, 0};
    const int n = ::poll(&one, 1, static_cast<int>(left_ms));
    if (n > 0) return true;
    if (n == 0 && MonotonicNs() >= deadline_ns) return false;
  }
}

// A connected socket, or -1 and *error.
int ConnectTo(const addrinfo& address, int64_t deadline_ns, std::string* error) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    *error = ErrnoText(errno);
    return -1;
  }
  int failure = ::connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (failure == EINPROGRESS) {
    socklen_t size = sizeof(failure);
    if (!PollUntil(fd, POLLOUT, deadline_ns)) {
      failure = ETIMEDOUT;
    } else if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0) {
      failure = errno;
    }
  }
  if (failure == 0) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
  }
  *error = ErrnoText(failure);
  ::close(fd);
  return -1;
}

int ConnectToAny(const std::string& host, uint16_t port, int64_t deadline_ns, std::string* error) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int resolved = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (resolved != 0) {
    *error = ::gai_strerror(resolved);
    return -1;
  }
  int fd = -1;
  for (const addrinfo* a = found; a != nullptr && fd < 0; a = a->ai_next) fd = ConnectTo(*a, deadline_ns, error);
  ::freeaddrinfo(found);
  return fd;
}

uint32_t ReadU32(const std::string& bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
  return value;
}

std::string Request(uint8_t op, const std::string& key, std::string_view value) {
  std::string request;
  const uint32_t body = static_cast<uint32_t>(2 + key.size() + value.size());
  for (int shift = 0; shift < 32; shift += 8) request.push_back(static_cast<char>(body >> shift));
  request.push_back(static_cast<char>(op));
  request.push_back(static_cast<char>(key.size()));
  return request.append(key).append(value);
}

}  // namespace

TcpStore::TcpStore(std::string host, uint16_t port, std::unique_ptr<TcpStoreServer> server)
    : host_(std::move(host)), port_(port), server_(std::move(server)) {}

TcpStore::~TcpStore() { Disconnect(); }

Status TcpStore::Open(const std::string& host, uint16_t port, bool serve, int64_t timeout_ns, std::unique_ptr<Store>* store,
                      uint16_t* bound_port) {
  if (host.empty()) return InvalidArgument("the store's host is empty: give the serving rank's name or address");
  if (port == 0 && !serve) return InvalidArgument("the store's port is 0: give the port the serving rank listens on");
  if (timeout_ns <= 0) return InvalidArgument("store timeout of " + std::to_string(timeout_ns) + " ns: must be above 0");
  std::unique_ptr<TcpStoreServer> server;
  std::string reach = host;
  if (serve) {
    if (Status status = TcpStoreServer::Listen(host, port, &server); !status.ok()) return status;
    port = server->port();
    reach = server->local_host();
  }
  std::unique_ptr<TcpStore> opened(new TcpStore(std::move(reach), port, std::move(server)));
  if (Status status = opened->Connect(DeadlineAfter(timeout_ns)); !status.ok()) {
    return Status(status.code(), status.message() + " within " + Seconds(timeout_ns) + "; is the serving rank running?");
  }
  if (bound_port != nullptr) *bound_port = port;
  *store = std::move(opened);
  return OkStatus();
}

Status TcpStore::Set(const std::string& key, std::string_view value, int64_t timeout_ns) {
  if (Status status = CheckStoreCall(key, value.size(), timeout_ns); !status.ok()) return status;
  std::string ignored;
  return Call(kTcpStoreOpSet, key, value, timeout_ns, &ignored);
}

Status TcpStore::Get(const std::string& key, int64_t timeout_ns, std::string* value) {
  if (Status status = CheckStoreCall(key, 0, timeout_ns); !status.ok()) return status;
  Status status = Call(kTcpStoreOpGet, key, "", timeout_ns, value);
  if (status.code() != Code::kDeadlineExceeded) return status;
  return NotFound("store key '" + key + "' did not appear at " + host_ + ":" + std::to_string(port_) + " within " +
                  Seconds(timeout_ns));
}

Status TcpStore::Call(uint8_t op, const std::string& key, std::string_view value, int64_t timeout_ns, std::string* reply) {
  const int64_t deadline_ns = DeadlineAfter(timeout_ns);
  {
    const MutexLock lock(mutex_);
    while (busy_) {
      if (MonotonicNs() >= deadline_ns) return DeadlineExceeded("the store's connection was busy for " + Seconds(timeout_ns));
      turn_.wait_until(mutex_, At(deadline_ns));
    }
    busy_ = true;
  }
  Status status = fd_ >= 0 ? OkStatus() : Connect(deadline_ns);
  std::string body;
  if (status.ok()) {
    status = Exchange(Request(op, key, value), deadline_ns, &body);
    if (!status.ok()) Disconnect();  // a late reply must not answer the next request
  }
  {
    const MutexLock lock(mutex_);
    busy_ = false;
    turn_.notify_one();
  }
  if (!status.ok()) return status;
  const auto code = static_cast<Code>(static_cast<uint8_t>(body[0]));
  if (code != Code::kOk) return Status(code, "the store at " + host_ + ":" + std::to_string(port_) + ": " + body.substr(1));
  *reply = body.substr(1);
  return OkStatus();
}

Status TcpStore::Connect(int64_t deadline_ns) {
  std::string error;
  for (int pause_ms = kFirstRetryMs;; pause_ms = std::min(pause_ms * 2, kLastRetryMs)) {
    fd_ = ConnectToAny(host_, port_, deadline_ns, &error);
    if (fd_ >= 0) return OkStatus();
    const int64_t left_ns = deadline_ns - MonotonicNs();
    if (left_ns <= 0) return Unavailable("no store at " + host_ + ":" + std::to_string(port_) + ": " + error);
    PollUntil(-1, 0, MonotonicNs() + std::min(left_ns, int64_t{pause_ms} * 1'000'000));
  }
}

Status TcpStore::Exchange(const std::string& request, int64_t deadline_ns, std::string* body) {
  const auto where = [this] { return "the store at " + host_ + ":" + std::to_string(port_); };
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t n = ::send(fd_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      if (!PollUntil(fd_, POLLOUT, deadline_ns)) return DeadlineExceeded(where() + " does not take the request");
    } else if (errno != EINTR) {
      return Unavailable(where() + " broke off: " + ErrnoText(errno));
    }
  }
  std::string in;
  for (size_t wanted = kTcpStoreHeaderBytes; in.size() < wanted;) {
    char bytes[16384];
    const ssize_t n = ::recv(fd_, bytes, std::min(sizeof(bytes), wanted - in.size()), 0);
    if (n > 0) {
      in.append(bytes, static_cast<size_t>(n));
      if (wanted != kTcpStoreHeaderBytes || in.size() < wanted) continue;
      const size_t body_bytes = ReadU32(in);
      if (body_bytes < 1 || body_bytes > kTcpStoreMaxBodyBytes)
        return Unavailable(where() + " does not speak the store's protocol");
      wanted += body_bytes;
    } else if (n == 0) {
      return Unavailable(where() + " closed the connection");
    } else if (errno == EAGAIN) {
      if (!PollUntil(fd_, POLLIN, deadline_ns)) return DeadlineExceeded(where() + " did not answer");
    } else if (errno != EINTR) {
      return Unavailable(where() + " broke off: " + ErrnoText(errno));
    }
  }
  *body = in.substr(kTcpStoreHeaderBytes);
  return OkStatus();
}

void TcpStore::Disconnect() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace gradgate
