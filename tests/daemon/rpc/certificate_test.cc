// Certificates that do not fit, and that end.

#include "daemon/rpc/certificate.h"

#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "client/cli/certificates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CertificateTest : public ::testing::Test {
 protected:
  cli::CertificateAndKey Make(absl::Duration lifetime) {
    return *cli::MakeCertificate(authority_, {"a", {"a"}, cli::CertificateUse::kNode, lifetime}, now_);
  }
  std::string Write(const std::string& text) {
    std::ofstream(directory_ / "file.pem") << text;
    return directory_ / "file.pem";
  }

  const absl::Time now_ = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()));
  const cli::CertificateAndKey authority_ = *cli::MakeAuthority("test", now_, absl::Hours(1000));
  testing::TempDir directory_;
};

TEST_F(CertificateTest, EndsWhenTheFirstOfAChainEnds) {
  const std::string longer = Make(absl::Hours(100)).certificate, shorter = Make(absl::Hours(10)).certificate;
  EXPECT_EQ(ReadCertificateLife(Write(longer))->end, now_ + absl::Hours(100));
  EXPECT_EQ(ReadCertificateLife(Write(longer + shorter))->end, now_ + absl::Hours(10));
}

TEST_F(CertificateTest, FileWithoutOneIsTold) {
  for (const std::string& path : {Write("nothing"), directory_ / "none", directory_.path()}) {
    EXPECT_THAT(std::string(ReadCertificateLife(path).status().message()), HasSubstr("cannot read a certificate from " + path));
  }
}

TEST_F(CertificateTest, WarningComesAMonthBefore) {
  const absl::Time end = absl::FromUnixSeconds(1'700'000'000);
  const CertificateLife year{end - absl::Hours(24 * 365), end}, day{end - absl::Hours(24), end};
  EXPECT_EQ(CertificateWarning("tls_cert", "/c", year, end - absl::Hours(24 * 30 + 1)), "");
  EXPECT_EQ(CertificateWarning("tls_cert", "/c", day, end - absl::Hours(9)), "") << "such are short and renewed";
  EXPECT_NE(CertificateWarning("tls_cert", "/c", day, end - absl::Hours(7)), "");
  EXPECT_EQ(CertificateWarning("tls_cert", "/c", year, end - absl::Hours(24 * 29)),
            "the certificate of --tls_cert, /c, ends on 2023-11-14 22:13 UTC; put a new one there and restart");
  EXPECT_THAT(CertificateWarning("tls_cert", "/c", year, end),
              AllOf(HasSubstr("ended on 2023-11-14"), HasSubstr("whoever checks it refuses this daemon")));
  EXPECT_THAT(CertificateWarning("tls_client_ca", "/c", year, end), HasSubstr("whoever shows a certificate of it is refused"));
}

TEST_F(CertificateTest, WhatDoesNotFitIsNamedAndNotShown) {
  const cli::CertificateAndKey pair = Make(absl::Hours(1)), other = Make(absl::Hours(1));
  EXPECT_TRUE(CheckCertificateAndKey(pair.certificate, pair.key).ok());
  EXPECT_TRUE(CheckAuthority(authority_.certificate).ok());
  const auto message = [](const absl::Status& status) { return std::string(status.message()); };
  EXPECT_THAT(message(CheckCertificateAndKey("x", pair.key)), HasSubstr("--tls_cert has no certificate"));
  EXPECT_THAT(message(CheckCertificateAndKey(pair.key, pair.key)), HasSubstr("--tls_cert has no certificate"));
  EXPECT_THAT(message(CheckCertificateAndKey(pair.certificate, "x")), HasSubstr("--tls_key has no private key"));
  EXPECT_THAT(message(CheckCertificateAndKey(pair.certificate, other.key)), HasSubstr("is not that of the certificate"));
  EXPECT_THAT(message(CheckAuthority(pair.key)), HasSubstr("--tls_client_ca has no certificate"));
  EXPECT_EQ(message(CheckCertificateAndKey(pair.certificate, other.key)).find("BEGIN"), std::string::npos);
}

}  // namespace
}  // namespace gradgate
