// Users, passwords, tokens and TLS of a real etcd.

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/cli/certificates.h"
#include "daemon/store/etcd/etcd_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/await.h"
#include "tests/daemon/store/etcd_server.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using testing::Await;
using testing::EtcdServer;
using ::testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

std::unique_ptr<Store> Open(const EtcdOptions& options) {
  auto store = OpenEtcdStore(options);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

bool AwaitReachable(const Store& store) {
  return Await([&] { return store.Health().reachable; });
}
bool AwaitTrouble(const Store& store, const std::string& text) {
  return Await([&] { return store.Health().trouble.find(text) != std::string::npos; });
}

class EtcdAuthTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GG_REQUIRE_ETCD();
    server_ = std::make_unique<EtcdServer>();
    server_->Ctl({"user", "add", "root:secret"});
    server_->Ctl({"user", "add", "daemon:password"});
    server_->Ctl({"user", "add", "reader:password"});
    server_->Ctl({"role", "add", "writes"});
    server_->Ctl({"role", "add", "reads"});
    server_->Ctl({"role", "grant-permission", "writes", "--prefix=true", "readwrite", "/gradgate/v1/"});
    server_->Ctl({"role", "grant-permission", "reads", "--prefix=true", "read", "/gradgate/v1/"});
    server_->Ctl({"user", "grant-role", "root", "root"});
    server_->Ctl({"user", "grant-role", "daemon", "writes"});
    server_->Ctl({"user", "grant-role", "reader", "reads"});
    server_->Ctl({"auth", "enable"});
  }

  EtcdOptions As(const std::string& user, const std::string& password) {
    EtcdOptions options = server_->Options();
    options.user = user;
    options.password = password;
    return options;
  }

  std::unique_ptr<EtcdServer> server_;
};

TEST_F(EtcdAuthTest, UserWithItsPasswordReadsWritesAndAnnounces) {
  const auto store = Open(As("daemon", "password"));
  ASSERT_TRUE(AwaitReachable(*store)) << store->Health().trouble;
  EXPECT_TRUE(store->Put("policies/a", "1", 0, Soon()).ok());
  store->Announce("nodes/n", "1");
  EXPECT_TRUE(Await([&] { return store->AnnounceStatus().ok(); })) << store->AnnounceStatus();
  EXPECT_TRUE(store->Delete("policies/a", Soon()).ok());
}

TEST_F(EtcdAuthTest, LostTokenIsRenewed) {
  const auto store = Open(As("daemon", "password"));
  ASSERT_TRUE(AwaitReachable(*store)) << store->Health().trouble;
  server_->Kill();
  ASSERT_TRUE(server_->Start()) << server_->Log();  // it knows none of the tokens that it gave
  EXPECT_TRUE(store->Put("policies/a", "1", 0, Soon()).ok());
  EXPECT_TRUE(AwaitReachable(*store)) << store->Health().trouble;
  server_->Ctl({"--user=root:secret", "user", "add", "another:password"});  // older tokens are refused from now on
  EXPECT_TRUE(store->Put("policies/b", "1", 0, Soon()).ok());
}

TEST_F(EtcdAuthTest, WrongPasswordAndNoUserAreToldWithARemedy) {
  const auto wrong = Open(As("daemon", "wrong"));
  EXPECT_TRUE(AwaitTrouble(*wrong, "check --store_user and --store_password_file")) << wrong->Health().trouble;
  EXPECT_TRUE(absl::IsPermissionDenied(wrong->Put("policies/a", "1", 0, Soon()).status()));
  const auto nobody = Open(server_->Options());
  EXPECT_TRUE(AwaitTrouble(*nobody, "it asks for a user")) << nobody->Health().trouble;
}

TEST_F(EtcdAuthTest, UserWithoutRightsIsTold) {
  const auto store = Open(As("reader", "password"));
  ASSERT_TRUE(AwaitReachable(*store)) << store->Health().trouble;
  const auto refused = store->Put("policies/a", "1", 0, Soon());
  EXPECT_TRUE(absl::IsPermissionDenied(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("grant the user read and write on the prefix"));
  store->Announce("nodes/n", "1");
  EXPECT_TRUE(Await([&] { return absl::IsPermissionDenied(store->AnnounceStatus()); })) << store->AnnounceStatus();
  EXPECT_TRUE(store->Health().reachable) << "it reads all the same";
  EXPECT_THAT(store->Health().warning, HasSubstr("permission denied"));
  server_->Ctl({"--user=root:secret", "user", "grant-role", "reader", "writes"});
  EXPECT_TRUE(Await([&] { return store->AnnounceStatus().ok(); })) << "it is tried again: " << store->AnnounceStatus();
}

TEST_F(EtcdAuthTest, UserIsNoTroubleWhereUsersAreOff) {
  const auto store = Open(As("daemon", "password"));
  ASSERT_TRUE(AwaitReachable(*store));
  server_->Ctl({"--user=root:secret", "auth", "disable"});
  EXPECT_TRUE(store->Put("policies/a", "1", 0, Soon()).ok());
  const auto later = Open(As("daemon", "password"));
  ASSERT_TRUE(AwaitReachable(*later)) << later->Health().trouble;
  EXPECT_TRUE(later->Put("policies/a", "2", std::nullopt, Soon()).ok());
  server_->Ctl({"auth", "enable"});
  EXPECT_TRUE(later->Put("policies/a", "3", std::nullopt, Soon()).ok());
}

class EtcdTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GG_REQUIRE_ETCD();
    const absl::Time now = absl::Now();
    const auto authority = cli::MakeAuthority("test", now, absl::Hours(1));
    const auto other = cli::MakeAuthority("other", now, absl::Hours(1));
    ASSERT_TRUE(authority.ok() && other.ok());
    Write("ca", *authority);
    Write("other-ca", *other);
    Make(*authority, "server", {"127.0.0.1", "localhost"}, cli::CertificateUse::kNode, now);
    Make(*authority, "stranger", {"elsewhere.example"}, cli::CertificateUse::kNode, now);
    Make(*authority, "client", {}, cli::CertificateUse::kClient, now);
    Make(*other, "other-client", {}, cli::CertificateUse::kClient, now);
  }

  void Make(const cli::CertificateAndKey& authority, const std::string& name, const std::vector<std::string>& hosts,
            cli::CertificateUse use, absl::Time now) {
    const auto made = cli::MakeCertificate(authority, {name, hosts, use, absl::Hours(1)}, now);
    ASSERT_TRUE(made.ok()) << made.status();
    Write(name, *made);
  }
  void Write(const std::string& name, const cli::CertificateAndKey& pair) {
    std::ofstream(directory_ / (name + ".pem")) << pair.certificate;
    std::ofstream(directory_ / (name + "-key.pem")) << pair.key;
  }
  EtcdServer Serve(const std::string& name) {
    return EtcdServer("https",
                      {"--cert-file=" + (directory_ / (name + ".pem")), "--key-file=" + (directory_ / (name + "-key.pem")),
                       "--trusted-ca-file=" + (directory_ / "ca.pem"), "--client-cert-auth"});
  }
  EtcdOptions As(const EtcdServer& server, const std::string& ca, const std::string& client) {
    EtcdOptions options = server.Options();
    options.tls = true;
    options.ca_file = directory_ / (ca + ".pem");
    if (client.empty()) return options;
    options.cert_file = directory_ / (client + ".pem");
    options.key_file = directory_ / (client + "-key.pem");
    return options;
  }

  testing::TempDir directory_;
};

TEST_F(EtcdTlsTest, ClientCertificateOpens) {
  const EtcdServer server = Serve("server");
  const auto store = Open(As(server, "ca", "client"));
  ASSERT_TRUE(AwaitReachable(*store)) << store->Health().trouble;
  EXPECT_TRUE(store->Put("policies/a", "1", 0, Soon()).ok());
}

TEST_F(EtcdTlsTest, WrongPartsAreTold) {
  const EtcdServer server = Serve("server");
  const auto unknown_server = Open(As(server, "other-ca", "client"));
  const auto no_certificate = Open(As(server, "ca", ""));
  const auto wrong_certificate = Open(As(server, "ca", "other-client"));
  const auto plain = Open(server.Options());
  EXPECT_TRUE(AwaitTrouble(*unknown_server, "is not signed by --store_ca")) << unknown_server->Health().trouble;
  EXPECT_TRUE(AwaitTrouble(*no_certificate, "want a client certificate")) << no_certificate->Health().trouble;
  EXPECT_TRUE(AwaitTrouble(*wrong_certificate, "want a client certificate")) << wrong_certificate->Health().trouble;
  EXPECT_TRUE(AwaitTrouble(*plain, "write etcds://")) << plain->Health().trouble;
  const EtcdServer stranger = Serve("stranger");
  const auto wrong_name = Open(As(stranger, "ca", "client"));
  EXPECT_TRUE(AwaitTrouble(*wrong_name, "name this host")) << wrong_name->Health().trouble;
}

TEST_F(EtcdTlsTest, TlsToAPlainEtcdIsTold) {
  const EtcdServer server;
  const auto store = Open(As(server, "ca", ""));
  EXPECT_TRUE(AwaitTrouble(*store, "or speak no TLS")) << store->Health().trouble;
}

TEST_F(EtcdTlsTest, MissingFilesAreNamed) {
  EtcdOptions options;
  options.endpoints = {"127.0.0.1:1"};
  options.tls = true;
  options.ca_file = directory_ / "nowhere.pem";
  EXPECT_THAT(std::string(OpenEtcdStore(options).status().message()),
              AllOf(HasSubstr("--store_ca"), HasSubstr("No such file")));
  std::ofstream(directory_ / "text.pem") << "nothing";
  options.ca_file = directory_ / "text.pem";
  EXPECT_THAT(std::string(OpenEtcdStore(options).status().message()), HasSubstr("is not PEM"));
}

}  // namespace
}  // namespace gradgate
