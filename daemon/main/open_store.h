// Opens the store that the flags ask for, and announces this node in it.
//
// Thread class: main thread. OpenStore blocks for the disk, AwaitAnnounced as it says.

#ifndef GRADGATE_DAEMON_MAIN_OPEN_STORE_H_
#define GRADGATE_DAEMON_MAIN_OPEN_STORE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/store/store.h"
#include "daemon/store/store_address.h"

namespace gradgate {

struct StoreOptions {
  StoreAddress address;
  std::string shown;  // as it was given
  std::string ca_file;
  std::string cert_file;
  std::string key_file;
  std::string user;
  std::string password_file;
  std::string node_name;          // checked
  std::string advertise_address;  // checked, or empty; port 0: that of the gRPC server
};

using LogLine = std::function<void(absl::string_view)>;

// A default store is a file in a state directory that goes with `run_directory`: $STATE_DIRECTORY; /var/lib/gradgate for
// /run/gradgate; $XDG_STATE_HOME/gradgate for $XDG_RUNTIME_DIR/gradgate; else `run_directory` itself. Where that cannot be used
// it is memory, and `log` is told. Errors as the stores'; a file of certificates or passwords that cannot be read.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const StoreOptions& options, const std::string& run_directory,
                                                 const LogLine& log);

// nodes/NAME, with what other daemons need. `tcp_port` is the gRPC server's, 0 if it has none.
void AnnounceNode(const StoreOptions& options, const std::string& run_directory, const std::string& version, int tcp_port,
                  bool tls, Store* store);

// Waits until that is done. A store that does not answer is waited for 3 s, then told to `log`, and the daemon goes on: it
// announces itself when the store comes. ALREADY_EXISTS: another daemon of that name is alive, which takes 15 s to be sure of.
absl::Status AwaitAnnounced(const StoreOptions& options, Store* store, const LogLine& log);

// Identifies a run directory for as long as this boot of the machine lasts; empty if the system does not tell.
std::string PlaceOf(const std::string& run_directory);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_MAIN_OPEN_STORE_H_
