// Who may call which method. Pure.
//
//   by api.sock       operator: the file's mode lets in root, the daemon's user and its group alone
//   by plain TCP      read: anybody on this machine
//   by TLS            the role in the caller's certificate; read where it has none
//
// A role is a URI among the certificate's alternative names, of any trust domain (whom to trust for it is said by
// --tls_client_ca), with anything behind it:
//
//   spiffe://DOMAIN/gradgate/role/ROLE[/…]      ROLE: read, node, operator
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_RPC_ACCESS_H_
#define GRADGATE_DAEMON_RPC_ACCESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace gradgate {

// Each may do what those before it may.
enum class Role {
  kRead,      // ask
  kNode,      // a daemon that asks for its callers; no more than kRead
  kOperator,  // set policies as well
};
absl::string_view Name(Role role);

enum class Transport { kSocket, kPlainTcp, kTls };

struct Caller {
  Transport transport = Transport::kPlainTcp;
  Role role = Role::kRead;
  std::optional<uint32_t> uid = {};  // kSocket
  std::string subject = "";          // kTls, printable; of the certificate
  std::string common_name = "";      // likewise
  std::string unknown_role = "";     // kTls, printable: a role in the certificate that this version does not know
  std::string address = "";          // TCP: host:port
};

// A method by its path, "/package.Service/Method", and the least role that may call it.
struct MethodAccess {
  absl::string_view method;
  Role least;
};
absl::Span<const MethodAccess> ListMethods();

// kOperator for a method that is not listed.
Role LeastRoleFor(absl::string_view method);

// The highest role that the URIs name; kRead where none does. `unknown`: set to a role that is none.
Role RoleOf(const std::vector<std::string>& uris_untrusted, std::string* unknown);

// OK, or PERMISSION_DENIED: names the caller, the role it has, the one that is needed, and how to get it.
absl::Status CheckAccess(const Caller& caller, absl::string_view method);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_ACCESS_H_
