// The parts of gradgated, wired: registry, shim listener and its thread, store, gRPC server, metrics server.
//
// Thread class: one thread. ShutDown() twice is fine; the destructor calls it.

#ifndef GRADGATE_DAEMON_MAIN_DAEMON_H_
#define GRADGATE_DAEMON_MAIN_DAEMON_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/main/open_store.h"
#include "daemon/node/registry.h"
#include "daemon/node/shim_listener.h"
#include "daemon/rpc/server.h"

namespace gradgate {

struct DaemonOptions {
  std::string version;
  std::string directory;       // exists; holds both sockets
  std::string metrics_listen;  // host:port; empty: none
  std::string audit_log;       // file; empty: none
  RegistryOptions registry;
  ListenerOptions listener;  // socket_path and version are filled in
  RpcOptions rpc;            // socket_path is filled in
  StoreOptions store;
};

class Daemon {
 public:
  // Binds everything, then serves, and joins the other daemons of its store. Errors are those of the parts; what was bound is
  // released. Takes seconds where the store does not answer, or another daemon has this node's name.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonOptions& options);
  virtual ~Daemon() = default;

  // "gradgated 0.1.0 ready: shim …, api …, metrics …".
  virtual std::string ReadyLine() const = 0;

  // Ends streams, closes connections, removes sockets; within a few seconds.
  virtual void ShutDown() = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_MAIN_DAEMON_H_
