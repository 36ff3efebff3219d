// gradgatectl doctor: asks for a diagnosis and shows it. One thread; blocks as client/diagnosis_client.h says.

#ifndef GRADGATE_CLIENT_CLI_DOCTOR_COMMAND_H_
#define GRADGATE_CLIENT_CLI_DOCTOR_COMMAND_H_

#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "client/cli/output.h"

namespace gradgate::cli {

// Whether something is wrong with the job. Errors as client::Diagnose, Connection::Create and Output.
absl::StatusOr<bool> RunDoctor(const Options& options, Output* output);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_DOCTOR_COMMAND_H_
