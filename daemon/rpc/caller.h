// Who calls, from what gRPC knows of a call.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_RPC_CALLER_H_
#define GRADGATE_DAEMON_RPC_CALLER_H_

#include <string>

#include "daemon/rpc/access.h"
#include "daemon/rpc/connection_table.h"
#include "gradgate/v1/audit.pb.h"
#include "grpcpp/security/auth_context.h"

namespace gradgate {

// `peer`: as ServerContext::peer() tells. `sockets`: the connections by api.sock; may be null.
Caller CallerOf(const grpc::AuthContext* auth, const std::string& peer, ConnectionTable* sockets);

// The certificate's alone, where there is one: subject, common name, role.
void ReadCertificate(const grpc::AuthContext& auth, Caller* caller);

v1::AuditCaller ToMessage(const Caller& caller);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_CALLER_H_
