// gradgatectl top: jobs and ranks as they go, on a terminal until a key or a signal ends it, else as plain text.
//
// On a terminal: a daemon that dies or freezes is said and asked on; Ctrl-C, SIGTERM, SIGHUP and SIGQUIT put the terminal back;
// Ctrl-Z puts it back until the process goes on. Called on the main thread before any other thread is there: it blocks those
// signals for all threads made later.

#ifndef GRADGATE_CLIENT_CLI_TOP_COMMAND_H_
#define GRADGATE_CLIENT_CLI_TOP_COMMAND_H_

#include "absl/status/status.h"
#include "client/cli/options.h"
#include "client/cli/output.h"

namespace gradgate::cli {

// OK: ended by a key, a signal, or after as many snapshots as were asked for. Errors as SyncStatsClient's: of the first answer,
// of the last of a number of snapshots.
absl::Status RunTop(const Options& options, Output* output);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_COMMAND_H_
