#include "client/tls_probe.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace gradgate::client {
namespace {

constexpr unsigned char kAlpn[] = {2, 'h', '2'};

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Free<SSL_free>>;
using Addresses = std::unique_ptr<addrinfo, Free<freeaddrinfo>>;

// OpenSSL writes to sockets as to files: one whose other end is gone would end the process.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &former_);
  }
  ~NoPipeSignal() {
    const timespec now = {};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &former_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_, former_;
  bool was_pending_;
};

struct HostPort {
  std::string host, port;
};

HostPort Split(absl::string_view address) {
  const size_t colon = address.rfind(':');
  absl::string_view host = address.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return {std::string(host), std::string(address.substr(colon + 1))};
}

// A blocking socket whose every wait ends after `timeout`; -1 if nobody is there.
int Connect(const HostPort& to, absl::Duration timeout) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found) != 0) return -1;
  const Addresses addresses(found);
  const timeval limit = absl::ToTimeval(timeout);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0) continue;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // of connect as well
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0) return fd;
    close(fd);
  }
  return -1;
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// Names of `certificate` that a client may connect to.
std::string NamesOf(X509* certificate) {
  std::string names;
  auto* all = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all, i);
    const ASN1_STRING* text = name->d.ia5;
    const unsigned char* data = ASN1_STRING_get0_data(text);
    std::string shown;
    if (name->type == GEN_DNS) shown.assign(data, data + ASN1_STRING_length(text));
    char buffer[INET6_ADDRSTRLEN] = {};
    if (name->type == GEN_IPADD &&
        inet_ntop(ASN1_STRING_length(text) == 4 ? AF_INET : AF_INET6, data, buffer, sizeof(buffer))) {
      shown = buffer;
    }
    if (!shown.empty()) absl::StrAppend(&names, names.empty() ? "" : ", ", shown);
  }
  GENERAL_NAMES_free(all);
  return names.empty() ? "none" : names;
}

// What is wrong with the certificate that the other side showed.
std::optional<std::string> CertificateFault(SSL* session, const HostPort& to, const TlsFiles& tls) {
  const long result = SSL_get_verify_result(session);
  X509* certificate = SSL_get0_peer_certificate(session);
  switch (result) {
    case X509_V_OK:
      return std::nullopt;
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "its certificate has expired, or this machine's clock is wrong; make it a new one with `gradgatectl certs`";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "its certificate is not valid yet: the clocks of the two machines differ; set them";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return absl::StrCat("its certificate is for other names than ", to.host, ": ", NamesOf(certificate),
                          "; connect by one of these, or make one with `gradgatectl certs DIR --node NAME=", to.host, "`");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      return absl::StrCat("its certificate was signed by another authority than that of ", tls.ca_file,
                          "; give the CA file that its node's certificate was made with");
    default:
      return absl::StrCat("its certificate is refused: ", X509_verify_cert_error_string(result),
                          "; make it a new one with `gradgatectl certs`");
  }
}

// What the other side says of our certificate, after the handshake: that is when it looks at it.
std::optional<std::string> ClientFault(SSL* session, const TlsFiles& tls) {
  ERR_clear_error();
  char byte;
  const int got = SSL_read(session, &byte, 1);
  if (got > 0 || SSL_get_error(session, got) == SSL_ERROR_WANT_READ) return std::nullopt;
  const int reason = ERR_GET_REASON(ERR_peek_error());
  if (tls.cert_file.empty())
    return "it asks callers for a certificate; give the certificate file and its key file (--cert, --key)";
  if (reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED) {
    return absl::StrCat("it says that ", tls.cert_file, " has expired; make a new one with `gradgatectl certs`");
  }
  return absl::StrCat(
      "it refuses the certificate ", tls.cert_file,
      ": that has expired, or was signed by another authority than its --tls_client_ca; give one that `gradgatectl "
      "certs` made with the same authority");
}

Context MakeContext(const TlsFiles& tls) {
  Context context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return nullptr;
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);  // go on, and look at the result
  if (!tls.ca_file.empty() && SSL_CTX_load_verify_locations(context.get(), tls.ca_file.c_str(), nullptr) != 1) return nullptr;
  if (tls.cert_file.empty()) return context;
  const bool loaded = SSL_CTX_use_certificate_chain_file(context.get(), tls.cert_file.c_str()) == 1 &&
                      SSL_CTX_use_PrivateKey_file(context.get(), tls.key_file.c_str(), SSL_FILETYPE_PEM) == 1;
  return loaded ? std::move(context) : nullptr;
}

}  // namespace

std::optional<std::string> ProbeTls(const Target& target, const TlsFiles& tls, absl::Duration timeout) {
  ERR_clear_error();
  const NoPipeSignal no_signal;
  const absl::Cleanup forget = [] { ERR_clear_error(); };
  const Context context = MakeContext(tls);
  if (context == nullptr) {
    const char* reason = ERR_reason_error_string(ERR_peek_error());
    return absl::StrCat("the TLS files cannot be used: ", reason == nullptr ? "out of memory" : reason,
                        "; give a certificate with its own key, and the CA file");
  }
  const HostPort to = Split(target.address);
  const int fd = Connect(to, timeout);
  if (fd < 0) return std::nullopt;
  const absl::Cleanup close_fd = [fd] { close(fd); };
  const Session session(SSL_new(context.get()));
  if (session == nullptr || SSL_set_fd(session.get(), fd) != 1) return std::nullopt;
  SSL_set_alpn_protos(session.get(), kAlpn, sizeof(kAlpn));
  if (IsAddress(to.host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session.get()), to.host.c_str());
  } else {
    SSL_set_tlsext_host_name(session.get(), to.host.c_str());
    SSL_set1_host(session.get(), to.host.c_str());
  }
  if (SSL_connect(session.get()) != 1) {
    const int reason = ERR_GET_REASON(ERR_peek_error());
    if (tls.empty()) return std::nullopt;  // and no TLS there either
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_PACKET_LENGTH_TOO_LONG) {
      return "it does not speak TLS; leave the TLS files out, or start gradgated there with --tls_cert, --tls_key and "
             "--tls_client_ca";
    }
    return std::nullopt;
  }
  if (tls.empty()) return "it speaks TLS; give the CA, certificate and key files (--ca, --cert, --key)";
  if (auto fault = CertificateFault(session.get(), to, tls); fault.has_value()) return fault;
  return ClientFault(session.get(), tls);
}

}  // namespace gradgate::client
