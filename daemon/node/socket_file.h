// Unix sockets as files: a stale one is replaced, one that a live process listens on is not.

#ifndef GRADGATE_DAEMON_NODE_SOCKET_FILE_H_
#define GRADGATE_DAEMON_NODE_SOCKET_FILE_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/node/unique_fd.h"

namespace gradgate {

// Makes `path` a directory (mode 0755) unless it is one. Errors name the path and what to do.
absl::Status EnsureDirectory(const std::string& path);

// Removes the socket file that a dead process left at `path`. `type` is SOCK_STREAM or SOCK_SEQPACKET. Does not block.
// ALREADY_EXISTS: a live process listens there. FAILED_PRECONDITION: it is no socket, or of another type. PERMISSION_DENIED.
// INVALID_ARGUMENT: the path is too long for a socket address.
absl::Status RemoveStaleSocket(const std::string& path, int type);

// A listening socket and its file, which is unlinked at the end if it is still this socket's.
class ListeningSocket {
 public:
  // Removes a stale file, binds, sets `mode`, then listens. `type` as above. Errors as RemoveStaleSocket, and what bind says.
  static absl::StatusOr<ListeningSocket> Listen(const std::string& path, mode_t mode, int backlog, int type = SOCK_SEQPACKET);

  ListeningSocket(ListeningSocket&&) = default;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  int fd() const { return fd_.get(); }

 private:
  ListeningSocket(UniqueFd fd, std::string path, ino_t inode) : fd_(std::move(fd)), path_(std::move(path)), inode_(inode) {}

  UniqueFd fd_;
  std::string path_;
  ino_t inode_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_SOCKET_FILE_H_
