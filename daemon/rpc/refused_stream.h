// A stream that ends before it began.

#ifndef GRADGATE_DAEMON_RPC_REFUSED_STREAM_H_
#define GRADGATE_DAEMON_RPC_REFUSED_STREAM_H_

#include "absl/status/status.h"
#include "daemon/rpc/convert.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

// Gone once gRPC is done with it.
template <typename Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_REFUSED_STREAM_H_
