#include "daemon/rpc/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/node/clock.h"
#include "daemon/store/memory_store.h"
#include "gmock/gmock.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using testing::FakePage;
using ::testing::HasSubstr;

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    std::string pattern = ::testing::TempDir() + "/gg_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~ServerTest() override {
    server_.reset();
    rmdir(directory_.c_str());
  }

  void Start(RpcOptions options = {}) {
    options.socket_path = path();
    auto server = RpcServer::Start(options, &registry_, &desk_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel("unix:" + path(), grpc::InsecureChannelCredentials());
    stub_ = v1::SyncStatsService::NewStub(channel_);
  }

  std::string path() const { return directory_ + "/api.sock"; }

  Registration Connect(const FakePage& page) { return *registry_.Register(1000, page.Map()); }

  void Tick() {
    registry_.Tick();
    server_->WakeWatchers();
  }

  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchWindowsResponse>> reader;
  };
  std::unique_ptr<Watch> StartWatch(const std::string& job, std::optional<int64_t> first) {
    auto watch = std::make_unique<Watch>();
    SetDeadline(watch->context);
    v1::WatchWindowsRequest request;
    request.set_job(job);
    if (first) request.set_first_window_index(*first);
    watch->reader = stub_->WatchWindows(&watch->context, request);
    return watch;
  }

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }

  std::string directory_;
  SystemClock clock_;
  Registry registry_{RegistryOptions{.window_history = 4}, &clock_};
  MemoryStore store_;
  PolicyDesk desk_{&store_, &clock_, "node"};
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::SyncStatsService::Stub> stub_;
};

TEST_F(ServerTest, AnswersOnTheSocketOfMode0660) {
  Start();
  FakePage page({});
  Connect(page);
  struct stat file;
  ASSERT_EQ(stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0660u);
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ListJobsResponse response;
  const grpc::Status status = stub_->ListJobs(&context, {}, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.jobs(0).job_name(), "job");
}

TEST_F(ServerTest, ErrorsKeepTheirCodeAndText) {
  Start();
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetJobStatsRequest request;
  request.set_job("nobody");
  v1::GetJobStatsResponse response;
  const grpc::Status status = stub_->GetJobStats(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("no job \"nobody\""));
}

TEST_F(ServerTest, WatchSeesKeptThenNewWindowsThenTheEnd) {
  Start();
  FakePage page({});
  const auto rank = Connect(page);
  page.CloseWindow();
  page.CloseWindow();
  const auto watch = StartWatch("job", 0);
  v1::WatchWindowsResponse response;
  for (int64_t expected : {0, 1}) {
    ASSERT_TRUE(watch->reader->Read(&response));
    EXPECT_EQ(response.window().window_index(), expected);
    EXPECT_TRUE(response.window().complete());
  }
  page.CloseWindow();
  Tick();
  ASSERT_TRUE(watch->reader->Read(&response));
  EXPECT_EQ(response.window().window_index(), 2);
  registry_.End(rank.connection, Ending::kGoodbye);
  server_->WakeWatchers();
  ASSERT_TRUE(watch->reader->Read(&response));
  EXPECT_FALSE(response.has_window());
  EXPECT_EQ(response.ended_job().state(), v1::STATE_FINISHED);
  EXPECT_FALSE(watch->reader->Read(&response));
  EXPECT_TRUE(watch->reader->Finish().ok());
}

TEST_F(ServerTest, WatchOfAnEndedJobEndsAtOnce) {
  Start();
  FakePage page({});
  page.CloseWindow();
  registry_.End(Connect(page).connection, Ending::kDisconnected);
  const auto watch = StartWatch("job", {});
  v1::WatchWindowsResponse response;
  ASSERT_TRUE(watch->reader->Read(&response));
  EXPECT_EQ(response.ended_job().state(), v1::STATE_LOST);
  EXPECT_FALSE(watch->reader->Read(&response));
}

TEST_F(ServerTest, WatchOfNobodyAndOfNegativeIndexAreRefused) {
  Start();
  FakePage page({});
  Connect(page);
  EXPECT_EQ(StartWatch("nobody", {})->reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(StartWatch("job", -1)->reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, TooManyWatchersAreRefusedUntilOneGoes) {
  Start({.max_watchers = 1});
  FakePage page({});
  page.CloseWindow();
  Connect(page);
  auto first = StartWatch("job", 0);
  v1::WatchWindowsResponse response;
  ASSERT_TRUE(first->reader->Read(&response));
  const grpc::Status refused = StartWatch("job", 0)->reader->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("raise --max_watchers"));
  first->context.TryCancel();
  EXPECT_EQ(first->reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // The server learns of it in its own time.
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  bool accepted = false;
  while (!accepted && absl::Now() < deadline) {
    auto next = StartWatch("job", 0);
    accepted = next->reader->Read(&response);
    next->context.TryCancel();
    next->reader->Finish();
  }
  EXPECT_TRUE(accepted);
}

TEST_F(ServerTest, SlowWatcherIsToldWhatItMissedAndHoldsUpNobody) {
  Start();
  FakePage page({});
  page.page().identity.accumulate = 1;
  page.CloseWindow();
  const auto rank = Connect(page);
  auto slow = StartWatch("job", 0);
  v1::WatchWindowsResponse response;
  ASSERT_TRUE(slow->reader->Read(&response));
  // More than the transport's buffers hold, so that the server's write blocks on flow control.
  constexpr int64_t kWindows = 20000;
  for (int64_t i = 1; i < kWindows; ++i) {
    page.CloseWindow();
    Tick();
  }
  registry_.End(rank.connection, Ending::kGoodbye);
  server_->WakeWatchers();
  int64_t next = 1, skipped = 0;
  bool ended = false;
  while (slow->reader->Read(&response)) {
    if (response.has_window()) {
      EXPECT_EQ(response.window().window_index(), next + response.skipped_count());
      next = response.window().window_index() + 1;
      skipped += response.skipped_count();
    }
    ended = response.has_ended_job();
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(next, kWindows);
  EXPECT_GT(skipped, 0);
}

TEST_F(ServerTest, ShutDownEndsStreamsAndRemovesTheSocket) {
  Start();
  FakePage page({});
  page.CloseWindow();
  Connect(page);
  const auto watch = StartWatch("job", 0);
  v1::WatchWindowsResponse response;
  ASSERT_TRUE(watch->reader->Read(&response));
  const absl::Time begin = absl::Now();
  server_->ShutDown(absl::Seconds(5));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << "the stream ended by itself";
  EXPECT_FALSE(watch->reader->Read(&response));
  const grpc::Status status = watch->reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the daemon is shutting down");
  EXPECT_NE(access(path().c_str(), F_OK), 0);
}

TEST_F(ServerTest, StaleSocketIsReplacedAndALiveOneIsNot) {
  Start();
  const auto second = RpcServer::Start({.socket_path = path()}, &registry_, &desk_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ListJobsResponse response;
  EXPECT_TRUE(stub_->ListJobs(&context, {}, &response).ok()) << "the first daemon still answers";
}

TEST_F(ServerTest, ShutDownLeavesTheSocketOfAYoungerOne) {
  Start();
  ASSERT_EQ(unlink(path().c_str()), 0);  // somebody cleaned up the directory of a living daemon
  auto younger = RpcServer::Start({.socket_path = path()}, &registry_, &desk_);
  ASSERT_TRUE(younger.ok()) << younger.status();
  server_->ShutDown(absl::ZeroDuration());
  EXPECT_EQ(access(path().c_str(), F_OK), 0);
  (*younger)->ShutDown(absl::ZeroDuration());
  EXPECT_NE(access(path().c_str(), F_OK), 0);
}

TEST_F(ServerTest, TcpOnLoopbackWithAnyPort) {
  Start({.tcp_listen = "127.0.0.1:0"});
  ASSERT_GT(server_->tcp_port(), 0);
  const auto stub = v1::SyncStatsService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->tcp_port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ListJobsResponse response;
  EXPECT_TRUE(stub->ListJobs(&context, {}, &response).ok());
}

TEST_F(ServerTest, TcpBeyondLoopbackNeedsTls) {
  const auto server = RpcServer::Start({.socket_path = path(), .tcp_listen = "0.0.0.0:0"}, &registry_, &desk_);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("--tls_cert"));
}

// Certificates of a day, made by the openssl command, in the test's directory.
class TlsTest : public ServerTest {
 protected:
  void SetUp() override {
    if (std::system("command -v openssl > /dev/null") != 0) GTEST_SKIP() << "openssl is not installed";
    const std::string script =
        "cd " + directory_ +
        " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days 1 "
        "-subj /CN=ca"
        " && echo subjectAltName=DNS:localhost,IP:127.0.0.1 > ext"
        " && for n in server client; do openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout $n.key "
        "-out $n.csr -subj /CN=$n"
        " && openssl x509 -req -in $n.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 1 -extfile ext -out $n.crt"
        " || exit 1; done";
    ASSERT_EQ(std::system(("( " + script + " ) > /dev/null 2>&1").c_str()), 0);
    made_ = true;
  }
  void TearDown() override {
    for (const char* name : {"ca.key", "ca.crt", "ca.srl", "ext", "server.key", "server.csr", "server.crt", "client.key",
                             "client.csr", "client.crt"}) {
      unlink(File(name).c_str());
    }
  }

  std::string File(const std::string& name) const { return directory_ + "/" + name; }
  std::string Read(const std::string& name) const {
    std::ifstream file(File(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  grpc::Status Call(const grpc::SslCredentialsOptions& credentials) {
    const auto stub = v1::SyncStatsService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->tcp_port()), grpc::SslCredentials(credentials)));
    grpc::ClientContext context;
    SetDeadline(context);
    v1::ListJobsResponse response;
    return stub->ListJobs(&context, {}, &response);
  }

  bool made_ = false;
};

TEST_F(TlsTest, CallersNeedACertificateOfTheAuthority) {
  if (!made_) return;
  Start({.tcp_listen = "0.0.0.0:0", .tls = {File("server.crt"), File("server.key"), File("ca.crt")}});
  ASSERT_NE(server_, nullptr);
  const grpc::Status known = Call({Read("ca.crt"), Read("client.key"), Read("client.crt")});
  EXPECT_TRUE(known.ok()) << known.error_message();
  EXPECT_EQ(Call({Read("ca.crt"), "", ""}).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, KeyThatIsNoneIsAnError) {
  if (!made_) return;
  const RpcOptions options{
      .socket_path = path(), .tcp_listen = "0.0.0.0:0", .tls = {File("server.crt"), File("ext"), File("ca.crt")}};
  const auto server = RpcServer::Start(options, &registry_, &desk_);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("the file of --tls_key has no private key"));
}

// Calls a method by its bytes: health and reflection have no stubs here.
grpc::Status CallRaw(grpc::Channel& channel, const std::string& method, const std::string& request, std::string& response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::GenericStub stub(std::shared_ptr<grpc::Channel>(&channel, [](auto*) {}));
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const grpc::ByteBuffer out(&slice, 1);
  grpc::ByteBuffer in;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, method, out, &queue);
  call->StartCall();
  call->Finish(&in, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (status.ok() && in.Dump(&slices).ok()) {
    for (const auto& part : slices) response.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

TEST_F(ServerTest, HealthKnowsTheServiceAndTheEmptyName) {
  Start();
  const std::string serving("\x08\x01", 2);  // HealthCheckResponse{status: SERVING}
  const std::string service = "gradgate.v1.SyncStatsService";
  std::string response;
  EXPECT_TRUE(CallRaw(*channel_, "/grpc.health.v1.Health/Check", "", response).ok());
  EXPECT_EQ(response, serving);
  response.clear();
  const std::string request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  EXPECT_TRUE(CallRaw(*channel_, "/grpc.health.v1.Health/Check", request, response).ok());
  EXPECT_EQ(response, serving);
  const grpc::Status unknown = CallRaw(*channel_, "/grpc.health.v1.Health/Check", std::string("\x0a\x01x"), response);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerTest, ReflectionListsTheService) {
  Start();
  std::string response;
  const std::string list_services("\x3a\x00", 2);  // ServerReflectionRequest{list_services: ""}
  const grpc::Status status =
      CallRaw(*channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services, response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response, HasSubstr("gradgate.v1.SyncStatsService"));
}

}  // namespace
}  // namespace gradgate
