// Where the gRPC server may listen, and with what credentials: plain text on loopback alone, mutual TLS elsewhere.

#ifndef GRADGATE_DAEMON_RPC_LISTEN_ADDRESS_H_
#define GRADGATE_DAEMON_RPC_LISTEN_ADDRESS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/security/server_credentials.h"

namespace gradgate {

// Paths of PEM files; all three or none.
struct TlsFiles {
  std::string cert;
  std::string key;
  std::string client_ca;
  bool any() const { return !cert.empty() || !key.empty() || !client_ca.empty(); }
  bool all() const { return !cert.empty() && !key.empty() && !client_ca.empty(); }
};

// Splits host:port, [v6]:port. INVALID_ARGUMENT names the text.
struct HostPort {
  std::string host;
  int port;
};
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// Whether only this machine can reach `host`: localhost, 127.0.0.0/8, ::1.
bool IsLoopback(absl::string_view host);

// Credentials for a TCP address. INVALID_ARGUMENT: TLS files are needed, incomplete, or do not fit (certificate.h). NOT_FOUND,
// FAILED_PRECONDITION: one cannot be read.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTcpCredentials(const HostPort& address, const TlsFiles& tls);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_LISTEN_ADDRESS_H_
