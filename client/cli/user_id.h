// The uid that a user's name has on this machine. Reads the user database; any thread.

#ifndef GRADGATE_CLIENT_CLI_USER_ID_H_
#define GRADGATE_CLIENT_CLI_USER_ID_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace gradgate::cli {

// Of a name, or of digits, which are a uid. INVALID_ARGUMENT: no such user here; the uid may be given.
absl::StatusOr<uint32_t> UserId(const std::string& user);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_USER_ID_H_
