// The gRPC server of the daemon: SyncStatsService, PolicyService, health and, if wanted, reflection, on a Unix socket and on
// TCP when asked.
//
// Thread class: Start() and ShutDown() from one thread; WakeWatchers() from any thread between them.

#ifndef GRADGATE_DAEMON_RPC_SERVER_H_
#define GRADGATE_DAEMON_RPC_SERVER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/node/registry.h"
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
  const Store* store = nullptr;  // where the other daemons are found; not owned, outlives the server; null: there are none
  std::string node_name = "";    // as this one announces itself
  std::string advertise = "";    // likewise, host:port
  std::string version = "";
};

class RpcServer {
 public:
  // Replaces a stale socket file and serves. `registry` and `desk` are not owned and outlive this; without a desk there is no
  // PolicyService. Changes the process's umask for an instant: call it before other threads make files. Errors: as
  // RemoveStaleSocket and MakeTcpCredentials; UNAVAILABLE: an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcOptions& options, Registry* registry,
                                                          PolicyDesk* desk = nullptr);
  virtual ~RpcServer() = default;

  // The TCP port in use; 0: none.
  virtual int tcp_port() const = 0;

  // The registry may have something new. Does not block.
  virtual void WakeWatchers() = 0;

  // Ends streams, lets running calls end until `grace` is over, then cancels them; removes the socket file. Twice is fine.
  virtual void ShutDown(absl::Duration grace) = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_SERVER_H_
