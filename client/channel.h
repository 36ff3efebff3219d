// Opens the gRPC channel to a gradgated: which credentials, which limits. Any thread.

#ifndef GRADGATE_CLIENT_CHANNEL_H_
#define GRADGATE_CLIENT_CHANNEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/client_options.h"
#include "client/target.h"
#include "grpcpp/channel.h"

namespace gradgate::client {

inline constexpr int kMaxAnswerBytes = 64 * 1024 * 1024;  // a page of 1000 windows of 128 ranks is about 20 MB

// Connects lazily: the first call does, and tells what is wrong with the other side. Answers larger than `max_answer_bytes` are
// refused. INVALID_ARGUMENT: a host other than this machine without TLS; TLS without `ca_file`, with only one of certificate
// and key, or on a Unix socket; a PEM file that cannot be read.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Target& target, const TlsFiles& tls,
                                                           int max_answer_bytes = kMaxAnswerBytes);

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_CHANNEL_H_
