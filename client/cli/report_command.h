// gradgatectl report: asks a daemon all that it knows of a job, and writes it as one HTML file.

#ifndef GRADGATE_CLIENT_CLI_REPORT_COMMAND_H_
#define GRADGATE_CLIENT_CLI_REPORT_COMMAND_H_

#include "absl/status/status.h"
#include "client/cli/options.h"
#include "client/cli/output.h"

namespace gradgate::cli {

// To a file: written beside it first, so that there is the former one or the whole new one, and one line on `output`. To "-":
// the page itself on `output`. Errors: as SyncStatsClient's of the job's counts, without which there is no report; what else is
// not answered is said in it. INTERNAL: the file cannot be written.
absl::Status RunReport(const Options& options, Output* output);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_REPORT_COMMAND_H_
