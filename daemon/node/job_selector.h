// How callers name a job: by its name, its run id or the first digits of that, and by whose it is where that is not clear:
// "digits", "1000/digits", "1000/3f2a91". Pure functions; any thread.
//
// The user is part of the text, not a field of its own, so that a daemon which does not know users refuses it rather than
// taking another user's job. What begins as "UID/" is always of that user, whatever jobs are called.

#ifndef GRADGATE_DAEMON_NODE_JOB_SELECTOR_H_
#define GRADGATE_DAEMON_NODE_JOB_SELECTOR_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gradgate {

struct JobSelector {
  std::optional<uint32_t> user_id;  // not set: anybody's
  std::string job;                  // name, run id or first digits of one

  bool IsOf(int64_t uid) const { return !user_id || uid == *user_id; }
};

JobSelector ParseJobSelector(absl::string_view text);

// "1000/digits".
std::string FormatJobSelector(int64_t user_id, absl::string_view job);

// INVALID_ARGUMENT that lists what to give instead. `runs`: uid and run id. `claim`: "are called", "claim the run".
absl::Status SeveralUsers(absl::string_view claim, absl::string_view job,
                          const std::set<std::pair<int64_t, std::string>>& runs);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_JOB_SELECTOR_H_
