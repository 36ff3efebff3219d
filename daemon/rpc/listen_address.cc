#include "daemon/rpc/listen_address.h"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/rpc/certificate.h"

namespace gradgate {
namespace {

absl::StatusOr<std::string> ReadFile(absl::string_view flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat("cannot read --", flag, " ", path, ": ", std::strerror(errno)));
  }
  return text.str();
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const auto error = [&text] {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not host:port; give 127.0.0.1:9768 or [::1]:9768, say"));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return error();
  absl::string_view host = text.substr(0, colon);
  if (!host.empty() && host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return error();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != absl::string_view::npos) {
    return error();
  }
  int port;
  if (host.empty() || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 0 || port > 65535) return error();
  return HostPort{std::string(host), port};
}

bool IsLoopback(absl::string_view host_text) {
  const std::string host(host_text);
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTcpCredentials(const HostPort& address, const TlsFiles& tls) {
  if (!tls.any()) {
    if (IsLoopback(address.host)) return grpc::InsecureServerCredentials();
    return absl::InvalidArgumentError(absl::StrCat("--grpc_listen on ", address.host,
                                                   " is reachable from other machines and needs --tls_cert, --tls_key and "
                                                   "--tls_client_ca; without them listen on 127.0.0.1"));
  }
  if (!tls.all()) return absl::InvalidArgumentError("--tls_cert, --tls_key and --tls_client_ca go together; give all three");
  absl::StatusOr<std::string> cert = ReadFile("tls_cert", tls.cert);
  if (!cert.ok()) return cert.status();
  absl::StatusOr<std::string> key = ReadFile("tls_key", tls.key);
  if (!key.ok()) return key.status();
  absl::StatusOr<std::string> client_ca = ReadFile("tls_client_ca", tls.client_ca);
  if (!client_ca.ok()) return client_ca.status();
  if (absl::Status s = CheckCertificateAndKey(*cert, *key); !s.ok()) return s;
  if (absl::Status s = CheckAuthority(*client_ca); !s.ok()) return s;
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = *client_ca;
  options.pem_key_cert_pairs.push_back({*key, *cert});
  return grpc::SslServerCredentials(options);
}

}  // namespace gradgate
