#include "client/cli/certificates.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gradgate::cli {
namespace {

constexpr absl::Duration kClockSkew = absl::Hours(1);
constexpr int kSerialBytes = 16;

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(ASN1_TIME* p) const { ASN1_TIME_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

absl::Status OpenSslError(absl::string_view what) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("cannot ", what, ": ", text));
}

bool IsAddress(const std::string& host) {
  unsigned char address[16];
  return inet_pton(AF_INET, host.c_str(), address) == 1 || inet_pton(AF_INET6, host.c_str(), address) == 1;
}

std::string AlternativeNames(const CertificateRequest& request) {
  std::vector<std::string> names;
  for (const std::string& host : request.hosts) names.push_back(absl::StrCat(IsAddress(host) ? "IP:" : "DNS:", host));
  if (!request.uri.empty()) names.push_back(absl::StrCat("URI:", request.uri));
  return absl::StrJoin(names, ",");
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetSerial(X509* certificate) {
  unsigned char bytes[kSerialBytes];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, and as long as the rest
  Owned<BIGNUM> number(BN_bin2bn(bytes, sizeof(bytes), nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool SetTimes(X509* certificate, absl::Time from, absl::Time to) {
  return ASN1_TIME_set(X509_getm_notBefore(certificate), absl::ToTimeT(from)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(to)) != nullptr;
}

bool SetName(X509* certificate, const std::string& name) {
  X509_NAME* subject = X509_get_subject_name(certificate);
  return X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>("gradgate"), -1, -1,
                                    0) == 1 &&
         X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                    0) == 1;
}

template <class Write>
std::string ToPem(Write write) {
  Owned<BIO> memory(BIO_new(BIO_s_mem()));
  if (!memory || write(memory.get()) != 1) return "";
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

absl::StatusOr<CertificateAndKey> Written(X509* certificate, EVP_PKEY* key) {
  CertificateAndKey pair;
  pair.certificate = ToPem([&](BIO* out) { return PEM_write_bio_X509(out, certificate); });
  pair.key = ToPem([&](BIO* out) { return PEM_write_bio_PKCS8PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr); });
  if (pair.certificate.empty() || pair.key.empty()) return OpenSslError("write a certificate");
  return pair;
}

// A certificate of `name` without extensions and signature, and its new key.
struct Draft {
  Owned<X509> certificate{X509_new()};
  Owned<EVP_PKEY> key{EVP_EC_gen("P-256")};
};
absl::StatusOr<Draft> MakeDraft(const std::string& name, absl::Time from, absl::Time to) {
  Draft draft;
  X509* certificate = draft.certificate.get();
  if (certificate == nullptr || !draft.key) return OpenSslError("make a key");
  const bool done = X509_set_version(certificate, X509_VERSION_3) == 1 && SetSerial(certificate) &&
                    SetTimes(certificate, from, to) && SetName(certificate, name) &&
                    X509_set_pubkey(certificate, draft.key.get()) == 1;
  if (!done) return OpenSslError(absl::StrCat("make a certificate for ", name));
  return draft;
}

struct Authority {
  Owned<X509> certificate;
  Owned<EVP_PKEY> key;
  absl::Time end;
};
absl::StatusOr<Authority> ReadAuthority(const CertificateAndKey& pem, absl::Time now) {
  Owned<BIO> certificate_text(BIO_new_mem_buf(pem.certificate.data(), static_cast<int>(pem.certificate.size())));
  Owned<BIO> key_text(BIO_new_mem_buf(pem.key.data(), static_cast<int>(pem.key.size())));
  Authority authority;
  authority.certificate.reset(PEM_read_bio_X509(certificate_text.get(), nullptr, nullptr, nullptr));
  char no_password[] = "";  // else OpenSSL would ask the terminal for one
  authority.key.reset(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, no_password));
  ERR_clear_error();
  if (!authority.certificate) return absl::InvalidArgumentError("the authority's certificate is not PEM");
  if (!authority.key) return absl::InvalidArgumentError("the authority's key is not PEM, or has a password");
  if (X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the authority's key does not belong to its certificate");
  }
  if (X509_check_ca(authority.certificate.get()) == 0) {
    return absl::InvalidArgumentError("the authority's certificate may not sign others");
  }
  tm end{};
  ASN1_TIME_to_tm(X509_get0_notAfter(authority.certificate.get()), &end);
  authority.end = absl::FromTM(end, absl::UTCTimeZone());
  if (authority.end <= now) {
    return absl::InvalidArgumentError(absl::StrCat("the authority ended on ",
                                                   absl::FormatTime("%Y-%m-%d", authority.end, absl::UTCTimeZone()),
                                                   "; is this machine's clock right?"));
  }
  return authority;
}

}  // namespace

absl::StatusOr<CertificateAndKey> MakeAuthority(const std::string& name, absl::Time now, absl::Duration lifetime) {
  absl::StatusOr<Draft> draft = MakeDraft(name, now - kClockSkew, now + lifetime);
  if (!draft.ok()) return draft.status();
  X509* certificate = draft->certificate.get();
  const bool done = X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) == 1 &&
                    AddExtension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") &&
                    AddExtension(certificate, certificate, NID_subject_key_identifier, "hash") &&
                    X509_sign(certificate, draft->key.get(), EVP_sha256()) != 0;
  if (!done) return OpenSslError("make an authority");
  return Written(certificate, draft->key.get());
}

absl::StatusOr<CertificateAndKey> MakeCertificate(const CertificateAndKey& authority_pem, const CertificateRequest& request,
                                                  absl::Time now) {
  absl::StatusOr<Authority> authority = ReadAuthority(authority_pem, now);
  if (!authority.ok()) return authority.status();
  absl::StatusOr<Draft> draft = MakeDraft(request.name, now - kClockSkew, std::min(now + request.lifetime, authority->end));
  if (!draft.ok()) return draft.status();
  X509* certificate = draft->certificate.get();
  X509* issuer = authority->certificate.get();
  const bool is_node = request.use == CertificateUse::kNode;
  const bool done = X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
                    AddExtension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
                    AddExtension(certificate, issuer, NID_key_usage, "critical,digitalSignature") &&
                    AddExtension(certificate, issuer, NID_ext_key_usage, is_node ? "serverAuth,clientAuth" : "clientAuth") &&
                    AddExtension(certificate, issuer, NID_subject_key_identifier, "hash") &&
                    AddExtension(certificate, issuer, NID_authority_key_identifier, "keyid") &&
                    ((request.hosts.empty() && request.uri.empty()) ||
                     AddExtension(certificate, issuer, NID_subject_alt_name, AlternativeNames(request))) &&
                    X509_sign(certificate, authority->key.get(), EVP_sha256()) != 0;
  if (!done) return OpenSslError(absl::StrCat("make a certificate for ", request.name));
  return Written(certificate, draft->key.get());
}

}  // namespace gradgate::cli
