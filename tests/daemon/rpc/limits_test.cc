// What clients may do to the gRPC server: connections, handshakes, large requests, answers that nobody reads.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/certificates.h"
#include "daemon/node/clock.h"
#include "daemon/node/unique_fd.h"
#include "daemon/rpc/server.h"
#include "gmock/gmock.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpc/grpc.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using grpc::StatusCode;
using testing::FakeIdentity;
using testing::FakePage;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr char kListWindows[] = "/gradgate.v1.SyncStatsService/ListWindows";

void SetDeadline(grpc::ClientContext& context) { context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience)); }

// A call whose answer is not read, so that it waits in the daemon.
struct UnreadCall {
  UnreadCall(const std::shared_ptr<grpc::Channel>& channel, const v1::ListWindowsRequest& request) : stub(channel) {
    SetDeadline(context);
    const grpc::Slice bytes(request.SerializeAsString());
    call = stub.PrepareCall(&context, kListWindows, &queue);
    call->StartCall(Tag(1));
    Next();
    call->WriteLast(grpc::ByteBuffer(&bytes, 1), {}, Tag(2));
    poller = std::thread([this] {  // the connection goes on only while somebody waits
      void* tag;
      bool ok;
      while (queue.Next(&tag, &ok)) {
      }
    });
  }
  ~UnreadCall() {
    context.TryCancel();
    call->Finish(&status, Tag(3));
    queue.Shutdown();
    poller.join();
  }
  static void* Tag(intptr_t number) { return reinterpret_cast<void*>(number); }
  void Next() {
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
  }

  grpc::GenericStub stub;
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  grpc::Status status;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  std::thread poller;
};

class LimitsTest : public ::testing::Test {
 protected:
  // Else gRPC ends with the last server and waits, for ten seconds at times, for a thread of its own.
  static void SetUpTestSuite() { grpc_init(); }
  static void TearDownTestSuite() { grpc_shutdown(); }
  void TearDown() override { server_.reset(); }

  void Start(RpcOptions options) {
    options.socket_path = directory_ / "api.sock";
    options.log = [this](absl::string_view line) {
      MutexLock lock(&mutex_);
      log_.emplace_back(line);
    };
    auto server = RpcServer::Start(options, &registry_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void StartTls(RpcOptions options) {
    authority_ = *cli::MakeAuthority("test", absl::Now(), absl::Hours(1));
    const auto server =
        *cli::MakeCertificate(authority_, {"server", {"127.0.0.1"}, cli::CertificateUse::kNode, absl::Hours(1)}, absl::Now());
    std::ofstream(directory_ / "ca.pem") << authority_.certificate;
    std::ofstream(directory_ / "cert.pem") << server.certificate;
    std::ofstream(directory_ / "key.pem") << server.key;
    options.tls = {directory_ / "cert.pem", directory_ / "key.pem", directory_ / "ca.pem"};
    options.tcp_listen = "127.0.0.1:0";
    Start(options);
  }

  std::shared_ptr<grpc::Channel> Socket() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel("unix:" + (directory_ / "api.sock"), grpc::InsecureChannelCredentials(), arguments);
  }
  std::shared_ptr<grpc::Channel> Tls() {
    const auto client =
        *cli::MakeCertificate(authority_, {"client", {}, cli::CertificateUse::kClient, absl::Hours(1)}, absl::Now());
    return grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->tcp_port()),
                               grpc::SslCredentials({authority_.certificate, client.key, client.certificate}));
  }
  static grpc::Status Ask(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::ListJobsResponse response;
    return v1::SyncStatsService::NewStub(channel)->ListJobs(&context, {}, &response);
  }

  UniqueFd ConnectSocket() {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (directory_ / "api.sock").c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << std::strerror(errno);
    return fd;
  }
  // From another of this machine's addresses.
  UniqueFd ConnectTcp(const char* from) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{}, there{};
    own.sin_family = there.sin_family = AF_INET;
    inet_pton(AF_INET, from, &own.sin_addr);
    inet_pton(AF_INET, "127.0.0.1", &there.sin_addr);
    there.sin_port = htons(static_cast<uint16_t>(server_->tcp_port()));
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0) << std::strerror(errno);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&there), sizeof(there)), 0) << std::strerror(errno);
    return fd;
  }
  // `answer`: what the daemon has sent until then.
  static bool IsClosed(const UniqueFd& fd, absl::Duration longest, std::string* answer = nullptr) {
    const absl::Time deadline = absl::Now() + longest;
    char buffer[4096];
    while (absl::Now() < deadline) {
      pollfd waited{fd.get(), POLLIN, 0};
      if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(deadline - absl::Now()) + 1)) <= 0) continue;
      const ssize_t got = recv(fd.get(), buffer, sizeof(buffer), 0);
      if (got <= 0) return true;
      if (answer != nullptr) answer->append(buffer, static_cast<size_t>(got));
    }
    return false;
  }
  template <typename Condition>
  static bool Await(Condition condition) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }

  testing::TempDir directory_;
  SystemClock clock_;
  Registry registry_{RegistryOptions{.window_history = 4096}, &clock_};
  Mutex mutex_;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
  cli::CertificateAndKey authority_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(LimitsTest, ConnectionsBeyondTheBoundAreRefusedAndServedOnesGoOn) {
  Start({.max_connections = 8});
  const auto good = Socket();
  ASSERT_TRUE(Ask(good).ok());
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 500; ++i) flood.push_back(ConnectSocket());
  ASSERT_TRUE(Await([&] { return server_->counts().refused_socket_connections >= 495; }));
  EXPECT_EQ(server_->counts().socket_connections, 6u) << "three quarters, since they are all one user's";
  EXPECT_TRUE(Ask(good).ok());
  {
    MutexLock lock(&mutex_);
    ASSERT_EQ(log_.size(), 1u) << "told once";
    EXPECT_THAT(log_[0], HasSubstr("raise --max_connections (not told again for a minute)"));
  }
  flood.clear();
  EXPECT_TRUE(Await([&] { return Ask(Socket()).ok(); })) << "there is room again";
}

TEST_F(LimitsTest, OneAddressDoesNotKeepOthersOut) {
  StartTls({.max_connections = 8});
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(ConnectTcp("127.0.0.2"));
  ASSERT_TRUE(Await([&] { return server_->counts().refused_tcp_connections >= 194; }));
  const grpc::Status asked = Ask(Tls());
  EXPECT_TRUE(asked.ok()) << asked.error_message();
  EXPECT_TRUE(Ask(Socket()).ok()) << "TCP takes nothing from the socket";
}

TEST_F(LimitsTest, HandshakeThatDoesNotEndIsGivenUp) {
  StartTls({.handshake_timeout = absl::Milliseconds(300)});
  const UniqueFd silent = ConnectTcp("127.0.0.1");
  const UniqueFd slow = ConnectTcp("127.0.0.1");
  const std::string hello("\x16\x03\x01\x02\x00", 5);  // of a TLS record, and never its rest
  ASSERT_EQ(send(slow.get(), hello.data(), hello.size(), MSG_NOSIGNAL), 5);
  EXPECT_TRUE(IsClosed(silent, kPatience));
  EXPECT_TRUE(IsClosed(slow, kPatience));
  EXPECT_TRUE(Await([&] { return server_->counts().tcp_connections == 0; }));
  EXPECT_TRUE(Ask(Tls()).ok());
}

TEST_F(LimitsTest, GarbageEndsItsConnectionAlone) {
  StartTls({});
  const UniqueFd tcp = ConnectTcp("127.0.0.1"), local = ConnectSocket();
  const std::string garbage(4096, 'x');
  for (const UniqueFd* fd : {&tcp, &local}) (void)!send(fd->get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(IsClosed(tcp, kPatience));
  EXPECT_TRUE(IsClosed(local, kPatience));
  EXPECT_TRUE(Ask(Tls()).ok());
  EXPECT_TRUE(Ask(Socket()).ok());
}

// HTTP/2 by hand: a connection that only pings is told to calm down, and closed.
TEST_F(LimitsTest, FloodOfPingsIsEnded) {
  Start({});
  const UniqueFd fd = ConnectSocket();
  std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  bytes += std::string("\x00\x00\x00\x04\x00\x00\x00\x00\x00", 9);  // SETTINGS, empty
  for (int i = 0; i < 100; ++i) bytes += std::string("\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping", 17);
  (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  std::string answer;
  EXPECT_TRUE(IsClosed(fd, kPatience, &answer));
  EXPECT_THAT(answer, HasSubstr("too_many_pings"));
}

TEST_F(LimitsTest, LargeRequestIsRefused) {
  Start({});
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetJobStatsRequest request;
  request.set_job(std::string(size_t{32} << 20, 'j'));
  v1::GetJobStatsResponse response;
  const grpc::Status status = v1::SyncStatsService::NewStub(Socket())->GetJobStats(&context, request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

class UnreadAnswersTest : public LimitsTest {
 protected:
  void SetUp() override {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      FakePage& page = *pages_.emplace_back(std::make_unique<FakePage>(FakeIdentity{.rank = rank, .world_size = 4}));
      ASSERT_TRUE(registry_.Register(1000, page.Map()).ok());
    }
    for (int i = 0; i < 500; ++i) {
      for (const auto& page : pages_) page->CloseWindow();
      if (i % 8 == 0) registry_.Tick();
    }
    registry_.Tick();
    request_.set_job("job");
    request_.set_page_size(1000);
  }
  grpc::Status List(const std::shared_ptr<grpc::Channel>& channel, size_t* bytes = nullptr) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::ListWindowsResponse response;
    const grpc::Status status = v1::SyncStatsService::NewStub(channel)->ListWindows(&context, request_, &response);
    if (bytes != nullptr) *bytes = response.ByteSizeLong();
    return status;
  }

  std::vector<std::unique_ptr<FakePage>> pages_;
  v1::ListWindowsRequest request_;
};

TEST_F(UnreadAnswersTest, TakeABoundedShareAndGiveItBack) {
  Start({});
  size_t bytes = 0;
  ASSERT_TRUE(List(Socket(), &bytes).ok());
  ASSERT_GT(bytes, size_t{128} << 10) << "more than gRPC takes without being asked to";
  server_.reset();
  Start({.max_answer_bytes = 4 * (2 * bytes + bytes / 2)});  // two and a half for one peer
  const auto channel = Socket();
  std::vector<std::unique_ptr<UnreadCall>> unread;
  grpc::Status third;
  // One that comes while another's answer is just being read is refused itself; so there may be more than two.
  ASSERT_TRUE(Await([&] {
    if (unread.size() < 16) unread.push_back(std::make_unique<UnreadCall>(channel, request_));
    third = List(Socket());
    return third.error_code() == StatusCode::RESOURCE_EXHAUSTED;
  }));
  EXPECT_THAT(third.error_message(), HasSubstr("others wait to be read already"));
  EXPECT_TRUE(Ask(Socket()).ok()) << "small answers have room";
  EXPECT_GE(server_->counts().refused_answers, 1u);
  unread.clear();
  EXPECT_TRUE(Await([&] { return List(Socket()).ok(); }));
}

TEST_F(UnreadAnswersTest, StreamHoldsOneMessageAtATime) {
  Start({.max_answer_bytes = 4 * 4096});
  grpc::ClientContext context;
  SetDeadline(context);
  v1::WatchWindowsRequest request;
  request.set_job("job");
  request.set_first_window_index(0);
  const auto reader = v1::SyncStatsService::NewStub(Socket())->WatchWindows(&context, request);
  v1::WatchWindowsResponse response;
  for (int i = 0; i < 250; ++i) ASSERT_TRUE(reader->Read(&response)) << i;
  EXPECT_EQ(server_->counts().refused_answers, 0u);
  context.TryCancel();
  reader->Finish();
}

TEST_F(UnreadAnswersTest, NothingIsHeldOnceAllHaveRead) {
  Start({});
  size_t bytes = 0;
  ASSERT_TRUE(List(Socket(), &bytes).ok());
  server_.reset();
  Start({.max_answer_bytes = 4 * (2 * bytes + bytes / 2)});
  const auto channel = Socket();
  grpc::Status status;
  for (int i = 0; i < 4; ++i) {  // together more than there is room for
    ASSERT_TRUE(Await([&] { return (status = List(channel)).ok(); })) << i << ": " << status.error_message();
  }
}

}  // namespace
}  // namespace gradgate
