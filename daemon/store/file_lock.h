// Only one process has a file: PATH.lock is held by flock(2), and removed with the object.
//
// Thread class: one thread at a time.

#ifndef GRADGATE_DAEMON_STORE_FILE_LOCK_H_
#define GRADGATE_DAEMON_STORE_FILE_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/node/unique_fd.h"

namespace gradgate {

// What a system call on `path` said, with a remedy where there is one.
absl::Status FileError(absl::string_view what, const std::string& path, int error);

class FileLock {
 public:
  // FAILED_PRECONDITION: another process holds it. Else as FileError.
  static absl::StatusOr<FileLock> Take(const std::string& path);

  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;  // of the lock's own file
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_FILE_LOCK_H_
