// Listening TCP sockets for an address.
//
// Thread class: one thread; resolving a name may take seconds.

#ifndef GRADGATE_DAEMON_RPC_TCP_LISTENER_H_
#define GRADGATE_DAEMON_RPC_TCP_LISTENER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "daemon/node/unique_fd.h"
#include "daemon/rpc/listen_address.h"

namespace gradgate {

struct TcpListeners {
  std::vector<UniqueFd> sockets;  // non-blocking; one for each address of the host
  int port = 0;                   // the same for all
};

// 0.0.0.0 and :: mean all addresses of this machine, of both kinds where it has both. UNAVAILABLE: the address is in use, not
// this machine's, or unknown; says which.
absl::StatusOr<TcpListeners> ListenTcp(const HostPort& address);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_TCP_LISTENER_H_
