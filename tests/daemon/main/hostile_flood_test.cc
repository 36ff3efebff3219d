// Thousands of hostile connections against the real binary: what it holds stays bounded, each one turned away is counted, and a
// trainer beside them loses nothing.

#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "daemon/node/descriptor_bin.h"
#include "daemon/node/rejection.h"
#include "gmock/gmock.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/fake_trainer.h"
#include "tests/daemon/hostile.h"
#include "tests/daemon/main/process.h"
#include "tests/daemon/sanitized.h"
#include "tests/daemon/witness.h"

namespace gradgate {
namespace {

using testing::FakePage;
using testing::FakeTrainer;
using ::testing::HasSubstr;
using testing::Tally;
using testing::Witness;
using Kind = FakeTrainer::Answer::Kind;

constexpr int kConnections = 3000;
constexpr int kMaxClients = 64;
constexpr int kMaxClientsPerUser = 48;
constexpr int kStepsOfGood = 7;
constexpr int64_t kOwnDescriptors = 48;  // of the daemon without trainers: sockets, epolls, gRPC's, CivetWeb's
constexpr int64_t kMaxGrowthKib = testing::kSanitized ? 1 << 20 : 32 << 10;

// What the daemon holds, by /proc.
struct Held {
  int64_t resident_kib = 0;
  int64_t descriptors = 0;
};

Held Measure(pid_t pid) {
  Held held;
  const std::string directory = "/proc/" + std::to_string(pid);
  std::ifstream status(directory + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) held.resident_kib = std::strtoll(line.c_str() + 6, nullptr, 10);
  }
  DIR* descriptors = opendir((directory + "/fd").c_str());
  EXPECT_NE(descriptors, nullptr);
  while (readdir(descriptors) != nullptr) ++held.descriptors;
  closedir(descriptors);
  held.descriptors -= 2;  // "." and ".."
  return held;
}

std::string Scrape(int port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const timeval deadline{20, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return "no connection";
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  if (send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "no request";
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = recv(socket.get(), buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, got);
  return answer;
}

// The value of the series that begins so, or −1.
int64_t ValueOf(const std::string& metrics, const std::string& series) {
  const size_t at = metrics.find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::strtoll(metrics.c_str() + at + series.size() + 2, nullptr, 10);
}

class HostileFloodTest : public ::testing::Test {
 protected:
  HostileFloodTest() {
    std::string pattern = ::testing::TempDir() + "/gg_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    daemon_ = std::make_unique<testing::Process>(std::vector<std::string>{
        GRADGATED, "--dir=" + directory_, "--metrics_listen=127.0.0.1:0", "--hello_timeout=200ms", "--max_ended_jobs=16",
        "--max_clients=" + std::to_string(kMaxClients), "--max_clients_per_user=" + std::to_string(kMaxClientsPerUser),
        "--max_window_records=20000", "--window_history=16384"});
    const std::string ready = daemon_->ReadLine();
    EXPECT_THAT(ready, HasSubstr("ready"));
    const size_t port = ready.find("127.0.0.1:");
    port_ = port == std::string::npos ? 0 : std::atoi(ready.c_str() + port + 10);
    channel_ = grpc::CreateChannel("unix:" + directory_ + "/api.sock", grpc::InsecureChannelCredentials());
  }
  ~HostileFloodTest() override {
    daemon_->Signal(SIGTERM);
    EXPECT_EQ(daemon_->Wait(), 0);
    rmdir(directory_.c_str());
  }

  std::string shim() const { return directory_ + "/shim.sock"; }
  int64_t Rejected(const std::string& reason) {
    return ValueOf(Scrape(port_), "gradgate_rejections_total{reason=\"" + reason + "\"}");
  }

  v1::GetJobStatsResponse GetJobStats(const std::string& job) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::GetJobStatsRequest request;
    request.set_job(job);
    v1::GetJobStatsResponse response;
    const grpc::Status status = v1::SyncStatsService::NewStub(channel_)->GetJobStats(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  // Pages through all windows kept of a job; expects that their indices begin at 0 and have no gap.
  uint64_t CountWindows(const std::string& job) {
    const auto stub = v1::SyncStatsService::NewStub(channel_);
    v1::ListWindowsRequest request;
    request.set_job(job);
    request.set_page_size(500);
    uint64_t count = 0;
    do {
      grpc::ClientContext context;
      v1::ListWindowsResponse response;
      const grpc::Status status = stub->ListWindows(&context, request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      for (const v1::Window& window : response.windows()) {
        EXPECT_EQ(static_cast<uint64_t>(window.window_index()), count++);
      }
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return count;
  }

  void ExpectUnharmed(Witness& witness) {
    const Tally tally = witness.Finish();
    EXPECT_FALSE(witness.was_disturbed());
    v1::GetJobStatsResponse stats;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    do {
      stats = GetJobStats(testing::kWitnessJob);
    } while (stats.job().state() == v1::STATE_RUNNING && std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(stats.job().state(), v1::STATE_FINISHED);
    const v1::SyncTotals& totals = stats.totals();
    EXPECT_EQ(static_cast<uint64_t>(totals.window_full_count()), tally.windows);
    EXPECT_EQ(static_cast<uint64_t>(totals.micro_step_count()), tally.micro_steps);
    EXPECT_EQ(static_cast<uint64_t>(totals.gradient_collective_count()), tally.collectives);
    EXPECT_EQ(static_cast<uint64_t>(totals.gradient_bytes()), tally.bytes);
    EXPECT_EQ(static_cast<uint64_t>(totals.event_read_count()), tally.events);
    EXPECT_EQ(totals.event_missed_count(), 0);
    EXPECT_EQ(totals.window_missed_count(), 0);
    EXPECT_EQ(CountWindows(testing::kWitnessJob), tally.windows);
  }

  std::string directory_;
  std::unique_ptr<testing::Process> daemon_;
  int port_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
};

// One connection each; the reason that it must be counted under, or "" where it is no offence.
class Attacker {
 public:
  Attacker(std::string path, uint64_t seed) : path_(std::move(path)), random_(seed) {}

  std::string Attack(int number) {
    FakeTrainer client(path_);
    EXPECT_TRUE(client.connected());
    switch (random_() % 8) {
      case 0:
        return "";  // comes and goes
      case 1:
        return Refused(client, "frame_short", std::string(random_() % 15 + 1, 'x'));
      case 2:
        return Refused(client, "frame_long", std::string(random_() % 50'000 + 513, 'x'));
      case 3:
        return Refused(client, "frame_magic", Noise(random_() % 497 + 16));
      case 4:
        return Refused(client, "descriptor_missing", Hello());
      case 5:
        return Refused(client, "descriptor_surplus", Hello(), std::vector<int>(random_() % 250 + 2, wrong_[0].fd.get()));
      case 6: {
        const testing::WrongDescriptor& wrong = wrong_[random_() % wrong_.size()];
        return Refused(client, std::string(Name(wrong.reason)), Hello(), {wrong.fd.get()});
      }
      default:
        return ShortLivedJob(client, number);
    }
  }

 private:
  static std::string Hello() {
    const link::HelloFrame hello = testing::MakeHello();
    return std::string(reinterpret_cast<const char*>(&hello), sizeof(hello));
  }
  std::string Noise(size_t size) {
    std::string noise(size, '\0');
    for (char& c : noise) c = static_cast<char>(random_());
    noise[0] = '\0';  // never our magic
    return noise;
  }
  static std::string Refused(FakeTrainer& client, std::string reason, const std::string& bytes,
                             const std::vector<int>& descriptors = {}) {
    EXPECT_TRUE(client.Send(bytes.data(), bytes.size(), descriptors));
    EXPECT_EQ(client.Receive().kind, Kind::kReject) << reason;
    EXPECT_EQ(client.Receive().kind, Kind::kEnd) << reason;
    return reason;
  }
  std::string ShortLivedJob(FakeTrainer& client, int number) {
    std::string run_id(16, '\0');
    std::memcpy(run_id.data(), &number, sizeof(number));
    FakePage page({.job_name = "flood", .run_id_bytes = run_id});
    for (uint64_t i = 0; i < page::kWindowSlots; ++i) page.CloseWindow();
    EXPECT_TRUE(client.SendHello(page.fd()));
    EXPECT_EQ(client.Receive().kind, Kind::kWelcome);
    return "";
  }

  const std::string path_;
  std::mt19937_64 random_;
  const std::vector<testing::WrongDescriptor> wrong_ = testing::WrongDescriptors();
};

TEST_F(HostileFloodTest, EachIsCountedAndTheDaemonStaysSmall) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Witness witness(directory_);
  ASSERT_TRUE(witness.AwaitWelcome());
  Attacker attacker(shim(), seed);
  std::map<std::string, int64_t> expected;
  for (int i = 0; i < kConnections / 10; ++i) ++expected[attacker.Attack(i)];  // the daemon's buffers and ended jobs fill up
  const Held warm = Measure(daemon_->pid());
  Held most;
  for (int i = kConnections / 10; i < kConnections; ++i) {
    ++expected[attacker.Attack(i)];
    if (i % 50 != 0) continue;
    const Held now = Measure(daemon_->pid());
    most.resident_kib = std::max(most.resident_kib, now.resident_kib);
    most.descriptors = std::max(most.descriptors, now.descriptors);
  }
  EXPECT_LE(most.resident_kib, warm.resident_kib + kMaxGrowthKib) << "KiB";
  constexpr int64_t kMaxInOnePacket = 253;
  EXPECT_LE(most.descriptors,
            kOwnDescriptors + kMaxClients + static_cast<int64_t>(DescriptorBin::kFullCount) + kMaxInOnePacket);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (Measure(daemon_->pid()).descriptors > kOwnDescriptors && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_LE(Measure(daemon_->pid()).descriptors, kOwnDescriptors) << "once nobody attacks";
  RecordProperty("resident_kib", std::to_string(most.resident_kib));
  RecordProperty("descriptors", std::to_string(most.descriptors));
  std::printf("resident %lld KiB after %d connections, at most %lld KiB; at most %lld descriptors\n",
              static_cast<long long>(warm.resident_kib), kConnections / 10, static_cast<long long>(most.resident_kib),
              static_cast<long long>(most.descriptors));
  expected.erase("");
  for (const auto& [reason, count] : expected) EXPECT_EQ(Rejected(reason), count) << reason;
  ExpectUnharmed(witness);
}

TEST_F(HostileFloodTest, CrowdAtOnceIsRefusedBeyondTheUsersShare) {
  Witness witness(directory_);
  ASSERT_TRUE(witness.AwaitWelcome());
  const Held before = Measure(daemon_->pid());
  std::vector<std::unique_ptr<FakeTrainer>> crowd;
  for (int i = 0; i < 500; ++i) crowd.push_back(std::make_unique<FakeTrainer>(shim()));
  const Held during = Measure(daemon_->pid());
  EXPECT_LE(during.descriptors, before.descriptors + kMaxClientsPerUser + 64);
  for (const auto& client : crowd) EXPECT_EQ(client->Receive().kind, Kind::kReject);  // as surplus or as silent
  crowd.clear();
  EXPECT_EQ(Rejected("user_limit") + Rejected("hello_timeout"), 500);
  EXPECT_GE(Rejected("hello_timeout"), kMaxClientsPerUser - 1);
  EXPECT_EQ(Rejected("client_limit"), 0);
  ExpectUnharmed(witness);
}

TEST_F(HostileFloodTest, LingeringDescriptorsDoNotStopIt) {
  Witness witness(directory_);
  ASSERT_TRUE(witness.AwaitWelcome());
  std::vector<testing::LingeringSocket> lingering(8);
  std::vector<std::unique_ptr<FakeTrainer>> hostile;
  daemon_->Signal(SIGSTOP);  // so that its descriptors are the last ones
  for (testing::LingeringSocket& one : lingering) {
    hostile.push_back(std::make_unique<FakeTrainer>(shim()));
    const link::HelloFrame hello = testing::MakeHello();
    ASSERT_TRUE(hostile.back()->Send(&hello, sizeof(hello), {one.fd.get()}));
    one.fd.reset();
  }
  daemon_->Signal(SIGCONT);
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& client : hostile) EXPECT_EQ(client->Receive().kind, Kind::kReject);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(Rejected("page_not_memfd"), 8);
  ExpectUnharmed(witness);
}

TEST_F(HostileFloodTest, ScribbledPageIsAnsweredForAndSpoilsNoOther) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Witness witness(directory_);
  ASSERT_TRUE(witness.AwaitWelcome());
  FakePage page({});
  page.page().totals.step_count.store(kStepsOfGood);
  FakeTrainer hostile(shim());
  ASSERT_TRUE(hostile.SendHello(page.fd()) && hostile.Receive().kind == Kind::kWelcome);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    for (int word = 0; word < 20'000; ++word) testing::ScribbleWord(page.page(), random);
    EXPECT_GE(GetJobStats("job").totals().step_count(), kStepsOfGood);
    grpc::ClientContext context;
    v1::ListWindowsRequest request;
    request.set_job("job");
    v1::ListWindowsResponse response;
    const grpc::Status status = v1::SyncStatsService::NewStub(channel_)->ListWindows(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_THAT(Scrape(port_), HasSubstr("gradgate_build_info"));
  }
  EXPECT_GT(ValueOf(Scrape(port_), "gradgate_page_errors_total{kind=\"counters_invalid\"}"), 0);
  ExpectUnharmed(witness);
}

}  // namespace
}  // namespace gradgate
