// The trainer's end of the connection to the node's daemon (proto/link/frames.h). Training never depends on it: no call blocks, none
// returns an error, trouble is counted and told once.
//
//   no daemon ──try, once a second──► connected, Hello sent ──Welcome──► welcomed
//       ▲                                   │ Reject, end of file, garbage │
//       └───────────────────────────────────┴──────────────────────────────┘   (after Reject: every 60 s)
//
// The peer's uid must be ours, root's, or GRADGATE_DAEMON_UID. Thread class: loop's thread, except welcomed() (any).
// Fork: the socket is closed in a child (fork_guard.h), so that a forked worker cannot hide its parent's death.

#ifndef GRADGATE_SHIM_LINK_LINK_H_
#define GRADGATE_SHIM_LINK_LINK_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/shm/stats_page.h"

namespace gradgate {

class Link {
 public:
  // Told once per reason; see gg_log_function.
  using Log = void (*)(void* user, const char* reason, const char* message);

  // `page_fd` and `page` are borrowed and outlive the link. `directories`: searched in order at each try for shim.sock.
  Link(std::vector<std::string> directories, int page_fd, page::StatsPage* page, Log log, void* log_user);
  ~Link();  // closes without a goodbye
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // GRADGATE_DIR if set, else /run/gradgate and $XDG_RUNTIME_DIR/gradgate.
  static std::vector<std::string> DefaultDirectories();

  // True if a call to Poll would do anything at now_ns: cheap enough for every micro-step.
  bool Due(int64_t now_ns) const { return fd_ < 0 && now_ns >= next_try_ns_; }

  // Tries to connect if due; otherwise reads what has come, without blocking. Once per window, and when Due.
  void Poll(int64_t now_ns);

  // Says goodbye and closes. Twice is fine.
  void Goodbye(bool failed);

  bool welcomed() const { return welcomed_.load(std::memory_order_relaxed); }

 private:
  void TryConnect(int64_t now_ns);
  bool SendHello();
  void ReadFrames(int64_t now_ns);
  void Drop(int64_t next_try_ns);

  const std::vector<std::string> directories_;
  const int page_fd_;
  page::StatsPage* const page_;
  const Log log_;
  void* const log_user_;
  int fd_ = -1;
  int64_t next_try_ns_ = 0;
  uint32_t hellos_ = 0;
  bool ended_ = false;
  std::atomic<bool> welcomed_{false};
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_LINK_LINK_H_
