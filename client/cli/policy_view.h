// What `gradgatectl policy` shows. Pure functions of an answer and the present time; any thread.

#ifndef GRADGATE_CLIENT_CLI_POLICY_VIEW_H_
#define GRADGATE_CLIENT_CLI_POLICY_VIEW_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "gradgate/v1/policy.pb.h"

namespace gradgate::cli {

// What is in force and since which window, then what is proposed, how far it is and why, then an earlier rejection; both
// policies side by side; where each rank is with them. `width`: of a table's line; 0: any.
std::string PolicyView(const v1::PolicyStatus& status, absl::Time now, size_t width = 0);

// One line: "version 7: staged; every rank has it, the next ballot of the job decides".
std::string PolicyLine(const v1::PolicyStatus& status);

// "in force: version 6 since window 12 on ranks 0-1; what the trainers were given, on rank 2".
std::string PolicyInForce(const v1::PolicyStatus& status);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_POLICY_VIEW_H_
