#include "tests/daemon/store/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>

namespace gradgate::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

Relay::Relay(const std::string& server) : server_port_(std::atoi(server.c_str() + server.rfind(':') + 1)) {
  listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_.get(), 64) != 0) std::abort();
  if (getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) std::abort();
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

Relay::~Relay() {
  stop_ = true;
  thread_.join();
}

void Relay::Accept() {
  Pair pair{UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)), UniqueFd()};
  if (mode_ == Mode::kCut) return;
  pair.server = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(server_port_);
  if (connect(pair.server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    pairs_.push_back(std::move(pair));
}

bool Relay::Forward(int from, int to) {
  char bytes[65536];
  const ssize_t got = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (got <= 0) return false;
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t now = send(to, bytes + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += now;
  }
  return true;
}

void Relay::Run() {
  while (!stop_) {
    if (mode_ == Mode::kCut) pairs_.clear();
    std::vector<pollfd> files = {{listener_.get(), POLLIN, 0}};
    const bool forwards = mode_ == Mode::kForward;
    for (const Pair& pair : pairs_) {
      files.push_back({pair.client.get(), static_cast<int16_t>(forwards ? POLLIN : 0), 0});
      files.push_back({pair.server.get(), static_cast<int16_t>(forwards ? POLLIN : 0), 0});
    }
    const size_t count = pairs_.size();
    poll(files.data(), files.size(), 5);
    if (files[0].revents != 0) Accept();
    for (size_t i = count; forwards && i-- > 0;) {
      const auto& client = files[1 + 2 * i];
      const auto& server = files[2 + 2 * i];
      const bool lives =
          (client.revents == 0 || Forward(client.fd, server.fd)) && (server.revents == 0 || Forward(server.fd, client.fd));
      if (!lives) pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

}  // namespace gradgate::testing
