// gradgatectl certs: a directory of certificates for some daemons. No daemon is asked.
//
//   ca.pem, ca-key.pem           the authority; used if it is there
//   NAME.pem, NAME-key.pem       of each node: as a server, and as a client of the others
//   client.pem, client-key.pem   for gradgatectl; kept if it is there
//
// Keys have mode 0600. Nothing is overwritten. Thread class: one thread; blocks for the disk.

#ifndef GRADGATE_CLIENT_CLI_CERTS_COMMAND_H_
#define GRADGATE_CLIENT_CLI_CERTS_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gradgate::cli {

struct CertsOptions {
  std::string directory;           // made if need be
  std::vector<std::string> nodes;  // "NAME" or "NAME=HOST,HOST…"
  int days = 825;                  // that the certificates last; the authority lasts ten years
};

// What the user is to do with them: commands, ready to be typed. INVALID_ARGUMENT: a node is named wrongly or twice.
// ALREADY_EXISTS: there is one of that name. FAILED_PRECONDITION: the authority there cannot be used. Else what the system
// says. An error leaves no half of a pair behind.
absl::StatusOr<std::string> MakeCerts(const CertsOptions& options, absl::Time now);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_CERTS_COMMAND_H_
