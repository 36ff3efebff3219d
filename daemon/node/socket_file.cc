#include "daemon/node/socket_file.h"

#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gradgate {
namespace {

absl::Status SystemError(absl::string_view what, const std::string& path, int error) {
  const std::string text = absl::StrCat(what, " ", path, ": ", std::strerror(error));
  return error == EACCES || error == EPERM || error == EROFS ? absl::PermissionDeniedError(text) : absl::UnavailableError(text);
}

absl::StatusOr<sockaddr_un> MakeAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " has ", path.size(), " bytes, at most ",
                                                   sizeof(address.sun_path) - 1, " fit; choose a shorter --dir"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

}  // namespace

absl::Status EnsureDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return SystemError("cannot make directory", path, errno);
  struct stat file;
  if (stat(path.c_str(), &file) != 0) return SystemError("cannot look at", path, errno);
  if (!S_ISDIR(file.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a directory; choose another --dir"));
  if (access(path.c_str(), W_OK | X_OK) != 0) return SystemError("cannot make sockets in", path, errno);
  return absl::OkStatus();
}

absl::Status RemoveStaleSocket(const std::string& path, int type) {
  absl::StatusOr<sockaddr_un> address = MakeAddress(path);
  if (!address.ok()) return address.status();
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return errno == ENOENT ? absl::OkStatus() : SystemError("cannot look at", path, errno);
  if (!S_ISSOCK(file.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is in the way and is no socket; remove it, or choose another --dir"));
  }
  UniqueFd probe(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return SystemError("cannot make a socket to probe", path, errno);
  const int error = connect(probe.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0 ? 0 : errno;
  if (error == 0 || error == EAGAIN) {
    return absl::AlreadyExistsError(
        absl::StrCat("another gradgated listens on ", path, "; stop it first, or choose another --dir"));
  }
  if (error == EPROTOTYPE) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is another program's socket; choose another --dir"));
  }
  if (error != ECONNREFUSED) return SystemError("cannot probe", path, error);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return SystemError("cannot remove the stale socket", path, errno);
  return absl::OkStatus();
}

absl::StatusOr<ListeningSocket> ListeningSocket::Listen(const std::string& path, mode_t mode, int backlog, int type) {
  if (absl::Status s = RemoveStaleSocket(path, type); !s.ok()) return s;
  absl::StatusOr<sockaddr_un> address = MakeAddress(path);
  if (!address.ok()) return address.status();
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return SystemError("cannot make a socket for", path, errno);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return SystemError("cannot bind", path, errno);
  }
  struct stat file;
  // Nobody can connect before listen(), so the mode is right from the first connection on.
  if (chmod(path.c_str(), mode) != 0 || lstat(path.c_str(), &file) != 0)
    return SystemError("cannot set the mode of", path, errno);
  if (listen(fd.get(), backlog) != 0) return SystemError("cannot listen on", path, errno);
  return ListeningSocket(std::move(fd), path, file.st_ino);
}

ListeningSocket::~ListeningSocket() {
  struct stat file;
  if (fd_ && lstat(path_.c_str(), &file) == 0 && file.st_ino == inode_) unlink(path_.c_str());
}

}  // namespace gradgate
