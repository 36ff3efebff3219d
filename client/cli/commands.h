// Carries out one gradgatectl command: asks, then writes a table or JSON. One thread; blocks as the clients
// say.

#ifndef GRADGATE_CLIENT_CLI_COMMANDS_H_
#define GRADGATE_CLIENT_CLI_COMMANDS_H_

#include <memory>

#include "absl/status/status.h"
#include "client/cancellation.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/connection.h"

namespace gradgate::cli {

// OK also when the reader of `output` went away, or when `cancel` ended a watch. Errors as SyncStatsClient's, and Output's.
absl::Status RunCommand(const std::shared_ptr<const client::Connection>& connection, const Options& options,
                        client::Cancellation* cancel, Output* output);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_COMMANDS_H_
