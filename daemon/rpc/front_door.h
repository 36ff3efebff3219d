// Accepts the connections that gRPC is to serve: by api.sock and, when asked, by TCP.
//
// gRPC's own acceptors neither bound how many there are, nor tell whose process is at the other end of a Unix socket, and stop
// for good when there is no descriptor left. This one refuses what is beyond a bound, knows the uid, and goes on.
//
//   made --Open--> accepting --Close--> closed        a connection is gRPC's once it was handed over
//
// A descriptor number is given out again as late as possible: it is the name under which gRPC tells of a connection, and a
// call of one that has just ended is not to be taken for another's.
//
// Thread class: one thread, and one of its own, which waits for connections. `give` functions are called on that, with no lock
// held, and own the descriptor from then on.

#ifndef GRADGATE_DAEMON_RPC_FRONT_DOOR_H_
#define GRADGATE_DAEMON_RPC_FRONT_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/node/socket_file.h"
#include "daemon/node/unique_fd.h"
#include "daemon/rpc/connection_table.h"
#include "daemon/rpc/tcp_listener.h"

namespace gradgate {

class FrontDoor {
 public:
  using Give = std::function<void(int fd)>;
  using LogLine = std::function<void(absl::string_view)>;

  // `max_connections` by api.sock, and as many by TCP. `log` may be null; it hears of refusals, once a minute at most.
  explicit FrontDoor(size_t max_connections, LogLine log = nullptr);
  ~FrontDoor() { Close(); }

  // Binds, and replaces a stale socket file (mode 0660). Nobody is accepted yet. Errors as ListeningSocket::Listen and
  // ListenTcp.
  absl::Status BindSocket(const std::string& path);
  absl::Status BindTcp(const HostPort& address);
  int tcp_port() const { return tcp_.port; }  // 0: none

  // UNAVAILABLE: there is no descriptor left.
  absl::Status Open(Give give_socket, Give give_tcp);
  // Stops accepting and removes the socket file, if it is still this one's. Twice is fine.
  void Close();

  ConnectionTable* sockets() { return &socket_table_; }
  ConnectionTable* tcp() { return &tcp_table_; }

 private:
  struct Listener {
    int fd;
    ConnectionTable* table;
    bool is_tcp;
  };

  void Run();
  // False: there is nobody to accept, or nothing to accept with.
  bool AcceptOne(const Listener& listener);
  UniqueFd Renumbered(UniqueFd connection);
  void TellRefused(const absl::Status& why);

  const LogLine log_;
  ConnectionTable socket_table_;
  ConnectionTable tcp_table_;
  std::optional<ListeningSocket> socket_;
  TcpListeners tcp_;
  Give give_socket_;
  Give give_tcp_;
  UniqueFd wake_;        // an eventfd
  int next_number_ = 0;  // descriptors are given out from here on
  int64_t told_at_ns_ = 0;
  std::thread thread_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_FRONT_DOOR_H_
