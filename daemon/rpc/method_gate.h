// Refuses, before it reaches a service, every call over TLS of a method that the caller's role may not call; and so every
// method that access.h does not list, to all but operators.
//
// SetPolicy passes: the service refuses it itself, since it can tell the audit log of which job.
//
// Thread class: any thread (gRPC's).

#ifndef GRADGATE_DAEMON_RPC_METHOD_GATE_H_
#define GRADGATE_DAEMON_RPC_METHOD_GATE_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "daemon/rpc/access.h"
#include "grpcpp/security/auth_metadata_processor.h"

namespace gradgate {

inline constexpr absl::string_view kSetPolicyMethod = "/gradgate.v1.PolicyService/SetPolicy";

class MethodGate final : public grpc::AuthMetadataProcessor {
 public:
  // Told of each refusal; must not block.
  using Refused = std::function<void(const Caller& caller, const std::string& method, const absl::Status& why)>;

  explicit MethodGate(Refused refused) : refused_(std::move(refused)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata* consumed,
                       OutputMetadata* response) override;

 private:
  const Refused refused_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_METHOD_GATE_H_
