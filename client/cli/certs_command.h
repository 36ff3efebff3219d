// gradgatectl certs: a directory of certificates for some daemons, and for who asks them. No daemon is asked.
//
//   ca.pem, ca-key.pem               the authority; used if it is there
//   NAME.pem, NAME-key.pem           of each node: as a server, and as a client of the others
//   client.pem, client-key.pem       may ask; kept if it is there
//   operator.pem, operator-key.pem   may set policies as well; kept if it is there
//   NAME.pem, NAME-key.pem           of each other client
//   etcd-ca.pem, etcd.pem, …         if asked for: an authority of its own, etcd's certificate, and etcd-client.pem for
//   daemons.
//                                    Of its own, since whoever etcd knows may write to it
//
// A role is a URI in the certificate, as daemon/rpc/access.h reads it. Keys have mode 0600. Nothing is overwritten.
// Thread class: one thread; blocks for the disk.

#ifndef GRADGATE_CLIENT_CLI_CERTS_COMMAND_H_
#define GRADGATE_CLIENT_CLI_CERTS_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gradgate::cli {

struct CertsOptions {
  std::string directory;                     // made if need be
  std::vector<std::string> nodes;            // "NAME" or "NAME=HOST,HOST…"
  int days = 825;                            // that the certificates last; authorities last ten years
  std::vector<std::string> clients = {};     // "NAME", "NAME=read", "NAME=operator"
  std::vector<std::string> etcd_hosts = {};  // empty: no set for etcd
};

// What the user is to do with them: commands, ready to be typed. INVALID_ARGUMENT: nothing to make, or something is named
// wrongly or twice. ALREADY_EXISTS: there is one of that name. FAILED_PRECONDITION: the authority there cannot be used. Else
// what the system says. After an error nothing of this call is left but the directory.
absl::StatusOr<std::string> MakeCerts(const CertsOptions& options, absl::Time now);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_CERTS_COMMAND_H_
