#include "daemon/rpc/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gradgate {
namespace {

constexpr absl::Duration kSoon = absl::Hours(24 * 30);

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509* p) const { X509_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// Else OpenSSL would ask the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

Owned<X509> FirstCertificate(const std::string& pem) {
  const Owned<BIO> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Owned<X509> certificate(PEM_read_bio_X509(text.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  return certificate;
}

// A time that is none has passed.
absl::Time ToTime(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<CertificateLife> ReadCertificateLife(const std::string& pem_path) {
  CertificateLife first{absl::InfiniteFuture(), absl::InfiniteFuture()};
  const Owned<BIO> file(BIO_new_file(pem_path.c_str(), "r"));
  while (file) {
    const Owned<X509> certificate(PEM_read_bio_X509(file.get(), nullptr, NoPassword, nullptr));
    if (!certificate) break;
    const CertificateLife life{ToTime(X509_get0_notBefore(certificate.get())), ToTime(X509_get0_notAfter(certificate.get()))};
    if (life.end < first.end) first = life;
  }
  ERR_clear_error();
  if (first.end == absl::InfiniteFuture()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read a certificate from ", pem_path));
  }
  return first;
}

std::string CertificateWarning(absl::string_view flag, const std::string& path, const CertificateLife& life, absl::Time now) {
  if (life.end - now > std::min(kSoon, (life.end - life.begin) / 3)) return "";
  const std::string of = absl::StrCat("the certificate of --", flag, ", ", path);
  const std::string date = absl::FormatTime("%Y-%m-%d %H:%M UTC", life.end, absl::UTCTimeZone());
  if (life.end > now) return absl::StrCat(of, ", ends on ", date, "; put a new one there and restart");
  return absl::StrCat(of, ", ended on ", date,
                      absl::EndsWith(flag, "ca") ? ": whoever shows a certificate of it is refused. "
                                                 : ": whoever checks it refuses this daemon. ",
                      "Put a new one there and restart, or set this machine's clock");
}

absl::Status CheckCertificateAndKey(const std::string& certificate_pem, const std::string& key_pem) {
  const Owned<X509> certificate = FirstCertificate(certificate_pem);
  if (!certificate) return absl::InvalidArgumentError("the file of --tls_cert has no certificate; give it as PEM");
  const Owned<BIO> text(BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size())));
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(text.get(), nullptr, NoPassword, nullptr));
  const bool fits = key && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!key) {
    return absl::InvalidArgumentError(
        "the file of --tls_key has no private key, or one with a password; give it as PEM, without a password");
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError("the key of --tls_key is not that of the certificate of --tls_cert");
}

absl::Status CheckAuthority(const std::string& pem) {
  if (FirstCertificate(pem)) return absl::OkStatus();
  return absl::InvalidArgumentError("the file of --tls_client_ca has no certificate; give those of authorities as PEM");
}

}  // namespace gradgate
