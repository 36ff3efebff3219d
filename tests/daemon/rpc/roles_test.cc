// Who may do what, against a real server: by api.sock, by plain TCP, and by TLS with certificates of each role. And what the
// audit log says of it.

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/certificates.h"
#include "daemon/node/clock.h"
#include "daemon/policy/audit_log.h"
#include "daemon/rpc/access.h"
#include "daemon/rpc/server.h"
#include "daemon/store/memory_store.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gradgate/v1/policy.grpc.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using cli::CertificateUse;
using grpc::StatusCode;
using ::testing::AllOf;
using testing::FakePage;
using ::testing::HasSubstr;

constexpr char kRole[] = "spiffe://example.org/gradgate/role/";

v1::SetPolicyRequest Change(v1::SyncMode mode) {
  v1::SetPolicyRequest request;
  request.set_job("job");
  request.set_actor("ann@host");
  request.mutable_policy()->set_sync_mode(mode);
  request.mutable_update_mask()->add_paths("sync_mode");
  return request;
}

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
}

// Calls a method by its path with an empty request.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  grpc::ClientContext context;
  SetDeadline(context);
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const grpc::Slice empty;
  const grpc::ByteBuffer out(&empty, 1);
  grpc::ByteBuffer in;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, method, out, &queue);
  call->StartCall();
  call->Finish(&in, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

class RolesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Time now = absl::Now();
    const auto authority = cli::MakeAuthority("test", now, absl::Hours(24));
    ASSERT_TRUE(authority.ok());
    authority_ = *authority;
    Write("ca.pem", authority_.certificate);
    const auto server = Make("server", {"localhost", "127.0.0.1"}, CertificateUse::kNode, absl::StrCat(kRole, "node/n1"));
    Write("server.pem", server.certificate);
    Write("server-key.pem", server.key);
    auto audit = AuditLog::Open(
        directory_ / "audit.log", "n1", [](absl::string_view) {}, &clock_);
    ASSERT_TRUE(audit.ok()) << audit.status();
    audit_ = *std::move(audit);
    ASSERT_TRUE(registry_.Register(1000, page_.Map()).ok());
  }
  void TearDown() override { server_.reset(); }

  void Start(bool tls) {
    RpcOptions options;
    options.socket_path = directory_ / "api.sock";
    options.tcp_listen = "127.0.0.1:0";
    if (tls) options.tls = {directory_ / "server.pem", directory_ / "server-key.pem", directory_ / "ca.pem"};
    options.audit = audit_.get();
    auto server = RpcServer::Start(options, &registry_, &desk_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  cli::CertificateAndKey Make(const std::string& name, const std::vector<std::string>& hosts, CertificateUse use,
                              const std::string& uri) {
    return *cli::MakeCertificate(authority_, {name, hosts, use, absl::Hours(1), uri}, absl::Now());
  }
  void Write(const std::string& name, const std::string& text) { std::ofstream(directory_ / name) << text; }

  std::shared_ptr<grpc::Channel> Socket() {
    return grpc::CreateChannel("unix:" + (directory_ / "api.sock"), grpc::InsecureChannelCredentials());
  }
  std::string Tcp() { return absl::StrCat("127.0.0.1:", server_->tcp_port()); }
  std::shared_ptr<grpc::Channel> Plain() { return grpc::CreateChannel(Tcp(), grpc::InsecureChannelCredentials()); }
  // With a certificate of that URI; empty: without any.
  std::shared_ptr<grpc::Channel> Tls(const std::string& uri) {
    const auto client = Make("somebody", {}, CertificateUse::kClient, uri);
    return grpc::CreateChannel(Tcp(), grpc::SslCredentials({authority_.certificate, client.key, client.certificate}));
  }

  grpc::Status Set(const std::shared_ptr<grpc::Channel>& channel, const v1::SetPolicyRequest& request,
                   v1::SetPolicyResponse* response = nullptr) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::SetPolicyResponse own;
    return v1::PolicyService::NewStub(channel)->SetPolicy(&context, request, response != nullptr ? response : &own);
  }
  grpc::Status Get(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::GetPolicyRequest request;
    request.set_job("job");
    v1::GetPolicyResponse response;
    return v1::PolicyService::NewStub(channel)->GetPolicy(&context, request, &response);
  }

  std::vector<v1::AuditRecord> Records() {
    EXPECT_TRUE(audit_->Flush(absl::Seconds(20)));
    std::ifstream file(directory_ / "audit.log");
    std::vector<v1::AuditRecord> records;
    for (std::string line; std::getline(file, line);) {
      EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(line, &records.emplace_back()).ok()) << line;
    }
    return records;
  }

  testing::TempDir directory_;
  SystemClock clock_;
  Registry registry_{RegistryOptions{}, &clock_};
  MemoryStore store_;
  PolicyDesk desk_{&store_, &clock_, "n1"};
  FakePage page_{{}};
  cli::CertificateAndKey authority_;
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(RolesTest, CertificatesMayWhatTheirRoleMay) {
  Start(true);
  const std::map<std::string, bool> may_set = {{"", false},
                                               {absl::StrCat(kRole, "read"), false},
                                               {absl::StrCat(kRole, "node/n2"), false},
                                               {absl::StrCat(kRole, "admin"), false},
                                               {absl::StrCat(kRole, "operator/ann"), true}};
  for (const auto& [uri, allowed] : may_set) {
    const auto channel = Tls(uri);
    const grpc::Status got = Get(channel);
    EXPECT_TRUE(got.ok()) << uri << ": " << got.error_message();
    const grpc::Status set = Set(channel, Change(v1::SYNC_MODE_WINDOW));
    EXPECT_EQ(set.error_code(), allowed ? StatusCode::OK : StatusCode::PERMISSION_DENIED) << uri << ": " << set.error_message();
    if (allowed) continue;
    EXPECT_THAT(set.error_message(), AllOf(HasSubstr("CN=somebody"), HasSubstr("needs operator")));
  }
}

TEST_F(RolesTest, NoCallOfAnUnlistedMethodPassesForAReader) {
  Start(true);
  const std::string unlisted = "/gradgate.v1.PolicyService/DropEverything";
  const grpc::Status refused = CallRaw(Tls(absl::StrCat(kRole, "read")), unlisted);
  EXPECT_EQ(refused.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), AllOf(HasSubstr("DropEverything needs operator"), HasSubstr("CN=somebody")));
  EXPECT_EQ(CallRaw(Tls(absl::StrCat(kRole, "operator")), unlisted).error_code(), StatusCode::UNIMPLEMENTED);
  const auto records = Records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].method(), unlisted);
  EXPECT_EQ(records[0].outcome(), v1::AUDIT_OUTCOME_DENIED);
}

// Each service refuses by itself what needs more than a reader's role, and nothing else.
TEST_F(RolesTest, EveryMethodIsAsTheTableHasIt) {
  for (const bool tls : {true, false}) {
    Start(tls);
    const auto channel = tls ? Tls("") : Plain();
    for (const MethodAccess& one : ListMethods()) {
      if (one.method.rfind("/grpc.", 0) == 0) continue;
      const grpc::Status status = CallRaw(channel, std::string(one.method));
      EXPECT_EQ(status.error_code() == StatusCode::PERMISSION_DENIED, one.least == Role::kOperator)
          << one.method << " " << status.error_message();
    }
    server_.reset();
  }
}

TEST_F(RolesTest, PlainTcpMayOnlyAsk) {
  Start(false);
  EXPECT_TRUE(Get(Plain()).ok());
  const grpc::Status set = Set(Plain(), Change(v1::SYNC_MODE_WINDOW));
  EXPECT_EQ(set.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(set.error_message(), AllOf(HasSubstr("by TCP without TLS (127.0.0.1:"), HasSubstr("use api.sock")));
  EXPECT_TRUE(store_.List("policies/").empty());
}

TEST_F(RolesTest, SocketMaySetAndItsUserIsKnown) {
  Start(false);
  v1::SetPolicyResponse response;
  const grpc::Status set = Set(Socket(), Change(v1::SYNC_MODE_WINDOW), &response);
  ASSERT_TRUE(set.ok()) << set.error_message();
  const auto records = Records();
  ASSERT_EQ(records.size(), 1u);
  const v1::AuditRecord& record = records[0];
  EXPECT_EQ(record.outcome(), v1::AUDIT_OUTCOME_ACCEPTED);
  EXPECT_EQ(record.action(), v1::AUDIT_ACTION_SET);
  EXPECT_EQ(record.caller().transport(), v1::AUDIT_TRANSPORT_SOCKET);
  EXPECT_EQ(record.caller().uid(), geteuid());
  EXPECT_EQ(record.caller().role(), "operator");
  EXPECT_EQ(record.actor(), "ann@host");
  EXPECT_EQ(record.job(), "job");
  EXPECT_EQ(record.job_user_id(), 1000);
  EXPECT_EQ(record.from_version(), 0);
  EXPECT_EQ(record.to_version(), response.status().proposed().version());
  ASSERT_EQ(record.changes_size(), 1);
  EXPECT_EQ(record.changes(0).field(), "sync_mode");
  EXPECT_EQ(record.changes(0).from(), "SYNC_MODE_UNSPECIFIED");
  EXPECT_EQ(record.changes(0).to(), "SYNC_MODE_WINDOW");
}

TEST_F(RolesTest, AuditTellsTrialsRejectionsWithdrawalsAndDeniedTries) {
  Start(true);
  v1::SetPolicyRequest trial = Change(v1::SYNC_MODE_WINDOW);
  trial.set_validate_only(true);
  EXPECT_TRUE(Set(Socket(), trial).ok());
  EXPECT_TRUE(Set(Socket(), Change(v1::SYNC_MODE_WINDOW)).ok());
  v1::SetPolicyRequest stale = Change(v1::SYNC_MODE_AUTO);
  stale.set_expected_version(77);
  EXPECT_EQ(Set(Socket(), stale).error_code(), StatusCode::ABORTED);
  EXPECT_EQ(Set(Tls(absl::StrCat(kRole, "read/eve")), Change(v1::SYNC_MODE_AUTO)).error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(Set(Tls(absl::StrCat(kRole, "operator/bob")), Change(v1::SYNC_MODE_UNSPECIFIED)).ok());
  const auto records = Records();
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0].action(), v1::AUDIT_ACTION_TRIAL);
  EXPECT_EQ(records[0].to_version(), 0);
  EXPECT_EQ(records[1].outcome(), v1::AUDIT_OUTCOME_ACCEPTED);
  EXPECT_EQ(records[2].outcome(), v1::AUDIT_OUTCOME_REJECTED);
  EXPECT_THAT(records[2].reason(), HasSubstr("not 77"));
  EXPECT_EQ(records[2].changes(0).to(), "SYNC_MODE_AUTO");
  EXPECT_EQ(records[3].outcome(), v1::AUDIT_OUTCOME_DENIED);
  EXPECT_EQ(records[3].caller().role(), "read");
  EXPECT_EQ(records[3].caller().subject(), "CN=somebody,O=gradgate");
  EXPECT_THAT(records[3].caller().address(), HasSubstr("127.0.0.1:"));
  EXPECT_EQ(records[3].job(), "job");
  EXPECT_EQ(records[3].changes(0).to(), "SYNC_MODE_AUTO");
  EXPECT_EQ(records[4].action(), v1::AUDIT_ACTION_WITHDRAW);
  EXPECT_EQ(records[4].from_version(), records[1].to_version());
  EXPECT_EQ(records[4].caller().transport(), v1::AUDIT_TRANSPORT_TLS);
  EXPECT_EQ(records[4].changes(0).from(), "SYNC_MODE_WINDOW");
}

TEST_F(RolesTest, PolicyIsSignedWithTheNameInTheCertificate) {
  Start(true);
  v1::SetPolicyResponse response;
  ASSERT_TRUE(Set(Tls(absl::StrCat(kRole, "operator")), Change(v1::SYNC_MODE_WINDOW), &response).ok());
  EXPECT_EQ(response.status().proposed().actor(), "ann@host (somebody)");
}

TEST_F(RolesTest, UnknownAuthorityAndNoCertificateDoNotReachTheService) {
  Start(true);
  const auto other = cli::MakeAuthority("other", absl::Now(), absl::Hours(1));
  const auto forged = cli::MakeCertificate(
      *other, {"ann", {}, CertificateUse::kClient, absl::Hours(1), absl::StrCat(kRole, "operator")}, absl::Now());
  const auto with = [&](const std::string& key, const std::string& certificate) {
    return Set(grpc::CreateChannel(Tcp(), grpc::SslCredentials({authority_.certificate, key, certificate})),
               Change(v1::SYNC_MODE_WINDOW));
  };
  EXPECT_EQ(with(forged->key, forged->certificate).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(with("", "").error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Set(Plain(), Change(v1::SYNC_MODE_WINDOW)).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Records().empty());
}

}  // namespace
}  // namespace gradgate
