#include "client/cli/certs_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace gradgate::cli {
namespace {

absl::Status SystemError(absl::string_view what, const std::string& path) {
  const int error = errno;
  const std::string text = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  if (error == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, " is there already and is not overwritten"));
  return error == EACCES || error == EPERM || error == EROFS ? absl::PermissionDeniedError(text) : absl::InternalError(text);
}

absl::Status WriteNew(const std::string& path, absl::string_view text, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return SystemError("make", path);
  absl::Status status;
  for (absl::string_view rest = text; status.ok() && !rest.empty();) {
    const ssize_t written = write(fd, rest.data(), rest.size());
    if (written < 0) status = SystemError("write", path);
    if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
  }
  if (status.ok() && fsync(fd) != 0) status = SystemError("write", path);
  close(fd);
  if (!status.ok()) unlink(path.c_str());
  return status;
}

std::string Real(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  const std::string shown = real == nullptr ? path : real;
  free(real);
  return shown;
}

}  // namespace

std::string CertsDirectory::CertificatePath(absl::string_view name) const {
  return Real(absl::StrCat(path_, "/", name, ".pem"));
}

std::string CertsDirectory::KeyPath(absl::string_view name) const { return Real(absl::StrCat(path_, "/", name, "-key.pem")); }

std::string CertsDirectory::Existing(absl::string_view name) const {
  for (const std::string& path : {CertificatePath(name), KeyPath(name)}) {
    struct stat file;
    if (lstat(path.c_str(), &file) == 0) return path;
  }
  return "";
}

absl::Status CertsDirectory::Make() const {
  if (mkdir(path_.c_str(), 0755) != 0 && errno != EEXIST) return SystemError("make directory", path_);
  return absl::OkStatus();
}

absl::StatusOr<CertificateAndKey> CertsDirectory::Read(absl::string_view name) const {
  CertificateAndKey pair;
  for (auto [path, text] : {std::pair{CertificatePath(name), &pair.certificate}, {KeyPath(name), &pair.key}}) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::ostringstream read;
    if (!file || !(read << file.rdbuf())) {
      return absl::FailedPreconditionError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno),
                                                        "; the authority needs ", name, ".pem and ", name,
                                                        "-key.pem: put both there, or take another directory"));
    }
    *text = read.str();
  }
  return pair;
}

absl::Status CertsDirectory::Write(const std::vector<Named>& pairs) const {
  std::vector<std::string> written;
  absl::Status status;
  for (const auto& [name, pair] : pairs) {
    const std::string key = KeyPath(name), certificate = CertificatePath(name);
    if (status.ok()) status = WriteNew(key, pair.key, 0600);
    if (status.ok()) written.push_back(key);
    if (status.ok()) status = WriteNew(certificate, pair.certificate, 0644);
    if (status.ok()) written.push_back(certificate);
  }
  if (status.ok()) return status;
  for (const std::string& path : written) unlink(path.c_str());
  return status;
}

}  // namespace gradgate::cli
