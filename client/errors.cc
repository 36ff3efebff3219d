#include "client/errors.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/tls_probe.h"

namespace gradgate::client {
namespace {

// 0 if something listens at `path`, else the errno of the attempt.
int TryConnect(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  const int result = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  close(fd);
  return result;
}

// Of what gRPC says, what lies behind "failed to connect to all addresses".
std::string LastError(const std::string& message) {
  if (absl::StrContains(message, "DNS resolution failed")) return "its host name cannot be resolved";
  constexpr char kMark[] = "Failed to connect to remote host: ";
  const size_t at = message.rfind(kMark);
  return at == std::string::npos ? message : message.substr(at + sizeof(kMark) - 1);
}

absl::Status ExplainUnavailable(const std::string& message, const Target& target, const TlsFiles& tls, absl::Duration timeout) {
  if (target.kind == Target::Kind::kTcp) {
    const auto fault = ProbeTls(target, tls, std::min(timeout, kProbeTimeout));
    if (fault.has_value()) {
      return absl::UnauthenticatedError(absl::StrCat("something listens at ", target.address, ", but ", *fault));
    }
    return absl::UnavailableError(absl::StrCat("no gradgated at ", target.address, ": ", LastError(message),
                                               "; start one with `gradgated` that listens there"));
  }
  const int error = TryConnect(target.address);
  switch (error) {
    case 0:
    case EAGAIN:  // its backlog is full, so it is there
      return absl::UnavailableError(
          absl::StrCat("gradgated at ", target.address, " broke off: ", message, "; it was stopped or restarted, ask again"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat("may not open ", target.address, ": ", std::strerror(error),
                                                      "; join the group that owns it, or ask as its owner"));
    default:
      return absl::UnavailableError(
          absl::StrCat("no gradgated at ", target.address, ": ", std::strerror(error), "; start one with `gradgated`"));
  }
}

}  // namespace

absl::Status Explain(const grpc::Status& status, const Target& target, const TlsFiles& tls, absl::Duration timeout) {
  const std::string message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::OkStatus();
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:  // by the daemon: so it ends calls when it is stopped
      return ExplainUnavailable(message, target, tls, timeout);
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(absl::StrCat("gradgated at ", target.address, " did not answer within ",
                                                      absl::FormatDuration(timeout),
                                                      "; it is stopped or overloaded, or the timeout is too short"));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::UnimplementedError(absl::StrCat("what listens at ", target.address, " does not know this call",
                                                   message.empty() ? "" : absl::StrCat(" (", message, ")"),
                                                   "; it is no gradgated, or one of another version"));
    default:
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          absl::StrCat("gradgated at ", target.address, ": ", message));
  }
}

}  // namespace gradgate::client
