// gradgatectl's command line. Pure; any thread.

#ifndef GRADGATE_CLIENT_CLI_OPTIONS_H_
#define GRADGATE_CLIENT_CLI_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "client/cli/certs_command.h"
#include "client/client_options.h"

namespace gradgate::cli {

enum class Command { kJobs, kStatus, kWindows, kWatch, kCerts };

struct Options {
  Command command = Command::kJobs;
  client::ClientOptions client;
  bool json = false;
  std::string job;                     // all but kJobs
  int64_t last = 0;                    // kWindows: the latest so many; 0: all
  std::optional<int64_t> first_index;  // kWatch
  CertsOptions certs;                  // kCerts
};

// The command line asks for nothing to be done (--help, --version), or is wrong.
struct Leave {
  int exit_code = 0;
  std::string text;  // for standard output if exit_code is 0, else one line for standard error
};

std::variant<Options, Leave> ParseOptions(int argc, const char* const* argv);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_OPTIONS_H_
