// A file of lines that is only appended to, and that others may move away.
//
// Thread class: one thread at a time; blocks for the disk.

#ifndef GRADGATE_DAEMON_POLICY_AUDIT_FILE_H_
#define GRADGATE_DAEMON_POLICY_AUDIT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/node/unique_fd.h"

namespace gradgate {

class AuditFile {
 public:
  AuditFile() = default;  // writes nothing, successfully

  // Makes it (mode 0640) if need be. FAILED_PRECONDITION: it is no regular file, or a symbolic link. PERMISSION_DENIED,
  // UNAVAILABLE: what the system says.
  static absl::StatusOr<AuditFile> Open(const std::string& path);

  // Appends `line` and its end. Opens anew where the path leads to another file, or to none. Errors as Open, and what the
  // system says to the write; then a part of the line may be there, and the next begins on a line of its own.
  absl::Status Append(absl::string_view line);

 private:
  explicit AuditFile(std::string path) : path_(std::move(path)) {}

  absl::Status Reopen();
  bool IsAtPath() const;

  std::string path_;
  UniqueFd file_;
  bool torn_ = false;  // the last line has no end
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_POLICY_AUDIT_FILE_H_
