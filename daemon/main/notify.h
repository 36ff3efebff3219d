// Tells systemd about the service (sd_notify's protocol: datagrams to $NOTIFY_SOCKET), and feeds its watchdog.
//
// Without $NOTIFY_SOCKET nothing is sent. Everything is best effort and never blocks. Thread class: Tell any thread; Alive one.

#ifndef GRADGATE_DAEMON_MAIN_NOTIFY_H_
#define GRADGATE_DAEMON_MAIN_NOTIFY_H_

#include <cstdint>
#include <string>

namespace gradgate {

class ServiceManager {
 public:
  // Reads $NOTIFY_SOCKET, and of the watchdog $WATCHDOG_USEC and $WATCHDOG_PID.
  ServiceManager();

  // Sends `state`: "READY=1" say, or several such lines.
  void Tell(const std::string& state) const;

  // For the loop that the watchdog watches, at each turn: sends WATCHDOG=1 four times in each period that the service manager
  // allows, none if it has no watchdog. `now_ns`: CLOCK_MONOTONIC.
  void Alive(uint64_t now_ns);

 private:
  std::string path_;
  uint64_t ping_interval_ns_ = 0;  // 0: no watchdog
  uint64_t next_ping_ns_ = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_MAIN_NOTIFY_H_
