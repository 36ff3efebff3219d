#include "client/channel.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace gradgate::client {
namespace {

constexpr int kMinBackoffMs = 100;
constexpr int kMaxBackoffMs = 500;  // a daemon that was restarted is found again soon

absl::Status ReadPem(const std::string& path, std::string* text) {
  if (path.empty()) return absl::OkStatus();
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  char buffer[4096];
  while (file != nullptr) {
    const size_t got = std::fread(buffer, 1, sizeof(buffer), file);
    if (got == 0) break;
    text->append(buffer, got);
  }
  const bool failed = file == nullptr || std::ferror(file) != 0;
  const int error = errno;
  if (file != nullptr) std::fclose(file);
  if (failed) return absl::InvalidArgumentError(absl::StrCat("cannot read PEM file ", path, ": ", std::strerror(error)));
  if (text->find("-----BEGIN") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("file ", path, " is not PEM: it has no -----BEGIN line"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsCredentials(const TlsFiles& tls) {
  if (tls.ca_file.empty()) return absl::InvalidArgumentError("TLS needs the CA file that signed the daemon's certificate");
  if (tls.cert_file.empty() != tls.key_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS certificate file and key file go together; only \"", tls.cert_file, tls.key_file, "\" was given"));
  }
  grpc::SslCredentialsOptions pem;
  if (absl::Status read = ReadPem(tls.ca_file, &pem.pem_root_certs); !read.ok()) return read;
  if (absl::Status read = ReadPem(tls.cert_file, &pem.pem_cert_chain); !read.ok()) return read;
  if (absl::Status read = ReadPem(tls.key_file, &pem.pem_private_key); !read.ok()) return read;
  return grpc::SslCredentials(pem);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const Target& target, const TlsFiles& tls) {
  if (target.kind == Target::Kind::kUnix) {
    if (tls.empty()) return grpc::InsecureChannelCredentials();
    return absl::InvalidArgumentError(absl::StrCat("TLS files were given for the Unix socket ", target.address,
                                                   ", whose file mode guards it; leave them out"));
  }
  if (!tls.empty()) return TlsCredentials(tls);
  if (target.loopback) return grpc::InsecureChannelCredentials();
  return absl::InvalidArgumentError(
      absl::StrCat("target ", target.address, " is another machine and needs TLS: give the CA, certificate and key files"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Target& target, const TlsFiles& tls, int max_answer_bytes) {
  const auto credentials = Credentials(target, tls);
  if (!credentials.ok()) return credentials.status();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(max_answer_bytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // daemons are reached directly, whatever http_proxy says
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no back-off inherited from another client of this process
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  return grpc::CreateCustomChannel(target.GrpcName(), *credentials, arguments);
}

}  // namespace gradgate::client
