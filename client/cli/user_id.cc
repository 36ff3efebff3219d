#include "client/cli/user_id.h"

#include <pwd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gradgate::cli {

absl::StatusOr<uint32_t> UserId(const std::string& user) {
  uint32_t user_id;
  if (absl::SimpleAtoi(user, &user_id)) return user_id;
  passwd entry{}, *found = nullptr;
  std::vector<char> buffer(16384);
  (void)getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found != nullptr) return found->pw_uid;
  return absl::InvalidArgumentError(absl::StrCat("no user \"", user, "\" on this machine; give the uid"));
}

}  // namespace gradgate::cli
