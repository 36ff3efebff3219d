// Thousands of hostile gRPC clients against the real binary, by api.sock and by TCP: what it holds stays bounded, and a client
// and a trainer beside them are served.

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/certificates.h"
#include "daemon/node/unique_fd.h"
#include "gmock/gmock.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/fake_trainer.h"
#include "tests/daemon/main/process.h"
#include "tests/daemon/sanitized.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using testing::FakePage;
using testing::FakeTrainer;
using ::testing::HasSubstr;
using Kind = FakeTrainer::Answer::Kind;

constexpr int kConnections = 3000;
constexpr int kMaxConnections = 64;
constexpr int64_t kOwnDescriptors = 64;  // of the daemon without clients
constexpr int64_t kMaxGrowthKib = testing::kSanitized ? 1 << 20 : 96 << 10;

int64_t DescriptorsOf(pid_t pid) {
  DIR* descriptors = opendir(absl::StrCat("/proc/", pid, "/fd").c_str());
  int64_t count = -2;  // "." and ".."
  while (readdir(descriptors) != nullptr) ++count;
  closedir(descriptors);
  return count;
}

int64_t ResidentKibOf(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::strtoll(line.c_str() + 6, nullptr, 10);
  }
  return -1;
}

class HostileRpcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    authority_ = *cli::MakeAuthority("test", absl::Now(), absl::Hours(1));
    const auto server =
        *cli::MakeCertificate(authority_, {"server", {"127.0.0.1"}, cli::CertificateUse::kNode, absl::Hours(1)}, absl::Now());
    Write("ca.pem", authority_.certificate);
    Write("cert.pem", server.certificate);
    Write("key.pem", server.key);
    daemon_ = std::make_unique<testing::Process>(
        std::vector<std::string>{GRADGATED, "--dir=" + directory_.path(), "--metrics_listen=", "--grpc_listen=127.0.0.1:0",
                                 absl::StrCat("--max_connections=", kMaxConnections), "--tls_cert=" + (directory_ / "cert.pem"),
                                 "--tls_key=" + (directory_ / "key.pem"), "--tls_client_ca=" + (directory_ / "ca.pem")});
    const std::string ready = daemon_->ReadLine();
    ASSERT_THAT(ready, HasSubstr("ready"));
    port_ = std::atoi(ready.c_str() + ready.find("127.0.0.1:") + 10);
    trainer_ = std::make_unique<FakeTrainer>(directory_ / "shim.sock");
    ASSERT_TRUE(trainer_->SendHello(page_.fd()));
    ASSERT_EQ(trainer_->Receive().kind, Kind::kWelcome);
  }
  void TearDown() override {
    trainer_->Disconnect();
    daemon_->Signal(SIGTERM);
    EXPECT_EQ(daemon_->Wait(), 0);
  }

  void Write(const std::string& name, const std::string& text) { std::ofstream(directory_ / name) << text; }

  // Each with a connection of its own.
  std::shared_ptr<grpc::Channel> Socket() {
    return Open("unix:" + (directory_ / "api.sock"), grpc::InsecureChannelCredentials());
  }
  std::shared_ptr<grpc::Channel> Tls() {
    const auto client =
        *cli::MakeCertificate(authority_, {"client", {}, cli::CertificateUse::kClient, absl::Hours(1)}, absl::Now());
    return Open(absl::StrCat("127.0.0.1:", port_),
                grpc::SslCredentials({authority_.certificate, client.key, client.certificate}));
  }
  static std::shared_ptr<grpc::Channel> Open(const std::string& target, const std::shared_ptr<grpc::ChannelCredentials>& how) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(target, how, arguments);
  }
  // What the trainer has counted is what is answered.
  ::testing::AssertionResult Served(const std::shared_ptr<grpc::Channel>& channel) {
    page_.page().totals.step_count.store(++steps_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::GetJobStatsRequest request;
    request.set_job("job");
    v1::GetJobStatsResponse response;
    const grpc::Status status = v1::SyncStatsService::NewStub(channel)->GetJobStats(&context, request, &response);
    if (!status.ok()) return ::testing::AssertionFailure() << status.error_message();
    if (response.totals().step_count() == static_cast<int64_t>(steps_)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << response.totals().step_count() << " instead of " << steps_;
  }
  bool ServedSoon(const std::function<std::shared_ptr<grpc::Channel>()>& open) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (absl::Now() < deadline) {
      if (Served(open())) return true;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  }

  UniqueFd ConnectSocket() {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (directory_ / "api.sock").c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << std::strerror(errno);
    return fd;
  }
  UniqueFd ConnectTcp() {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{}, there{};
    own.sin_family = there.sin_family = AF_INET;
    inet_pton(AF_INET, "127.0.0.2", &own.sin_addr);
    inet_pton(AF_INET, "127.0.0.1", &there.sin_addr);
    there.sin_port = htons(static_cast<uint16_t>(port_));
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0) << std::strerror(errno);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&there), sizeof(there)), 0) << std::strerror(errno);
    return fd;
  }

  // Connects again and again, says something, and keeps the last thousand; looks at the daemon meanwhile.
  template <typename Connect>
  void Flood(Connect connect, const std::string& bytes) {
    const int64_t before_kib = ResidentKibOf(daemon_->pid());
    std::vector<UniqueFd> kept(500);
    int64_t most = 0;
    for (int i = 0; i < kConnections; ++i) {
      UniqueFd fd = connect();
      (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      kept[static_cast<size_t>(i) % kept.size()] = std::move(fd);
      if (i % 100 == 0) most = std::max(most, DescriptorsOf(daemon_->pid()));
    }
    EXPECT_LE(most, kOwnDescriptors + 2 * kMaxConnections);
    EXPECT_LE(ResidentKibOf(daemon_->pid()) - before_kib, kMaxGrowthKib);
  }

  testing::TempDir directory_;
  cli::CertificateAndKey authority_;
  std::unique_ptr<testing::Process> daemon_;
  int port_ = 0;
  FakePage page_{{}};
  std::unique_ptr<FakeTrainer> trainer_;
  uint64_t steps_ = 0;
};

TEST_F(HostileRpcTest, SilentConnectionsByTcp) {
  const auto before = Tls();
  ASSERT_TRUE(Served(before));
  Flood([this] { return ConnectTcp(); }, "");
  EXPECT_TRUE(Served(before));
  EXPECT_TRUE(ServedSoon([this] { return Tls(); })) << "one address does not keep out another";
  EXPECT_TRUE(Served(Socket()));
}

TEST_F(HostileRpcTest, GarbageByTcp) {
  Flood([this] { return ConnectTcp(); }, std::string(8192, '\xff'));
  EXPECT_TRUE(ServedSoon([this] { return Tls(); }));
}

TEST_F(HostileRpcTest, SilentConnectionsBySocket) {
  const auto before = Socket();
  ASSERT_TRUE(Served(before));
  Flood([this] { return ConnectSocket(); }, "");
  EXPECT_TRUE(Served(before));
  EXPECT_TRUE(Served(Tls()));
  EXPECT_TRUE(ServedSoon([this] { return Socket(); })) << "once they have gone";
}

// The preface, settings, and the beginning of a frame of 16 MB that never comes.
TEST_F(HostileRpcTest, HalfFramesBySocket) {
  const auto before = Socket();
  ASSERT_TRUE(Served(before));
  const std::string begun = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\x00\x00\x00\x04\x00\x00\x00\x00\x00", 9) +
                            std::string("\xff\xff\xff\x00\x00\x00\x00\x00\x01", 9);
  Flood([this] { return ConnectSocket(); }, begun);
  EXPECT_TRUE(Served(before));
  EXPECT_TRUE(ServedSoon([this] { return Socket(); }));
}

TEST_F(HostileRpcTest, LargeRequestsByAllWays) {
  const int64_t before_kib = ResidentKibOf(daemon_->pid());
  v1::GetJobStatsRequest request;
  request.set_job(std::string(size_t{16} << 20, 'j'));
  for (const auto& channel : {Socket(), Tls()}) {
    for (int i = 0; i < 8; ++i) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      v1::GetJobStatsResponse response;
      EXPECT_EQ(v1::SyncStatsService::NewStub(channel)->GetJobStats(&context, request, &response).error_code(),
                grpc::StatusCode::RESOURCE_EXHAUSTED);
    }
    EXPECT_TRUE(Served(channel));
  }
  EXPECT_LE(ResidentKibOf(daemon_->pid()) - before_kib, kMaxGrowthKib);
}

}  // namespace
}  // namespace gradgate
