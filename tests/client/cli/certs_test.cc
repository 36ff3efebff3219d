// gradgatectl certs: what is made, what is kept, and what is refused. OpenSSL reads the certificates back.

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/cli/certificates.h"
#include "client/cli/certs_command.h"
#include "client/cli/certs_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CertsTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Make(const std::vector<std::string>& nodes, int days = 825) {
    return MakeCerts({directory_ / "certs", nodes, days}, now_);
  }
  std::string Error(const std::vector<std::string>& nodes) { return std::string(Make(nodes).status().message()); }
  std::string Read(const std::string& name) {
    std::ifstream file(directory_ / ("certs/" + name));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void Write(const std::string& name, const std::string& text) { std::ofstream(directory_ / ("certs/" + name)) << text; }
  X509* Load(const std::string& name) {
    const std::string text = Read(name);
    BIO* memory = BIO_new_mem_buf(text.data(), static_cast<int>(text.size()));
    X509* certificate = PEM_read_bio_X509(memory, nullptr, nullptr, nullptr);
    BIO_free(memory);
    EXPECT_NE(certificate, nullptr) << name;
    return certificate;
  }
  // 0: the authority vouches for it, for this purpose, at this time.
  int Verify(const std::string& name, int purpose, absl::Time when, const std::string& by = "ca.pem") {
    X509_STORE* trusted = X509_STORE_new();
    X509* authority = Load(by);
    X509* certificate = Load(name);
    X509_STORE_add_cert(trusted, authority);
    X509_STORE_CTX* context = X509_STORE_CTX_new();
    X509_STORE_CTX_init(context, trusted, certificate, nullptr);
    X509_STORE_CTX_set_purpose(context, purpose);
    X509_STORE_CTX_set_time(context, 0, absl::ToTimeT(when));
    const int error = X509_verify_cert(context) == 1 ? 0 : X509_STORE_CTX_get_error(context);
    X509_STORE_CTX_free(context);
    X509_free(certificate);
    X509_free(authority);
    X509_STORE_free(trusted);
    return error;
  }
  bool Names(const std::string& name, const std::string& host) {
    X509* certificate = Load(name);
    const bool names = X509_check_host(certificate, host.c_str(), host.size(), 0, nullptr) == 1 ||
                       X509_check_ip_asc(certificate, host.c_str(), 0) == 1;
    X509_free(certificate);
    return names;
  }

  std::vector<std::string> Uris(const std::string& name) {
    X509* certificate = Load(name);
    auto* names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
    std::vector<std::string> uris;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
      const GENERAL_NAME* one = sk_GENERAL_NAME_value(names, i);
      if (one->type != GEN_URI) continue;
      const ASN1_IA5STRING* uri = one->d.uniformResourceIdentifier;
      uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                        static_cast<size_t>(ASN1_STRING_length(uri)));
    }
    GENERAL_NAMES_free(names);
    X509_free(certificate);
    return uris;
  }

  testing::TempDir directory_;
  const absl::Time now_ = absl::Now();
};

TEST_F(CertsTest, NodesServeAndAskAndTheClientAsks) {
  ASSERT_TRUE(Make({"a=node-a.example,10.0.0.1,fd00::1", "b"}).ok());
  for (const char* node : {"a.pem", "b.pem"}) {
    EXPECT_EQ(Verify(node, X509_PURPOSE_SSL_SERVER, now_), 0);
    EXPECT_EQ(Verify(node, X509_PURPOSE_SSL_CLIENT, now_), 0);
  }
  EXPECT_EQ(Verify("client.pem", X509_PURPOSE_SSL_CLIENT, now_), 0);
  EXPECT_EQ(Verify("client.pem", X509_PURPOSE_SSL_SERVER, now_), X509_V_ERR_INVALID_PURPOSE);
  for (const char* host : {"node-a.example", "10.0.0.1", "fd00::1", "localhost", "127.0.0.1", "::1"})
    EXPECT_TRUE(Names("a.pem", host)) << host;
  for (const char* host : {"a", "b", "10.0.0.2"}) EXPECT_FALSE(Names("a.pem", host)) << host;
  EXPECT_TRUE(Names("b.pem", "b"));
}

TEST_F(CertsTest, TimesAllowForClocksThatDiffer) {
  ASSERT_TRUE(Make({"a"}, 30).ok());
  EXPECT_EQ(Verify("a.pem", X509_PURPOSE_SSL_SERVER, now_ - absl::Minutes(55)), 0);
  EXPECT_EQ(Verify("a.pem", X509_PURPOSE_SSL_SERVER, now_ - absl::Minutes(65)), X509_V_ERR_CERT_NOT_YET_VALID);
  EXPECT_EQ(Verify("a.pem", X509_PURPOSE_SSL_SERVER, now_ + absl::Hours(24 * 30 - 1)), 0);
  EXPECT_EQ(Verify("a.pem", X509_PURPOSE_SSL_SERVER, now_ + absl::Hours(24 * 30 + 1)), X509_V_ERR_CERT_HAS_EXPIRED);
}

TEST_F(CertsTest, KeysAreTheOwnersAlone) {
  ASSERT_TRUE(Make({"a"}).ok());
  for (const char* name : {"ca-key.pem", "a-key.pem", "client-key.pem", "operator-key.pem"}) {
    struct stat file;
    ASSERT_EQ(stat((directory_ / ("certs/" + std::string(name))).c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600u) << name;
    EXPECT_THAT(Read(name), HasSubstr("PRIVATE KEY"));
  }
}

TEST_F(CertsTest, CommandsHaveWholePathsAndTheNodesAddress) {
  const std::string certs = directory_ / "certs";
  const auto text = Make({"a=fd00::1", "b"});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text,
              AllOf(HasSubstr("gradgated --node_name=a --grpc_listen=0.0.0.0:9768 --advertise=[fd00::1]:9768 --tls_cert=" +
                              certs + "/a.pem --tls_key=" + certs + "/a-key.pem --tls_client_ca=" + certs + "/ca.pem --store="),
                    HasSubstr("gradgatectl --target=b:9768 --ca=" + certs + "/ca.pem --cert=" + certs +
                              "/client.pem --key=" + certs + "/client-key.pem jobs"),
                    HasSubstr("keep " + certs + "/ca-key.pem off the nodes")));
}

TEST_F(CertsTest, LaterNodesComeFromTheSameAuthority) {
  ASSERT_TRUE(Make({"a"}).ok());
  const std::string authority = Read("ca.pem"), client = Read("client-key.pem"), a = Read("a.pem");
  ASSERT_TRUE(Make({"b"}).ok());
  EXPECT_EQ(Read("ca.pem"), authority);
  EXPECT_EQ(Read("client-key.pem"), client);
  EXPECT_EQ(Verify("b.pem", X509_PURPOSE_SSL_SERVER, now_), 0);
  EXPECT_THAT(Error({"c", "a"}), HasSubstr("a.pem is there already and is not overwritten; remove it to renew a"));
  EXPECT_EQ(Read("a.pem"), a);
  EXPECT_EQ(Read("c.pem"), "") << "nothing of a command that is refused";
}

TEST_F(CertsTest, WrongNodesAreNamed) {
  EXPECT_THAT(Error({"a b"}), HasSubstr("--node \"a b\": the name must be"));
  EXPECT_THAT(Error({"../a"}), HasSubstr("the name must be"));
  EXPECT_THAT(Error({""}), HasSubstr("the name must be"));
  EXPECT_THAT(Error({std::string(65, 'a')}), HasSubstr("the name must be"));
  EXPECT_THAT(Error({"ca"}), HasSubstr("is taken by the file of the authority"));
  EXPECT_THAT(Error({"etcd"}), HasSubstr("is taken by the file of the authority, or of etcd"));
  EXPECT_THAT(Error({"operator"}), HasSubstr("is taken by the file of a client"));
  EXPECT_THAT(Error({"a", "a-key"}), HasSubstr("--node \"a-key\": a name may not end in -key"));
  EXPECT_THAT(Error({"a="}), HasSubstr("\"\" is no host name or address"));
  EXPECT_THAT(Error({"a=h:9768"}), HasSubstr("without a port"));
  EXPECT_THAT(Error({"a=h,DNS:evil"}), HasSubstr("\"DNS:evil\" is no host name"));
  EXPECT_THAT(Error({"a", "a"}), HasSubstr("--node a is given twice"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "certs"));
}

TEST_F(CertsTest, AuthorityThatCannotBeUsedIsTold) {
  ASSERT_TRUE(Make({"a"}).ok());
  const std::string key = Read("ca-key.pem"), certificate = Read("ca.pem");
  std::filesystem::remove(directory_ / "certs/ca-key.pem");
  EXPECT_THAT(Error({"b"}), AllOf(HasSubstr("ca-key.pem: No such file"), HasSubstr("needs ca.pem and ca-key.pem")));
  Write("ca-key.pem", Read("a-key.pem"));
  EXPECT_THAT(Error({"b"}), HasSubstr("the authority's key does not belong to its certificate"));
  Write("ca-key.pem", "nothing");
  EXPECT_THAT(Error({"b"}), HasSubstr("the authority's key is not PEM"));
  Write("ca-key.pem", Read("a-key.pem"));
  Write("ca.pem", Read("a.pem"));
  EXPECT_THAT(Error({"b"}), HasSubstr("may not sign others"));
  Write("ca.pem", "nothing");
  EXPECT_THAT(Error({"b"}), HasSubstr("the authority's certificate is not PEM"));
  Write("ca.pem", certificate);
  Write("ca-key.pem", key);
  const auto late = MakeCerts({directory_ / "certs", {"b"}, 30}, now_ + absl::Hours(24 * 366 * 11));
  EXPECT_THAT(std::string(late.status().message()),
              AllOf(HasSubstr("the authority ended on 20"), HasSubstr("is this machine's clock right?")));
  EXPECT_TRUE(Make({"b"}).ok());
}

TEST_F(CertsTest, CertificateDoesNotOutliveItsAuthority) {
  const auto authority = MakeAuthority("test", now_, absl::Hours(48));
  ASSERT_TRUE(authority.ok());
  const auto made = MakeCertificate(*authority, {"a", {"a"}, CertificateUse::kNode, absl::Hours(1000)}, now_);
  ASSERT_TRUE(made.ok()) << made.status();
  std::filesystem::create_directories(directory_ / "certs");
  Write("a.pem", made->certificate);
  X509* certificate = Load("a.pem");
  time_t end = absl::ToTimeT(now_ + absl::Hours(49));
  EXPECT_LT(X509_cmp_time(X509_get0_notAfter(certificate), &end), 0);
  X509_free(certificate);
}

TEST_F(CertsTest, RolesAreInTheCertificates) {
  ASSERT_TRUE(MakeCerts({directory_ / "certs", {"a"}, 30, {"ann=operator", "grafana", "bob=read"}}, now_).ok());
  const std::string domain = "spiffe://gradgate.local/gradgate/role/";
  EXPECT_THAT(Uris("a.pem"), ElementsAre(domain + "node/a"));
  EXPECT_THAT(Uris("client.pem"), ElementsAre(domain + "read/client"));
  EXPECT_THAT(Uris("operator.pem"), ElementsAre(domain + "operator/operator"));
  EXPECT_THAT(Uris("ann.pem"), ElementsAre(domain + "operator/ann"));
  EXPECT_THAT(Uris("grafana.pem"), ElementsAre(domain + "read/grafana"));
  EXPECT_THAT(Uris("bob.pem"), ElementsAre(domain + "read/bob"));
  EXPECT_EQ(Verify("ann.pem", X509_PURPOSE_SSL_CLIENT, now_), 0);
  EXPECT_EQ(Verify("ann.pem", X509_PURPOSE_SSL_SERVER, now_), X509_V_ERR_INVALID_PURPOSE);
}

TEST_F(CertsTest, ClientsAreMadeAloneAndTheirCommandsShown) {
  ASSERT_TRUE(Make({"a"}).ok());
  const auto text = MakeCerts({directory_ / "certs", {}, 30, {"ann=operator"}}, now_);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("# ann=operator\ngradgatectl --target=HOST:9768"), HasSubstr("/ann.pem"),
                           Not(HasSubstr("gradgated --node_name"))));
  EXPECT_THAT(std::string(MakeCerts({directory_ / "certs", {}, 30, {"ann"}}, now_).status().message()),
              HasSubstr("ann.pem is there already"));
}

TEST_F(CertsTest, WrongClientsAreNamed) {
  const auto error = [this](const std::vector<std::string>& clients) {
    return std::string(MakeCerts({directory_ / "certs", {}, 30, clients}, now_).status().message());
  };
  EXPECT_THAT(error({"ann=root"}), HasSubstr("--client \"ann=root\": \"root\" is no role; give read"));
  EXPECT_THAT(error({"ann="}), HasSubstr("\"\" is no role"));
  EXPECT_THAT(error({"../ann"}), HasSubstr("the name must be"));
  EXPECT_THAT(error({"ann-key"}), HasSubstr("may not end in -key"));
  EXPECT_THAT(error({"ann,URI:x"}), HasSubstr("the name must be"));
  EXPECT_THAT(error({"ann", "ann=operator"}), HasSubstr("--client ann is given twice"));
  EXPECT_THAT(error({}), HasSubstr("nothing to make; give --node"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "certs"));
}

TEST_F(CertsTest, EtcdHasAnAuthorityOfItsOwn) {
  const auto text = MakeCerts({directory_ / "certs", {"a"}, 30, {}, {"10.0.0.9", "etcd.example"}}, now_);
  ASSERT_TRUE(text.ok()) << text.status();
  const std::string certs = directory_ / "certs";
  EXPECT_THAT(*text, AllOf(HasSubstr("etcd --cert-file=" + certs + "/etcd.pem"), HasSubstr("--client-cert-auth"),
                           HasSubstr("--trusted-ca-file=" + certs + "/etcd-ca.pem"),
                           HasSubstr("--store=etcds://10.0.0.9:2379,etcd.example:2379 --store_ca=" + certs + "/etcd-ca.pem"),
                           HasSubstr("--store_cert=" + certs + "/etcd-client.pem")));
  EXPECT_EQ(Verify("etcd.pem", X509_PURPOSE_SSL_SERVER, now_, "etcd-ca.pem"), 0);
  EXPECT_EQ(Verify("etcd-client.pem", X509_PURPOSE_SSL_CLIENT, now_, "etcd-ca.pem"), 0);
  EXPECT_TRUE(Names("etcd.pem", "etcd.example"));
  for (const char* name : {"client.pem", "operator.pem", "a.pem"}) {
    EXPECT_NE(Verify(name, X509_PURPOSE_SSL_CLIENT, now_, "etcd-ca.pem"), 0) << name << " does not get past the daemons";
  }
  EXPECT_THAT(std::string(MakeCerts({directory_ / "certs", {}, 30, {}, {"x"}}, now_).status().message()),
              HasSubstr("etcd.pem is there already"));
}

TEST_F(CertsTest, WithoutASetForEtcdItsTlsIsMentioned) {
  EXPECT_THAT(*Make({"a"}),
              AllOf(HasSubstr("etcd without TLS lets whoever reaches it set any policy"), HasSubstr("--store_ca")));
}

TEST_F(CertsTest, FailureLeavesNothing) {
  ASSERT_TRUE(Make({"a"}).ok());
  std::filesystem::remove(directory_ / "certs/operator.pem");
  std::filesystem::remove(directory_ / "certs/operator-key.pem");
  ASSERT_EQ(mkdir((directory_ / "certs/operator-key.pem").c_str(), 0700), 0);  // looks like one that is there
  std::filesystem::create_symlink("/proc/none", directory_ / "certs/b.pem");
  EXPECT_THAT(Error({"b"}), HasSubstr("b.pem is there already"));
  EXPECT_EQ(Read("b-key.pem"), "");
  // Found out while it writes, since the name is free.
  const CertsDirectory certs(directory_ / "certs");
  const std::string long_name(300, 'x');
  EXPECT_FALSE(certs.Write({{"c", {"certificate", "key"}}, {long_name, {"certificate", "key"}}}).ok());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "certs/c.pem"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "certs/c-key.pem"));
}

TEST_F(CertsTest, DirectoryThatCannotBeMadeIsNamed) {
  EXPECT_THAT(std::string(MakeCerts({"/proc/none", {"a"}, 30}, now_).status().message()),
              HasSubstr("cannot make directory /proc/none"));
}

}  // namespace
}  // namespace gradgate::cli
