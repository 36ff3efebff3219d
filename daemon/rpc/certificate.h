// Certificates that the daemon is given: whether they fit, and until when they are valid.
//
// Thread class: any thread. Reading a file blocks for the disk.

#ifndef GRADGATE_DAEMON_RPC_CERTIFICATE_H_
#define GRADGATE_DAEMON_RPC_CERTIFICATE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gradgate {

struct CertificateLife {
  absl::Time begin;
  absl::Time end;
};

// Of the file's first to end: a chain is worth no more than that. INVALID_ARGUMENT: it has no certificate, or cannot be read.
absl::StatusOr<CertificateLife> ReadCertificateLife(const std::string& pem_path);

// What to tell people of it: nothing if it lasts for 30 days more, or for a third of its life. `flag`: "tls_cert", say; one
// that ends in "ca" is an authority's.
std::string CertificateWarning(absl::string_view flag, const std::string& path, const CertificateLife& life, absl::Time now);

// INVALID_ARGUMENT: there is no certificate in the PEM text, or no key that can be read without a password, or that of another
// certificate. Names the flags, nothing of the texts.
absl::Status CheckCertificateAndKey(const std::string& certificate_pem, const std::string& key_pem);

// INVALID_ARGUMENT: there is no certificate in the PEM text of --tls_client_ca.
absl::Status CheckAuthority(const std::string& pem);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_CERTIFICATE_H_
