#include "daemon/node/job_selector.h"

#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gradgate {

JobSelector ParseJobSelector(absl::string_view text) {
  const size_t slash = text.find('/');
  uint32_t user_id;
  const bool digits = slash != absl::string_view::npos && slash > 0 && absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
  if (!digits || !absl::SimpleAtoi(text.substr(0, slash), &user_id)) return {std::nullopt, std::string(text)};
  return {user_id, std::string(text.substr(slash + 1))};
}

std::string FormatJobSelector(int64_t user_id, absl::string_view job) { return absl::StrCat(user_id, "/", job); }

absl::Status SeveralUsers(absl::string_view claim, absl::string_view job,
                          const std::set<std::pair<int64_t, std::string>>& runs) {
  constexpr size_t kShown = 8;
  std::map<int64_t, std::string> latest;  // a user is shown once
  for (const auto& [user_id, run] : runs) latest[user_id] = run;
  std::vector<std::string> shown;
  for (const auto& [user_id, run] : latest) {
    if (shown.size() < kShown) shown.push_back(absl::StrCat(FormatJobSelector(user_id, job), " (run ", run.substr(0, 12), ")"));
  }
  if (shown.size() < latest.size()) shown.push_back(absl::StrCat(latest.size() - shown.size(), " more"));
  return absl::InvalidArgumentError(absl::StrCat("jobs of several users ", claim, " \"", job,
                                                 "\": ", absl::StrJoin(shown, ", "),
                                                 "; give one of these as the job, or gradgatectl --user UID"));
}

}  // namespace gradgate
