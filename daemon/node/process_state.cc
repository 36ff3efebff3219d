#include "daemon/node/process_state.h"

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "daemon/node/unique_fd.h"

namespace gradgate {

std::string ParseProcessState(absl::string_view stat_line) {
  const size_t name_end = stat_line.rfind(')');
  if (name_end == absl::string_view::npos || name_end + 2 >= stat_line.size() || stat_line[name_end + 1] != ' ') return "";
  const char letter = stat_line[name_end + 2];
  return absl::ascii_isalpha(static_cast<unsigned char>(letter)) ? std::string(1, letter) : "";
}

std::string ReadProcessState(int32_t process_id) {
  if (process_id <= 0) return "";
  const UniqueFd file(open(absl::StrCat("/proc/", process_id, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t size = file.get() < 0 ? -1 : read(file.get(), text, sizeof(text));
  return size <= 0 ? "" : ParseProcessState(absl::string_view(text, static_cast<size_t>(size)));
}

}  // namespace gradgate
