#include "daemon/store/etcd/etcd_errors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/node/text_check.h"

namespace gradgate {
namespace {

constexpr size_t kMaxShownBytes = 300;

absl::string_view TlsRemedy(absl::string_view text) {
  if (absl::StrContains(text, "Peer name")) return "; its certificate does not name this host: write the name that it has";
  if (absl::StrContains(text, "andshake")) {
    return "; its certificate is not signed by --store_ca, or not valid by this machine's clock";
  }
  if (absl::StrContains(text, "Endpoint read failed") || absl::StrContains(text, "Socket closed") ||
      absl::StrContains(text, "reset")) {
    return "; it may want a client certificate that its authority signed (--store_cert, --store_key), or speak no TLS "
           "(etcd://)";
  }
  return "";
}

absl::string_view PlainRemedy(absl::string_view text) {
  const bool broke_off = absl::StrContains(text, "Socket closed") || absl::StrContains(text, "reset");
  return broke_off ? "; if it speaks TLS, write etcds://" : "";
}

absl::string_view Remedy(absl::StatusCode code, absl::string_view text, const EtcdOptions& options) {
  if (absl::StrContains(text, "user name is empty")) return "; it asks for a user: give --store_user and --store_password_file";
  if (absl::StrContains(text, "invalid user ID or password")) return "; check --store_user and --store_password_file";
  if (absl::StrContains(text, "space exceeded"))
    return "; etcd's disk quota is used up: compact and defragment it, then disarm its alarm";
  if (code == absl::StatusCode::kPermissionDenied) return "; grant the user read and write on the prefix /gradgate/v1/";
  if (code == absl::StatusCode::kUnavailable) return options.tls ? TlsRemedy(text) : PlainRemedy(text);
  return "";
}

}  // namespace

std::string ShownText(absl::string_view text_untrusted) {
  std::string text(text_untrusted.substr(0, kMaxShownBytes));
  if (IsPrintableUtf8(text)) return text;
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

absl::Status EtcdError(const grpc::Status& status, absl::string_view endpoint, const EtcdOptions& options) {
  if (status.ok()) return absl::OkStatus();
  auto code = static_cast<absl::StatusCode>(status.error_code());
  const std::string text = ShownText(status.error_message());
  if (absl::StrContains(text, "user name is empty") || absl::StrContains(text, "invalid user ID or password") ||
      code == absl::StatusCode::kUnauthenticated) {
    code = absl::StatusCode::kPermissionDenied;
  }
  return absl::Status(
      code, absl::StrCat(endpoint, ": ", text.empty() ? absl::StatusCodeToString(code) : text, Remedy(code, text, options)));
}

bool IsTokenError(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) return true;
  return status.error_code() == grpc::StatusCode::INVALID_ARGUMENT &&
         (absl::StrContains(status.error_message(), "user name is empty") ||
          absl::StrContains(status.error_message(), "revision in header is old"));
}

bool IsAuthOff(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::FAILED_PRECONDITION &&
         absl::StrContains(status.error_message(), "authentication is not enabled");
}

bool IsTooLongForUs(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && !absl::StrContains(status.message(), "etcdserver:");
}

bool IsTransient(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
      return true;
    default:
      return absl::IsResourceExhausted(status) && absl::StrContains(status.message(), "too many requests");
  }
}

}  // namespace gradgate
