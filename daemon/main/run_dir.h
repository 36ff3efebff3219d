// Where the daemon's sockets live.

#ifndef GRADGATE_DAEMON_MAIN_RUN_DIR_H_
#define GRADGATE_DAEMON_MAIN_RUN_DIR_H_

#include <string>

#include "absl/status/statusor.h"

namespace gradgate {

// The directory, made if need be: `flag` if set, else $GRADGATE_DIR, else /run/gradgate if it can be written, else
// $XDG_RUNTIME_DIR/gradgate. Errors: as EnsureDirectory for a directory that was asked for; FAILED_PRECONDITION: none can be
// used.
absl::StatusOr<std::string> ChooseRunDirectory(const std::string& flag);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_MAIN_RUN_DIR_H_
