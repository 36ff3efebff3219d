// How a client reaches its gradgated. Plain values.

#ifndef GRADGATE_CLIENT_CLIENT_OPTIONS_H_
#define GRADGATE_CLIENT_CLIENT_OPTIONS_H_

#include <string>

#include "absl/time/time.h"

namespace gradgate::client {

// PEM files, read once when the client is made. All empty: no TLS, which is allowed on this machine alone.
struct TlsFiles {
  std::string ca_file;    // who signed the daemon's certificate
  std::string cert_file;  // the client's own, with key_file: both or neither
  std::string key_file;

  bool empty() const { return ca_file.empty() && cert_file.empty() && key_file.empty(); }
};

struct ClientOptions {
  std::string target;                         // see client/target.h; empty: DefaultTarget()
  absl::Duration timeout = absl::Seconds(5);  // of each call, all its pages together; positive, finite
  TlsFiles tls;
};

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_CLIENT_OPTIONS_H_
