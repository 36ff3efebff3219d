#include "daemon/policy/audit_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gradgate {
namespace {

constexpr mode_t kMode = 0640;

absl::Status SystemError(absl::string_view what, const std::string& path, int error) {
  const std::string text = absl::StrCat("cannot ", what, " the audit log ", path, ": ", std::strerror(error));
  if (error == ELOOP) return absl::FailedPreconditionError(absl::StrCat(text, "; it is a symbolic link, give the file itself"));
  return error == EACCES || error == EPERM || error == EROFS ? absl::PermissionDeniedError(text) : absl::UnavailableError(text);
}

// O_NONBLOCK: what lies there may be a pipe that nobody reads.
UniqueFd OpenAt(const std::string& path, int extra) {
  return UniqueFd(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | extra, kMode));
}

// A daemon that was killed, or whose disk was full, may have left half a line.
bool EndsInTheMiddle(const std::string& path, off_t bytes) {
  char last = '\n';
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return bytes > 0 && file && pread(file.get(), &last, 1, bytes - 1) == 1 && last != '\n';
}

}  // namespace

absl::StatusOr<AuditFile> AuditFile::Open(const std::string& path) {
  AuditFile file(path);
  if (absl::Status s = file.Reopen(); !s.ok()) return s;
  return file;
}

absl::Status AuditFile::Reopen() {
  file_ = OpenAt(path_, 0);
  if (!file_ && errno == ENOENT) {
    file_ = OpenAt(path_, O_CREAT | O_EXCL);
    if (!file_ && errno == EEXIST) file_ = OpenAt(path_, 0);  // somebody else made it meanwhile
    if (file_ && fchmod(file_.get(), kMode) != 0) return SystemError("set the mode of", path_, errno);  // whatever the umask
  }
  if (!file_) return SystemError("open", path_, errno);
  struct stat found;
  if (fstat(file_.get(), &found) != 0) return SystemError("look at", path_, errno);
  if (S_ISREG(found.st_mode)) {
    torn_ = EndsInTheMiddle(path_, found.st_size);
    return absl::OkStatus();
  }
  file_.reset();
  return absl::FailedPreconditionError(absl::StrCat("the audit log ", path_, " is no regular file; give another one"));
}

bool AuditFile::IsAtPath() const {
  struct stat mine, there;
  return file_ && fstat(file_.get(), &mine) == 0 && lstat(path_.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

absl::Status AuditFile::Append(absl::string_view line) {
  if (path_.empty()) return absl::OkStatus();
  if (!IsAtPath()) {
    if (absl::Status s = Reopen(); !s.ok()) return s;
  }
  const std::string text = absl::StrCat(torn_ ? "\n" : "", line, "\n");
  ssize_t written;
  do {
    written = write(file_.get(), text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(text.size())) {
    torn_ = false;
    return absl::OkStatus();
  }
  torn_ = torn_ || written > 0;
  return SystemError("write", path_, written < 0 ? errno : ENOSPC);
}

}  // namespace gradgate
