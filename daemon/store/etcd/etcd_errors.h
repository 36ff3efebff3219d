// What etcd says, as ours: which try may be repeated, whether it is about the token, and what a person should do. Pure.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ETCD_ERRORS_H_
#define GRADGATE_DAEMON_STORE_ETCD_ETCD_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/store/etcd/etcd_options.h"
#include "grpcpp/support/status.h"

namespace gradgate {

// Text of another machine, fit for a terminal, and short.
std::string ShownText(absl::string_view text_untrusted);

// The status with the endpoint's name before it and a remedy behind it. What etcd says of users and passwords becomes
// PERMISSION_DENIED.
absl::Status EtcdError(const grpc::Status& status, absl::string_view endpoint, const EtcdOptions& options);

// The token is missing, unknown, expired, or older than a change of users.
bool IsTokenError(const grpc::Status& status);

// Users are switched off, so that there is nothing to authenticate for.
bool IsAuthOff(const grpc::Status& status);

// The answer was longer than this side reads; told by this side.
bool IsTooLongForUs(const absl::Status& status);

// Another endpoint, or the same later, may answer. Whether it was carried out is unknown.
bool IsTransient(const absl::Status& status);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ETCD_ERRORS_H_
