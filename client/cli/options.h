// gradgatectl's command line. Reads the user database for --user, nothing else; any thread.

#ifndef GRADGATE_CLIENT_CLI_OPTIONS_H_
#define GRADGATE_CLIENT_CLI_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "client/cli/certs_command.h"
#include "client/cli/plan_options.h"
#include "client/client_options.h"
#include "gradgate/v1/policy.pb.h"

namespace gradgate::cli {

enum class Command {
  kJobs,
  kStatus,
  kWindows,
  kWatch,
  kTop,
  kReport,
  kPlan,
  kDoctor,
  kCerts,
  kNodes,
  kPolicyGet,
  kPolicySet,
  kPolicyWatch
};

struct TopOptions {
  absl::Duration interval = absl::Seconds(2);
  int64_t snapshots = 0;  // as plain text; 0: without end
};

struct ReportOptions {
  std::string output;          // a path, or "-"
  int64_t window_count = 240;  // the latest so many
};

struct Options {
  Command command = Command::kJobs;
  client::ClientOptions client;
  bool json = false;
  bool local = false;  // of the daemon's own node alone
  std::string job;     // all but kJobs, kNodes and kCerts, with "UID/" of --user; kPlan: empty for numbers alone; kTop: for all
  int64_t last = 0;    // kWindows: the latest so many; 0: all
  std::optional<int64_t> first_index;  // kWatch
  v1::SetPolicyRequest policy;         // kPolicySet, but for the job
  absl::Duration wait;                 // kPolicySet: until it is adopted or rejected; 0: not at all
  bool evidence = false;               // kDoctor: show what the verdicts were made of
  PlanOptions plan;                    // kPlan
  TopOptions top;                      // kTop
  ReportOptions report;                // kReport
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
