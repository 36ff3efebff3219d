#include "daemon/store/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace gradgate {
namespace {

// Whether the file at `path` is the one that `fd` is open on: its former holder may have removed it in between.
bool IsStillThere(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace

absl::Status FileError(absl::string_view what, const std::string& path, int error) {
  const std::string text = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(absl::StrCat(text, "; let the daemon's user write there, or give another --store"));
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(absl::StrCat(text, "; nothing was changed; make room on that disk"));
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat(text, "; make its directory, or give another --store"));
    default:
      return absl::UnavailableError(text);
  }
}

absl::StatusOr<FileLock> FileLock::Take(const std::string& path) {
  const std::string lock_path = absl::StrCat(path, ".lock");
  int access = O_RDONLY;  // a file system with a file open for writing could not be remounted read-only
  while (true) {
    UniqueFd fd(open(lock_path.c_str(), access | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return FileError("make", lock_path, errno);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EBADF && access == O_RDONLY) {  // NFS
        access = O_RDWR;
        continue;
      }
      if (errno != EWOULDBLOCK) return FileError("lock", lock_path, errno);
      return absl::FailedPreconditionError(
          absl::StrCat("another gradgated has the store ", path, "; give each its own --store, or --store=etcd://… to all"));
    }
    if (IsStillThere(fd.get(), lock_path)) return FileLock(std::move(fd), lock_path);
  }
}

FileLock::~FileLock() {
  if (fd_) unlink(path_.c_str());
}

}  // namespace gradgate
