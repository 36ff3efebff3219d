// Where a gradgated listens: as a person writes it, and as gRPC wants it.
//
//   written                    kind   address
//   -------                    ----   -------
//   unix:/run/gradgate/a.sock  kUnix  /run/gradgate/a.sock
//   /run/gradgate/a.sock       kUnix  the same
//   127.0.0.1:9766             kTcp   127.0.0.1:9766
//   [::1]:9766                 kTcp   [::1]:9766
//
// Pure functions but for DefaultTarget; any thread.

#ifndef GRADGATE_CLIENT_TARGET_H_
#define GRADGATE_CLIENT_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gradgate::client {

struct Target {
  enum class Kind { kUnix, kTcp };

  Kind kind = Kind::kUnix;
  std::string address;    // path of the socket, or host:port
  bool loopback = false;  // kTcp: the host is this machine, by name or number

  std::string GrpcName() const;
};

// INVALID_ARGUMENT, with the value and what would do: another scheme, no port or one outside 1–65535, a socket path that
// is empty or longer than the kernel takes (107 bytes).
absl::StatusOr<Target> ParseTarget(absl::string_view text);

// What the choice of gradgated's directory depends on; empty: not set.
struct DirectoryInputs {
  std::string gradgate_dir;     // GRADGATE_DIR
  std::string system_dir;       // taken if it exists
  std::string xdg_runtime_dir;  // XDG_RUNTIME_DIR; "/gradgate" is added
};

// The first of the three that is there. UNAVAILABLE if none is.
absl::StatusOr<std::string> SocketDirectory(const DirectoryInputs& inputs);

// The api.sock that a gradgated started by the same user, with the same environment, opens. Reads the environment.
absl::StatusOr<Target> DefaultTarget();

// The api.sock in `directory`. Errors as ParseTarget.
absl::StatusOr<Target> TargetInDirectory(absl::string_view directory);

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_TARGET_H_
