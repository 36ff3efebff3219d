// shim/link
// The trainer's end of the connection to the node's daemon (proto/link/frames.h). Training never depends on it: no call blocks,
// none returns an error, trouble is told once.
//
//   no daemon ──try, once a second──► connected, Hello sent ──Welcome──► welcomed
//       ▲                                   │ Reject, end of file, garbage │
//       └───────────────────────────────────┴──────────────────────────────┘   (after Reject: a minute,
//                                                                                   5 s if the daemon was full)
//
// A connection that ends is tried again at the next Poll, but never sooner than a second after the last try. The peer's uid
// must be ours, root's, GRADGATE_DAEMON_UID, or at /run/gradgate that directory's owner. Thread class: loop's thread, except
// welcomed() (any). Fork: the socket is closed in a child (fork_guard.h), so that a forked worker cannot hide its parent's
// death; there the link does nothing ever after.

#ifndef GRADGATE_SHIM_LINK_LINK_H_
#define GRADGATE_SHIM_LINK_LINK_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/link/frames.h"
#include "proto/shm/stats_page.h"
#include "shim/link/fork_guard.h"

namespace gradgate {

class Link {
 public:
  // Told once per reason; see gg_log_function. Reasons: link_path_too_long, link_daemon_uid_setting, link_page, link_socket,
  // link_connect, link_peer_uid, link_hello, link_garbage, link_rejected (once per RejectReason). May be null. Must not call
  // the link.
  using Log = void (*)(void* user, const char* reason, const char* message);

  // `page_fd` and `page` are borrowed and outlive the link; page_fd < 0 (not exported): the link never tries. `directories`:
  // searched in order at each try for shim.sock. Reads GRADGATE_DAEMON_UID.
  Link(std::vector<std::string> directories, int page_fd, page::StatsPage* page, Log log, void* log_user);
  ~Link();  // closes without a goodbye
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // GRADGATE_DIR if set, else /run/gradgate and $XDG_RUNTIME_DIR/gradgate.
  static std::vector<std::string> DefaultDirectories();

  // True if a call to Poll would try to connect at now_ns: cheap enough for every micro-step.
  bool Due(int64_t now_ns) const { return fd_ < 0 && now_ns >= next_try_ns_; }

  // Tries to connect if due; otherwise reads what has come, at most 16 packets, without blocking. Once per window, and when
  // Due.
  void Poll(int64_t now_ns);

  // A policy has come since the last TakePolicy, which gives the latest.
  bool policy_waits() const { return policy_.version != 0; }
  link::PolicyFrame TakePolicy();

  // Says goodbye and closes; the link does nothing ever after. Twice is fine.
  void Goodbye(bool failed);

  bool welcomed() const { return welcomed_.load(std::memory_order_relaxed) && !guard_.forked(); }

 private:
  enum class Reason : uint32_t;

  void TryConnect(int64_t now_ns);
  bool Connect(const std::string& directory);
  bool PeerAllowed(const std::string& directory);
  bool SendHello();
  void ReadFrames(int64_t now_ns);
  bool Handle(const void* bytes, size_t byte_count, int64_t now_ns);
  void OnReject(const link::RejectFrame& reject, int64_t now_ns);
  void Drop(int64_t next_try_ns);
  void Close();
  void Tell(Reason reason, const std::string& message);

  const std::vector<std::string> directories_;
  const int page_fd_;
  page::StatsPage* const page_;
  const Log log_;
  void* const log_user_;
  uint64_t page_bytes_ = 0;
  int64_t allowed_uid_ = -1;  // GRADGATE_DAEMON_UID; −1: not set
  int fd_ = -1;
  int64_t next_try_ns_ = 0;
  int64_t last_try_ns_ = 0;
  uint32_t hellos_ = 0;
  uint32_t told_ = 0;  // bits by Reason
  link::PolicyFrame policy_ = {};
  std::atomic<bool> welcomed_{false};
  ForkGuard guard_{&fd_, nullptr, 0};
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_LINK_LINK_H_
