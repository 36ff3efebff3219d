// The gRPC server of the daemon: SyncStatsService, PolicyService, health and, if wanted, reflection, on a Unix socket and on
// TCP when asked.
//
// What may be done to it is bounded: connections and their share for one peer (front_door.h), streams in each, the size of a
// request, the time of a TLS handshake, what is held of answers that nobody reads (answer_budget.h), and gRPC's buffers.
//
// Thread class: Start() and ShutDown() from one thread; WakeWatchers() and counts() from any thread between them.

#ifndef GRADGATE_DAEMON_RPC_SERVER_H_
#define GRADGATE_DAEMON_RPC_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/node/registry.h"
#include "daemon/policy/audit_log.h"
#include "daemon/policy/policy_desk.h"
#include "daemon/rpc/listen_address.h"
#include "daemon/store/store.h"

namespace gradgate {

struct RpcOptions {
  std::string socket_path = "";  // mode 0660
  std::string tcp_listen = "";   // host:port, port 0 for any; empty: none
  TlsFiles tls = {};
  bool reflection = true;
  size_t max_watchers = 64;
  size_t max_connections = 256;  // by the socket, and as many by TCP
  size_t max_answer_bytes = size_t{64} << 20;
  absl::Duration handshake_timeout = absl::Seconds(10);
  AuditLog* audit = nullptr;                                  // not owned, outlives the server
  std::function<void(absl::string_view line)> log = nullptr;  // any thread
  const Store* store = nullptr;  // where the other daemons are found; not owned, outlives the server; null: there are none
  std::string node_name = "";    // as this one announces itself
  std::string advertise = "";    // likewise, host:port
  std::string version = "";
};

// Since the start, but for those that are open.
struct RpcCounts {
  uint64_t socket_connections = 0;  // open
  uint64_t tcp_connections = 0;     // open
  uint64_t refused_socket_connections = 0;
  uint64_t refused_tcp_connections = 0;
  uint64_t refused_answers = 0;
};

class RpcServer {
 public:
  // Replaces a stale socket file and serves. `registry` and `desk` are not owned and outlive this; without a desk there is no
  // PolicyService. Errors: as RemoveStaleSocket and MakeTcpCredentials; UNAVAILABLE: an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcOptions& options, Registry* registry,
                                                          PolicyDesk* desk = nullptr);
  virtual ~RpcServer() = default;

  // The TCP port in use; 0: none.
  virtual int tcp_port() const = 0;

  virtual RpcCounts counts() = 0;

  // The registry may have something new. Does not block.
  virtual void WakeWatchers() = 0;

  // Ends streams, lets running calls end until `grace` is over, then cancels them; removes the socket file. Twice is fine.
  virtual void ShutDown(absl::Duration grace) = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_SERVER_H_
