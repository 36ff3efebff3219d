// Certificates for daemons that talk to each other, and for who asks them: an authority, and what it signs. Elliptic curve
// P-256.
//
// Thread class: any thread. No files.

#ifndef GRADGATE_CLIENT_CLI_CERTIFICATES_H_
#define GRADGATE_CLIENT_CLI_CERTIFICATES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gradgate::cli {

// A certificate and its private key, PEM.
struct CertificateAndKey {
  std::string certificate;
  std::string key;
};

enum class CertificateUse {
  kNode,    // as a server and as a client
  kClient,  // as a client alone
};

struct CertificateRequest {
  std::string name;                // common name; at most 64 bytes
  std::vector<std::string> hosts;  // names and addresses that a client may connect to
  CertificateUse use = CertificateUse::kClient;
  absl::Duration lifetime;
  std::string uri = "";  // that tells the daemon its role; empty: none
};

// It can sign certificates and nothing more. INTERNAL: what OpenSSL says.
absl::StatusOr<CertificateAndKey> MakeAuthority(const std::string& name, absl::Time now, absl::Duration lifetime);

// Signed by `authority`; valid from an hour before `now`, since clocks differ. INVALID_ARGUMENT: the authority is no PEM, its
// key is another one's, it may not sign, or it ends before `now`. A certificate never outlives its authority.
absl::StatusOr<CertificateAndKey> MakeCertificate(const CertificateAndKey& authority, const CertificateRequest& request,
                                                  absl::Time now);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_CERTIFICATES_H_
