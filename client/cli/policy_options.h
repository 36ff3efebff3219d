// What `gradgatectl policy set` is told, and how policies are spelled. Pure; any thread.

#ifndef GRADGATE_CLIENT_CLI_POLICY_OPTIONS_H_
#define GRADGATE_CLIENT_CLI_POLICY_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gradgate/v1/policy.pb.h"

namespace gradgate::cli {

// "mode=window bucket=25MiB wire=bf16 reshard=window enforcement=enforce", in any order; "given" puts a field back to what the
// trainers were given. The policy and the mask of a request. INVALID_ARGUMENT: names the word and what would do.
absl::StatusOr<v1::SetPolicyRequest> ParsePolicy(const std::vector<std::string>& words);

// What such words begin with or are: "mode=auto", "bucket=".
std::vector<std::string> PolicyChanges();

// The same way round, of one field's value: "window", "25 MiB", "as given".
std::string ModeText(const v1::Policy& policy);
std::string BucketText(const v1::Policy& policy);
std::string WireText(const v1::Policy& policy);
std::string ReshardText(const v1::Policy& policy);
std::string EnforcementText(const v1::Policy& policy);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_POLICY_OPTIONS_H_
