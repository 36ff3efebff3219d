#include "daemon/rpc/tcp_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gradgate {
namespace {

constexpr int kBacklog = 1024;
constexpr size_t kMaxSockets = 8;

absl::Status Error(const HostPort& address, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("cannot serve gRPC on ", address.host, ":", address.port, ": ", what));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<Addresses> Resolve(const HostPort& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return Error(address, gai_strerror(error));
  return Addresses(found, &freeaddrinfo);
}

// 0: listens. Else the errno.
int Listen(const sockaddr* address, socklen_t bytes, bool both_kinds, UniqueFd* socket) {
  const int on = 1, v6_only = both_kinds ? 0 : 1;
  socket->reset(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!*socket) return errno;
  (void)setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6 && setsockopt(socket->get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only)) != 0) {
    return errno;
  }
  return bind(socket->get(), address, bytes) == 0 && listen(socket->get(), kBacklog) == 0 ? 0 : errno;
}

int PortOf(int socket) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof(bound);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// On all addresses of both kinds by one socket; empty where this machine has no IPv6.
absl::StatusOr<TcpListeners> ListenEverywhere(const HostPort& address) {
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  any.sin6_port = htons(static_cast<uint16_t>(address.port));
  UniqueFd socket;
  const int error = Listen(reinterpret_cast<sockaddr*>(&any), sizeof(any), true, &socket);
  TcpListeners listeners;
  if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) return listeners;
  if (error != 0) return Error(address, std::strerror(error));
  listeners.port = PortOf(socket.get());
  listeners.sockets.push_back(std::move(socket));
  return listeners;
}

}  // namespace

absl::StatusOr<TcpListeners> ListenTcp(const HostPort& address) {
  if (address.host == "0.0.0.0" || address.host == "::") {
    absl::StatusOr<TcpListeners> everywhere = ListenEverywhere(address);
    if (!everywhere.ok() || !everywhere->sockets.empty()) return everywhere;
  }
  absl::StatusOr<Addresses> found = Resolve(address);
  if (!found.ok()) return found.status();
  TcpListeners listeners;
  int error = 0;
  for (addrinfo* at = found->get(); at != nullptr && listeners.sockets.size() < kMaxSockets; at = at->ai_next) {
    if (listeners.port != 0 && at->ai_family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(at->ai_addr)->sin_port = htons(static_cast<uint16_t>(listeners.port));
    } else if (listeners.port != 0 && at->ai_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(at->ai_addr)->sin6_port = htons(static_cast<uint16_t>(listeners.port));
    }
    UniqueFd socket;
    error = Listen(at->ai_addr, at->ai_addrlen, false, &socket);
    if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) continue;  // "localhost" has an address that this machine lacks
    if (error != 0) break;
    listeners.port = PortOf(socket.get());
    listeners.sockets.push_back(std::move(socket));
  }
  const bool skipped_alone = error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
  if (error != 0 && (!skipped_alone || listeners.sockets.empty())) return Error(address, std::strerror(error));
  return listeners;
}

}  // namespace gradgate
