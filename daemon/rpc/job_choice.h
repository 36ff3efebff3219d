// Which job a selector means, where each node was asked for itself. Pure functions.
//
// On one node the registry chooses; here the same rules are applied once more to what the nodes chose: a name means the run of
// it that started last, where all are of one user; digits mean the one run that begins with them.

#ifndef GRADGATE_DAEMON_RPC_JOB_CHOICE_H_
#define GRADGATE_DAEMON_RPC_JOB_CHOICE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

// The same job, on whatever nodes.
bool SameJob(const v1::Job& a, const v1::Job& b);

// What one node took the selector for.
struct JobClaim {
  size_t node;  // the caller's number; 0: the one that was asked first
  v1::Job job;
};

struct JobChoice {
  v1::Job job;                    // as one of the claims has it
  std::vector<size_t> ask_again;  // nodes that took it for another run, and may have ranks of this one
  std::vector<std::pair<size_t, std::string>>
      strays;  // nodes with ranks of another user's job of the same run id, and what to say
};

// Chooses among at least one claim. INVALID_ARGUMENT: the selector means several jobs; the message lists them. NOT_FOUND: none
// of the claims is of the user that the selector names.
absl::StatusOr<JobChoice> ChooseJob(absl::string_view text, const std::vector<JobClaim>& claims);

// What to say of a node that was asked for `chosen` and answered `other`; empty: nothing.
std::string StrayNote(const v1::Job& chosen, const v1::Job& other);

// No node that answered has the job.
absl::Status NoSuchJob(absl::string_view selector, const std::vector<v1::NodeAnswer>& nodes);

// Whether it can mean one run alone: all digits of a run id, of anybody or of one user.
bool IsWholeRunId(absl::string_view text);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_JOB_CHOICE_H_
