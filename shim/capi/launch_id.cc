#include "shim/capi/launch_id.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string_view>

namespace gradgate {
namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Of /proc/PID/stat, whose second field is any text in parentheses: the 22nd, in ticks since boot.
std::string StartOf(const std::string& stat) {
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return "";
  std::istringstream fields(stat.substr(end + 1));
  const std::istream_iterator<std::string> none;
  std::istream_iterator<std::string> field(fields);
  for (int number = 3; number < 22 && field != none; ++number) ++field;
  return field == none ? "" : *field;
}

std::string Parent() {
  const std::string pid = std::to_string(::getppid());
  const std::string boot = FirstLine("/proc/sys/kernel/random/boot_id");
  const std::string start = StartOf(FirstLine("/proc/" + pid + "/stat"));
  char space[64];
  const ssize_t bytes = ::readlink("/proc/self/ns/pid", space, sizeof(space));
  if (boot.empty() || start.empty() || bytes <= 0) return "";
  return boot + " " + std::string(space, static_cast<size_t>(bytes)) + " " + pid + " " + start;
}

// The folder of one agent's logs, or empty where the path is not as torchrun makes it.
std::string LogFolder(const std::string& error_file) {
  const size_t attempt = error_file.rfind("/attempt_");
  return attempt == std::string::npos ? "" : error_file.substr(0, attempt);
}

// FNV-1a from two beginnings; each text is closed by a zero.
LaunchId Digest(std::initializer_list<std::string_view> texts) {
  uint64_t halves[] = {0xcbf29ce484222325, 0x9ae16a3b2f90404f};
  for (uint64_t& half : halves) {
    for (const std::string_view text : texts) {
      for (const char c : text) half = (half ^ static_cast<unsigned char>(c)) * 0x100000001b3;
      half *= 0x100000001b3;
    }
  }
  LaunchId id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<uint8_t>(halves[i / 8] >> (i % 8 * 8));
  return id;
}

}  // namespace

LaunchSigns ReadLaunchSigns() {
  return {.given = FromEnvironment("GRADGATE_LAUNCH"),
          .run_id = FromEnvironment("TORCHELASTIC_RUN_ID"),
          .error_file = FromEnvironment("TORCHELASTIC_ERROR_FILE"),
          .parent = Parent(),
          .rank = FromEnvironment("RANK")};
}

LaunchId MakeLaunchId(const LaunchSigns& signs, uint32_t ordinal) {
  const std::string number = std::to_string(ordinal);
  if (!signs.given.empty()) return Digest({"given", signs.given, signs.rank, number});
  const std::string folder = LogFolder(signs.error_file);
  if (signs.run_id.empty() || folder.empty() || signs.parent.empty()) return {};
  return Digest({"torchrun", signs.run_id, folder, signs.parent, signs.rank, number});
}

}  // namespace gradgate
