// Finds out why a daemon's TCP port could not be talked to: gRPC tells no more than that it could not.
//
// Thread class: any thread; blocks for a few seconds at most.

#ifndef GRADGATE_CLIENT_TLS_PROBE_H_
#define GRADGATE_CLIENT_TLS_PROBE_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/client_options.h"
#include "client/target.h"

namespace gradgate::client {

// Connects once more and shakes hands by TLS, whatever `tls` says, trusting nobody. What is wrong and what to do, as one
// clause; or nothing where no fault of TLS shows: nobody listens, nobody answers, or all is well. `target` is TCP. Each wait
// for the other side ends after `timeout`.
std::optional<std::string> ProbeTls(const Target& target, const TlsFiles& tls, absl::Duration timeout);

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_TLS_PROBE_H_
