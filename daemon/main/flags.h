// The command line of gradgated. Each flag is declared and explained in flags.cc, and listed in daemon/README.md (a test
// compares).
//
// Thread class: main thread, before others start.

#ifndef GRADGATE_DAEMON_MAIN_FLAGS_H_
#define GRADGATE_DAEMON_MAIN_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/main/daemon.h"

namespace gradgate {

// Parses the command line. --help and --version print and exit 0; an unknown flag or a value that does not parse exits 1 with a
// line. INVALID_ARGUMENT: an argument that is no flag, or a value out of range.
absl::StatusOr<DaemonOptions> ParseFlags(int argc, char** argv);

// What --help prints.
std::string HelpText();

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_MAIN_FLAGS_H_
