// `gradgatectl plan`: asks a daemon where a job is named, else plans by itself. One thread.

#ifndef GRADGATE_CLIENT_CLI_PLAN_COMMAND_H_
#define GRADGATE_CLIENT_CLI_PLAN_COMMAND_H_

#include "absl/status/status.h"
#include "client/cli/options.h"
#include "client/cli/output.h"

namespace gradgate::cli {

// Of a job: errors as client::PlanSync's and Connection::Create's. Of numbers alone: no daemon is needed; INVALID_ARGUMENT: a
// number, or one that is missing. Either: Output's.
absl::Status RunPlan(const Options& options, Output* output);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_PLAN_COMMAND_H_
