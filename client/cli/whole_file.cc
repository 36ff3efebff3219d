#include "client/cli/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/cli/output.h"

namespace gradgate::cli {
namespace {

absl::Status Cannot(absl::string_view path, int error) {
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(error)));
}

std::string Resolved(const std::string& path) {
  char* const real = realpath(path.c_str(), nullptr);
  const std::string target = real == nullptr ? path : real;
  std::free(real);
  return target;
}

// Takes `fd` over.
absl::Status WriteAll(int fd, absl::string_view content, const std::string& path, bool sync) {
  Output output(fd);
  const bool open = output.Write(content);
  absl::Status status = open ? absl::OkStatus() : Cannot(path, EPIPE);
  if (!output.status().ok()) status = absl::InternalError(absl::StrCat("cannot write ", path, ": ", output.status().message()));
  if (status.ok() && sync && fsync(fd) != 0) status = Cannot(path, errno);
  if (close(fd) != 0 && status.ok()) status = Cannot(path, errno);
  return status;
}

// What an ordinary new file would have.
mode_t NewMode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, absl::string_view content) {
  struct stat former {};
  const bool exists = stat(path.c_str(), &former) == 0;
  if (exists && S_ISDIR(former.st_mode)) return Cannot(path, EISDIR);
  if (exists && !S_ISREG(former.st_mode)) {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? Cannot(path, errno) : WriteAll(fd, content, path, false);
  }
  const std::string target = exists ? Resolved(path) : path;
  std::string beside = target + ".XXXXXX";
  const int fd = mkostemp(beside.data(), O_CLOEXEC);
  if (fd < 0) return Cannot(path, errno);
  if (fchmod(fd, exists ? former.st_mode & 07777 : NewMode()) != 0) errno = 0;  // a file system without modes
  absl::Status status = WriteAll(fd, content, path, true);
  if (status.ok() && rename(beside.c_str(), target.c_str()) != 0) status = Cannot(path, errno);
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

}  // namespace gradgate::cli
