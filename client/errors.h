// Turns what gRPC says about a failed call into what a person can act on. Any thread.

#ifndef GRADGATE_CLIENT_ERRORS_H_
#define GRADGATE_CLIENT_ERRORS_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/client_options.h"
#include "client/target.h"
#include "grpcpp/support/status.h"

namespace gradgate::client {

// gRPC's code stays, but for a socket that this user may not open, which is PERMISSION_DENIED, for TLS that fails, which is
// UNAUTHENTICATED, and for CANCELLED, which is UNAVAILABLE: the daemon did it (callers look at their own cancellation first).
// UNAVAILABLE connects once to learn the reason: on a Unix socket without blocking, over TCP for kProbeTimeout for each step.
// `timeout`: what the call was given. OK stays OK.
inline constexpr absl::Duration kProbeTimeout = absl::Seconds(1);
absl::Status Explain(const grpc::Status& status, const Target& target, const TlsFiles& tls, absl::Duration timeout);

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_ERRORS_H_
