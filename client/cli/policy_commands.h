// Carries out `gradgatectl policy get|set|watch`. One thread; blocks as client/policy_client.h says.

#ifndef GRADGATE_CLIENT_CLI_POLICY_COMMANDS_H_
#define GRADGATE_CLIENT_CLI_POLICY_COMMANDS_H_

#include "absl/status/status.h"
#include "client/cancellation.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/policy_client.h"

namespace gradgate::cli {

absl::Status GetPolicy(const client::PolicyClient& client, const Options& options, Output* output);

// Proposes, then shows what becomes of it until it is adopted, rejected (FAILED_PRECONDITION), or options.wait is over
// (DEADLINE_EXCEEDED: it may still be adopted).
absl::Status SetPolicy(const client::PolicyClient& client, const Options& options, client::Cancellation* cancel, Output* output);

// Until the job ends or `cancel`.
absl::Status WatchPolicy(const client::PolicyClient& client, const Options& options, client::Cancellation* cancel, Output* output);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_POLICY_COMMANDS_H_
