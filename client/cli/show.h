// Writes an answer as a person or a program wants it. One thread; blocks as Output does.

#ifndef GRADGATE_CLIENT_CLI_SHOW_H_
#define GRADGATE_CLIENT_CLI_SHOW_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/cli/json.h"
#include "client/cli/output.h"

namespace gradgate::cli {

// As JSON if `json`, else what `view` makes of it, its lines broken to the width of the terminal. False: nobody reads on.
// Errors as ToJson's and Output's.
absl::StatusOr<bool> Show(const google::protobuf::Message& answer, bool json, JsonStyle style,
                          absl::FunctionRef<std::string()> view, Output* output);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_SHOW_H_
