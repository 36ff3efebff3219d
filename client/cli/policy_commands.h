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

// Proposes, then shows what becomes of it until it is adopted; also where nobody reads that. Errors: FAILED_PRECONDITION:
// rejected, or the job ended. ABORTED: another took its place. DEADLINE_EXCEEDED, CANCELLED: options.wait is over, or `cancel`;
// it may still be adopted. Others as the client's.
absl::Status SetPolicy(const client::PolicyClient& client, const Options& options, client::Cancellation* cancel,
                       Output* output);

// Until the job ends, nobody reads on, or `cancel`.
absl::Status WatchPolicy(const client::PolicyClient& client, const Options& options, client::Cancellation* cancel,
                         Output* output);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_POLICY_COMMANDS_H_
