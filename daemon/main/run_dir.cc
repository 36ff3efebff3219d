#include "daemon/main/run_dir.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "daemon/node/socket_file.h"

namespace gradgate {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

absl::StatusOr<std::string> ChooseRunDirectory(const std::string& flag) {
  const std::string asked = flag.empty() ? Environment("GRADGATE_DIR") : flag;
  if (!asked.empty()) {
    if (absl::Status s = EnsureDirectory(asked); !s.ok()) return s;
    return asked;
  }
  const std::string system_wide = "/run/gradgate";
  const absl::Status refused = EnsureDirectory(system_wide);
  if (refused.ok()) return system_wide;
  const std::string runtime = Environment("XDG_RUNTIME_DIR");
  if (runtime.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(refused.message(), ", and XDG_RUNTIME_DIR is not set; give --dir or set GRADGATE_DIR"));
  }
  const std::string own = absl::StrCat(runtime, "/gradgate");
  if (absl::Status s = EnsureDirectory(own); !s.ok()) return s;
  return own;
}

}  // namespace gradgate
