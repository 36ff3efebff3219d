// A TLS port that cannot be talked to: what really is the matter, and which status that is.

#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/certificates.h"
#include "client/sync_stats_client.h"
#include "gmock/gmock.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"

namespace gradgate::client {
namespace {

using cli::CertificateAndKey;
using cli::CertificateUse;
using ::testing::HasSubstr;

constexpr absl::Duration kDay = absl::Hours(24);

class Tls : public ::testing::Test {
 protected:
  CertificateAndKey Made(const CertificateAndKey& authority, const std::vector<std::string>& hosts, CertificateUse use,
                         absl::Time now) {
    return cli::MakeCertificate(authority, {"one", hosts, use, kDay}, now).value();
  }
  static CertificateAndKey Authority() { return cli::MakeAuthority("authority", absl::Now() - 20 * kDay, 100 * kDay).value(); }

  std::string File(const std::string& name, const std::string& text) {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  void Serve(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  void ServeTls(const CertificateAndKey& shown) {
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = ca_.certificate;
    options.pem_key_cert_pairs.push_back({shown.key, shown.certificate});
    Serve(grpc::SslServerCredentials(options));
  }

  TlsFiles Files(const CertificateAndKey& authority, const CertificateAndKey& own) {
    return {File("ca.pem", authority.certificate), File("own.pem", own.certificate), File("own-key.pem", own.key)};
  }

  absl::Status Ask(const TlsFiles& tls) {
    ClientOptions options;
    options.target = absl::StrCat("127.0.0.1:", port_);
    options.tls = tls;
    const auto client = SyncStatsClient::Create(options);
    return client.ok() ? (*client)->ListJobs().status() : client.status();
  }

  void ExpectFault(const TlsFiles& tls, const std::string& what) {
    const absl::Status status = Ask(tls);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("something listens at 127.0.0.1:", port_, ", but ", what)));
  }

  const CertificateAndKey ca_ = Authority(), other_ca_ = Authority();
  const CertificateAndKey node_ = Made(ca_, {"127.0.0.1"}, CertificateUse::kNode, absl::Now());
  const CertificateAndKey own_ = Made(ca_, {}, CertificateUse::kClient, absl::Now());

  v1::SyncStatsService::Service service_;  // knows no call
  gradgate::testing::TempDirectory directory_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

TEST_F(Tls, WhereAllIsWellTheServiceItselfAnswers) {
  ServeTls(node_);
  EXPECT_EQ(Ask(Files(ca_, own_)).code(), absl::StatusCode::kUnimplemented);
}

TEST_F(Tls, AnotherAuthority) {
  ServeTls(node_);
  ExpectFault(Files(other_ca_, own_), absl::StrCat("its certificate was signed by another authority than that of ",
                                                   directory_.path(), "/ca.pem; give the CA file"));
}

TEST_F(Tls, ACertificateThatHasExpiredOrIsNotYetValid) {
  ServeTls(Made(ca_, {"127.0.0.1"}, CertificateUse::kNode, absl::Now() - 3 * kDay));
  ExpectFault(Files(ca_, own_), "its certificate has expired, or this machine's clock is wrong; make it a new one");
  server_.reset();
  ServeTls(Made(ca_, {"127.0.0.1"}, CertificateUse::kNode, absl::Now() + 3 * kDay));
  ExpectFault(Files(ca_, own_), "its certificate is not valid yet: the clocks");
}

TEST_F(Tls, ACertificateForOtherNames) {
  ServeTls(Made(ca_, {"node2", "10.0.0.2", "::1"}, CertificateUse::kNode, absl::Now()));
  ExpectFault(Files(ca_, own_),
              "its certificate is for other names than 127.0.0.1: node2, 10.0.0.2, ::1; connect by one of these");
}

TEST_F(Tls, NoCertificateOfTheClientOrOneThatIsRefused) {
  ServeTls(node_);
  ExpectFault({File("ca.pem", ca_.certificate), "", ""}, "it asks callers for a certificate; give the certificate file");
  ExpectFault(Files(ca_, Made(other_ca_, {}, CertificateUse::kClient, absl::Now())),
              absl::StrCat("it refuses the certificate ", directory_.path(), "/own.pem"));
}

TEST_F(Tls, AKeyOfAnotherCertificate) {
  ServeTls(node_);
  ExpectFault({File("ca.pem", ca_.certificate), File("own.pem", own_.certificate), File("own-key.pem", node_.key)},
              "the TLS files cannot be used: ");
}

TEST_F(Tls, PlaintextOnEitherSide) {
  ServeTls(node_);
  ExpectFault({}, "it speaks TLS; give the CA, certificate and key files");
  server_.reset();
  Serve(grpc::InsecureServerCredentials());
  ExpectFault(Files(ca_, own_), "it does not speak TLS; leave the TLS files out");
  EXPECT_EQ(Ask({}).code(), absl::StatusCode::kUnimplemented);
}

TEST_F(Tls, NobodyThereIsNoFaultOfTls) {
  ServeTls(node_);
  server_.reset();
  const absl::Status status = Ask(Files(ca_, own_));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), absl::StrCat("no gradgated at 127.0.0.1:", port_,
                                           ": Connection refused; start one with `gradgated` that listens there"));
}

}  // namespace
}  // namespace gradgate::client
