// The connections that gRPC serves, of one kind: how many there may be, and who made each.
//
// gRPC closes them and tells nobody. So a connection counts until its descriptor is closed, or is another file: looked at
// when room is needed, at the latest once every kSweepEvery admissions.
//
//   admitted --(its descriptor is closed)--> gone, at the next look
//
// One peer (a uid, or an IP address) may have three quarters of them, so that nobody keeps all others out.
//
// Thread class: any thread. One lock, a leaf.

#ifndef GRADGATE_DAEMON_RPC_CONNECTION_TABLE_H_
#define GRADGATE_DAEMON_RPC_CONNECTION_TABLE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/node/mutex.h"

namespace gradgate {

class ConnectionTable {
 public:
  static constexpr size_t kSweepEvery = 64;

  struct Peer {
    std::string name;                  // what is counted: "uid 1000", "10.0.0.1"
    std::optional<uint32_t> uid = {};  // of a Unix socket
  };
  // The inode of the file that `fd` is; 0: it is closed.
  using InodeOf = std::function<ino_t(int fd)>;

  explicit ConnectionTable(size_t max_count, InodeOf inode_of = FileInode);

  // Counts an open descriptor. RESOURCE_EXHAUSTED: there are too many, or too many of this peer; says so.
  absl::Status Admit(int fd, Peer peer);

  // Of a caller by a Unix socket, whose peer() gRPC calls "fd:N". Nothing: such a connection is not open.
  std::optional<uint32_t> UidOf(const std::string& grpc_peer);

  // Open now; looks at each.
  size_t Count();
  uint64_t refused_count();

  static ino_t FileInode(int fd);

 private:
  struct Entry {
    ino_t inode;
    Peer peer;
  };

  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(std::map<int, Entry>::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t CountOf(const std::string& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_count_;
  const size_t max_per_peer_;
  const InodeOf inode_of_;
  Mutex mutex_;
  std::map<int, Entry> open_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> of_peer_ ABSL_GUARDED_BY(mutex_);
  size_t since_sweep_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_CONNECTION_TABLE_H_
