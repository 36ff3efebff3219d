#include "daemon/rpc/method_gate.h"

#include "daemon/rpc/caller.h"
#include "daemon/rpc/convert.h"

namespace gradgate {

grpc::Status MethodGate::Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*, OutputMetadata*) {
  const auto path = metadata.find(":path");
  const std::string method = path == metadata.end() ? "" : std::string(path->second.data(), path->second.size());
  if (method == kSetPolicyMethod) return grpc::Status::OK;
  Caller caller;
  caller.transport = Transport::kTls;
  ReadCertificate(*context, &caller);
  const absl::Status allowed = CheckAccess(caller, method);
  if (!allowed.ok()) refused_(caller, method, allowed);
  return ToGrpc(allowed);
}

}  // namespace gradgate
