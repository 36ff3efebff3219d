#include "daemon/main/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "daemon/node/unique_fd.h"

namespace gradgate {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ServiceManager::ServiceManager() : path_(Environment("NOTIFY_SOCKET")) {
  const bool usable = !path_.empty() && (path_[0] == '/' || path_[0] == '@') && path_.size() < sizeof(sockaddr_un::sun_path);
  if (!usable) path_.clear();
  const std::string watched = Environment("WATCHDOG_PID");  // a watchdog for another process is not ours
  uint64_t period_us = 0;
  if (!watched.empty() && watched != std::to_string(getpid())) return;
  if (absl::SimpleAtoi(Environment("WATCHDOG_USEC"), &period_us)) ping_interval_ns_ = period_us * 1000 / 4;
}

void ServiceManager::Tell(const std::string& state) const {
  if (path_.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  if (path_[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  (void)sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size()));
}

void ServiceManager::Alive(uint64_t now_ns) {
  if (ping_interval_ns_ == 0 || now_ns < next_ping_ns_) return;
  next_ping_ns_ = now_ns + ping_interval_ns_;
  Tell("WATCHDOG=1");
}

}  // namespace gradgate
