// The files of a set of certificates: NAME.pem and NAME-key.pem.
//
// Thread class: one thread; blocks for the disk.

#ifndef GRADGATE_CLIENT_CLI_CERTS_DIRECTORY_H_
#define GRADGATE_CLIENT_CLI_CERTS_DIRECTORY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/certificates.h"

namespace gradgate::cli {

class CertsDirectory {
 public:
  explicit CertsDirectory(std::string path) : path_(std::move(path)) {}

  // Absolute where the file is there, so that commands work anywhere.
  std::string CertificatePath(absl::string_view name) const;
  std::string KeyPath(absl::string_view name) const;
  // Either of the two is there; that file, or empty.
  std::string Existing(absl::string_view name) const;

  absl::Status Make() const;
  // FAILED_PRECONDITION: one of the two cannot be read.
  absl::StatusOr<CertificateAndKey> Read(absl::string_view name) const;
  // All or nothing. ALREADY_EXISTS: one of the files is there. Else what the system says.
  using Named = std::pair<std::string, CertificateAndKey>;
  absl::Status Write(const std::vector<Named>& pairs) const;

 private:
  const std::string path_;
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_CERTS_DIRECTORY_H_
