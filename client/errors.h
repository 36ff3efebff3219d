// Turns what gRPC says about a failed call into what a person can act on. Any thread.

#ifndef GRADGATE_CLIENT_ERRORS_H_
#define GRADGATE_CLIENT_ERRORS_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/target.h"
#include "grpcpp/support/status.h"

namespace gradgate::client {

// gRPC's code stays, but for a socket that this user may not open, which is PERMISSION_DENIED, and for CANCELLED, which is
// UNAVAILABLE: the daemon did it (callers look at their own cancellation first). UNAVAILABLE on a Unix socket connects once,
// without blocking, to learn the reason. `timeout`: what the call was given. OK stays OK.
absl::Status Explain(const grpc::Status& status, const Target& target, absl::Duration timeout);

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_ERRORS_H_
