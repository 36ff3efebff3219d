// A TCP relay on loopback in front of a server, which can be cut or stalled while the server goes on.
//
// Thread class: any thread. A thread of its own relays.

#ifndef GRADGATE_TESTS_DAEMON_STORE_RELAY_H_
#define GRADGATE_TESTS_DAEMON_STORE_RELAY_H_

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "daemon/node/unique_fd.h"

namespace gradgate::testing {

class Relay {
 public:
  enum class Mode {
    kForward,
    kCut,    // connections are closed, new ones too
    kStall,  // connections are taken, and nothing goes through
  };

  // `server` is "127.0.0.1:port".
  explicit Relay(const std::string& server);
  ~Relay();

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  void Set(Mode mode) { mode_ = mode; }

 private:
  struct Pair {
    UniqueFd client, server;
  };

  void Run();
  void Accept();
  // False when one side has closed.
  static bool Forward(int from, int to);

  const int server_port_;
  int port_ = 0;
  UniqueFd listener_;
  std::atomic<Mode> mode_{Mode::kForward};
  std::atomic<bool> stop_{false};
  std::vector<Pair> pairs_;  // of the thread
  std::thread thread_;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_STORE_RELAY_H_
