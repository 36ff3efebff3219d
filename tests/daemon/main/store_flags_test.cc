// gradgated with each kind of store: the real binary, and a real etcd.

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/cli/certs_command.h"
#include "daemon/store/etcd/etcd_store.h"
#include "gmock/gmock.h"
#include "gradgate/store/v1/store.pb.h"
#include "gtest/gtest.h"
#include "tests/daemon/main/process.h"
#include "tests/daemon/store/await.h"
#include "tests/daemon/store/etcd_server.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using testing::Await;
using testing::EtcdServer;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Process;

class StoreFlagsTest : public ::testing::Test {
 protected:
  std::string Dir(const std::string& name) {
    const std::string path = root_ / name;
    std::filesystem::create_directories(path);
    return path;
  }
  std::unique_ptr<Process> Run(const std::string& name, std::vector<std::string> flags,
                               const std::vector<std::string>& environment = {}) {
    flags.insert(flags.begin(), {GRADGATED, "--dir=" + Dir(name), "--metrics_listen="});
    return std::make_unique<Process>(flags, environment);
  }
  // What it says before it is ready, or before it ends.
  static std::string Said(Process& daemon) {
    std::string all;
    for (std::string line = daemon.ReadLine(); !line.empty(); line = daemon.ReadLine()) {
      all += line + "\n";
      if (line.find(" ready: ") != std::string::npos) break;
    }
    return all;
  }
  void Stop(Process& daemon) {
    daemon.Signal(SIGTERM);
    EXPECT_EQ(daemon.Wait(), 0);
  }

  testing::TempDir root_;
};

TEST_F(StoreFlagsTest, DefaultIsAFileInTheDirectoryAndSaysNothing) {
  const auto daemon = Run("a", {}, {"STATE_DIRECTORY="});
  EXPECT_THAT(Said(*daemon), Not(HasSubstr("gradgated: ")));
  EXPECT_TRUE(std::filesystem::exists(root_ / "a/store.lock"));
  Stop(*daemon);
  EXPECT_FALSE(std::filesystem::exists(root_ / "a/store.lock"));
}

TEST_F(StoreFlagsTest, ServiceManagersStateDirectoryIsTaken) {
  const auto daemon = Run("a", {}, {"STATE_DIRECTORY=" + (root_ / "state/deep") + ":/elsewhere"});
  EXPECT_THAT(Said(*daemon), Not(HasSubstr("gradgated: ")));
  EXPECT_TRUE(std::filesystem::exists(root_ / "state/deep/store.lock"));
}

TEST_F(StoreFlagsTest, UnusableDefaultIsMemoryAndSaid) {
  const auto daemon = Run("a", {}, {"STATE_DIRECTORY=/proc/none"});
  EXPECT_THAT(
      Said(*daemon),
      AllOf(HasSubstr("gradgated: policies are kept in memory, and gone when this daemon ends: cannot make /proc/none/store"),
            HasSubstr("ready")));
}

TEST_F(StoreFlagsTest, UnusableFileThatWasAskedForIsAnError) {
  const auto daemon = Run("a", {"--store=file:" + (root_ / "none/store")});
  EXPECT_THAT(daemon->ReadAll(), HasSubstr("make its directory, or give another --store"));
  EXPECT_EQ(daemon->Wait(), 1);
  const auto first = Run("b", {"--store=file:" + (root_ / "shared")});
  ASSERT_THAT(Said(*first), HasSubstr("ready"));
  const auto second = Run("c", {"--store=file:" + (root_ / "shared")});
  EXPECT_THAT(second->ReadAll(), HasSubstr("another gradgated has the store"));
  EXPECT_EQ(second->Wait(), 1);
}

TEST_F(StoreFlagsTest, WrongFlagsAreToldTogetherWithTheRemedy) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--store=redis://a"}, "it may be memory, file:PATH"},
      {{"--node_name=a/b"}, "give another --node_name"},
      {{"--advertise=a:1"}, "--advertise needs --grpc_listen"},
      {{"--grpc_listen=127.0.0.1:0", "--advertise=0.0.0.0:1"}, "is no address that other daemons could connect to"},
      {{"--store=etcd://a", "--store_user=u"}, "--store_user and --store_password_file go together"},
      {{"--store=etcd://a", "--store_cert=c"}, "--store_cert and --store_key go together"},
      {{"--store=etcd://a", "--store_user=u", "--store_password_file=/none"},
       "cannot read a line from --store_password_file /none: No such"},
      {{"--store=etcds://a", "--store_ca=/none"}, "cannot read --store_ca /none: No such"},
  };
  for (const auto& [flags, text] : wrong) {
    const auto daemon = Run("a", flags);
    EXPECT_THAT(daemon->ReadAll(), HasSubstr(text)) << flags[0];
    EXPECT_EQ(daemon->Wait(), 1) << flags[0];
  }
}

class EtcdFlagsTest : public StoreFlagsTest {
 protected:
  void SetUp() override {
    GG_REQUIRE_ETCD();
    server_ = std::make_unique<EtcdServer>();
    auto store = OpenEtcdStore(server_->Options());
    ASSERT_TRUE(store.ok());
    store_ = *std::move(store);
  }
  std::string Flag() { return "--store=etcd://" + server_->endpoint(); }
  store::v1::StoredNode Node(const std::string& name) {
    store::v1::StoredNode node;
    const auto values = store_->List("nodes/" + name);
    EXPECT_TRUE(values.empty() || node.ParseFromString(values[0].value));
    return node;
  }
  bool AwaitNode(const std::string& name, bool there) {
    return Await([&] { return store_->List("nodes/" + name).empty() != there; });
  }

  std::unique_ptr<EtcdServer> server_;
  std::unique_ptr<Store> store_;
};

TEST_F(EtcdFlagsTest, DaemonsAnnounceThemselvesAndGo) {
  const auto a = Run("a", {Flag(), "--node_name=a", "--grpc_listen=127.0.0.1:0", "--advertise=127.0.0.1:0"});
  const std::string said = Said(*a);
  ASSERT_THAT(said, HasSubstr("ready"));
  ASSERT_TRUE(AwaitNode("a", true));
  EXPECT_EQ(Node("a").node_name(), "a");
  EXPECT_THAT(said, HasSubstr("grpc " + Node("a").advertise_address())) << "the port that it got";
  EXPECT_FALSE(Node("a").version().empty());
  EXPECT_NEAR(Node("a").start_time().seconds(), absl::ToUnixSeconds(absl::Now()), 30);
  EXPECT_FALSE(Node("a").tls());
  const auto b = Run("b", {Flag(), "--node_name=b"});
  EXPECT_THAT(Said(*b), AllOf(HasSubstr("cannot ask this one: give --grpc_listen and --advertise"), HasSubstr("ready")));
  EXPECT_TRUE(AwaitNode("b", true));
  Stop(*a);
  EXPECT_TRUE(AwaitNode("a", false));
}

TEST_F(EtcdFlagsTest, SecondDaemonOfANameIsRefused) {
  const auto first = Run("a", {Flag(), "--node_name=n", "--grpc_listen=127.0.0.1:0", "--advertise=localhost:0"});
  ASSERT_THAT(Said(*first), HasSubstr("ready"));
  const auto second = Run("b", {Flag(), "--node_name=n", "--grpc_listen=127.0.0.1:0", "--advertise=localhost:0"});
  EXPECT_THAT(second->ReadAll(), AllOf(HasSubstr("another daemon at localhost:"), HasSubstr("is node \"n\" in etcd://"),
                                       HasSubstr("give each daemon its own --node_name")));
  EXPECT_EQ(second->Wait(), 1);
  EXPECT_FALSE(store_->List("nodes/n").empty()) << "the first one is as it was";
}

TEST_F(EtcdFlagsTest, KilledDaemonsSuccessorTakesItsNameAtOnce) {
  {
    const auto killed = Run("a", {Flag(), "--node_name=n"});
    ASSERT_THAT(Said(*killed), HasSubstr("ready"));
    killed->Signal(SIGKILL);
    killed->Wait();
  }
  const absl::Time begin = absl::Now();
  const auto successor = Run("a", {Flag(), "--node_name=n"});
  EXPECT_THAT(Said(*successor), HasSubstr("ready"));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

TEST_F(EtcdFlagsTest, SilentEtcdHoldsNobodyUpAndIsJoinedLater) {
  server_->Kill();
  const auto daemon = Run("a", {Flag(), "--node_name=a"});
  EXPECT_THAT(Said(*daemon), AllOf(HasSubstr("does not answer; this daemon goes on alone and joins when it does"),
                                   HasSubstr("refused"), HasSubstr("ready")));
  ASSERT_TRUE(server_->Start()) << server_->Log();
  EXPECT_TRUE(AwaitNode("a", true));
}

TEST_F(StoreFlagsTest, CertificatesThatCertsMadeServeDaemonsAndEtcd) {
  GG_REQUIRE_ETCD();
  const auto made = cli::MakeCerts({root_ / "certs", {"a=127.0.0.1,a.example"}, 30}, absl::Now());
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(*made, HasSubstr("--tls_cert=" + (root_ / "certs/a.pem")));
  const std::string certs = root_ / "certs/";
  EtcdServer server("https", {"--cert-file=" + certs + "a.pem", "--key-file=" + certs + "a-key.pem",
                              "--trusted-ca-file=" + certs + "ca.pem", "--client-cert-auth"});
  const auto daemon =
      Run("a", {"--store=etcds://" + server.endpoint(), "--store_ca=" + certs + "ca.pem", "--store_cert=" + certs + "a.pem",
                "--store_key=" + certs + "a-key.pem", "--node_name=a", "--grpc_listen=0.0.0.0:0", "--advertise=127.0.0.1:0",
                "--tls_cert=" + certs + "a.pem", "--tls_key=" + certs + "a-key.pem", "--tls_client_ca=" + certs + "ca.pem"});
  const std::string said = Said(*daemon);
  ASSERT_THAT(said, AllOf(HasSubstr("ready"), Not(HasSubstr("gradgated: ")))) << "it has joined";
  const std::string port =
      said.substr(said.find("0.0.0.0:") + 8, said.find_first_of(",\n", said.find("0.0.0.0:")) - said.find("0.0.0.0:") - 8);
  for (const char* name : {"client", "a"}) {
    Process ask({GRADGATECTL, "--target=127.0.0.1:" + port, "--ca=" + certs + "ca.pem", "--cert=" + certs + name + ".pem",
                 "--key=" + certs + name + "-key.pem", "jobs"});
    const std::string answer = ask.ReadAll();
    EXPECT_EQ(ask.Wait(), 0) << answer;
  }
}

}  // namespace
}  // namespace gradgate
