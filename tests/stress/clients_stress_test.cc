// 128 trainers, each a process of its own with the shim's recorder and link, at ten times the nominal rate of events. What the
// daemon says at the end follows from each rank's number alone: issued = read + overwritten, exactly.

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "shim/link/link.h"
#include "shim/stats/recorder.h"
#include "tests/daemon/main/process.h"
#include "tests/stress/stress_seconds.h"

namespace gradgate {
namespace {

constexpr uint32_t kRanks = 128;
constexpr int64_t kEventsPerSecond = 10'000;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kBeatNs = kSecondNs / 100;
constexpr int64_t kPairsPerBeat = kEventsPerSecond / 100 / 2;  // a collective's issue and its end: two events
constexpr int64_t kBeatsPerWindow = 10;
constexpr int64_t kBurstPairs = 10'000;  // far more than the ring holds
constexpr int64_t kConnectNs = 30 * kSecondNs;

// Every eighth rank issues a burst, so that some of its events are overwritten before anyone can read them.
bool Bursts(uint32_t rank) { return rank % 8 == 0; }
int64_t BeatsOf(uint32_t rank, int seconds) { return seconds * 100 + rank % 10; }
int64_t PairsOf(uint32_t rank, int seconds) {
  return BeatsOf(rank, seconds) * kPairsPerBeat + (Bursts(rank) ? kBurstPairs : 0);
}
uint64_t BytesOf(uint32_t rank, int64_t pair) { return static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(pair % 100); }
uint64_t AllBytesOf(uint32_t rank, int64_t pairs) {
  uint64_t sum = 0;
  for (int64_t pair = 0; pair < pairs; ++pair) sum += BytesOf(rank, pair);
  return sum;
}
int64_t WindowsOf(uint32_t rank, int seconds) { return BeatsOf(rank, seconds) / kBeatsPerWindow; }

void SleepUntil(int64_t at_ns) {
  const timespec at{at_ns / kSecondNs, at_ns % kSecondNs};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0) {
  }
}

class Trainer {
 public:
  Trainer(uint32_t rank, const std::string& directory) : rank_(rank) {
    RecorderIdentity identity;
    identity.job_name = "stress";
    std::fill(std::begin(identity.run_id), std::end(identity.run_id), uint8_t{7});
    identity.rank = identity.local_rank = rank;
    identity.world_size = kRanks;
    if (!Recorder::Create(identity, &recorder_).ok()) _exit(2);
    link_ = std::make_unique<Link>(std::vector<std::string>{directory}, recorder_->fd(), &recorder_->page(), nullptr, nullptr);
  }

  [[noreturn]] void Run(int seconds) {
    const int64_t deadline = Recorder::NowNs() + kConnectNs;
    while (!link_->welcomed()) {
      if (Recorder::NowNs() > deadline) _exit(3);
      link_->Poll(Recorder::NowNs());
      SleepUntil(Recorder::NowNs() + kBeatNs);
    }
    const int64_t begin = Recorder::NowNs();
    const int64_t beats = BeatsOf(rank_, seconds);
    for (int64_t beat = 0; beat < beats; ++beat) {
      IssuePairs(kPairsPerBeat);
      if (beat == beats / 2 && Bursts(rank_)) IssuePairs(kBurstPairs);
      if (beat % kBeatsPerWindow == kBeatsPerWindow - 1) CloseWindow();
      SleepUntil(begin + (beat + 1) * kBeatNs);
    }
    link_->Goodbye(/*failed=*/false);
    _exit(0);
  }

 private:
  void IssuePairs(int64_t count) {
    for (const int64_t end = pairs_ + count; pairs_ < end; ++pairs_) {
      const int64_t now = Recorder::NowNs();
      recorder_->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, BytesOf(rank_, pairs_), 1,
                                  true, 1, now);
      recorder_->CollectiveDone(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, true, 1, now, now + 1000);
    }
  }

  void CloseWindow() {
    page::WindowRecord record{};
    record.window_index = windows_++;
    record.kind = static_cast<uint8_t>(WindowKind::kFull);
    record.end_ns = 1;
    recorder_->WindowClosed(record);
    Recorder::AddOwned(recorder_->page().totals.window_full_count, 1);
  }

  const uint32_t rank_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Link> link_;
  int64_t pairs_ = 0;
  uint64_t windows_ = 0;
};

// CPU time that a process has used so far, and its resident memory, by /proc.
void PrintUsage(pid_t pid, double wall_seconds) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat"), status("/proc/" + std::to_string(pid) + "/status");
  std::string field;
  double ticks = 0;
  for (int i = 1; i <= 15 && stat >> field; ++i) {
    if (i >= 14) ticks += std::atof(field.c_str());
  }
  std::printf("daemon: %.1f %% of a core\n", 100.0 * ticks / static_cast<double>(sysconf(_SC_CLK_TCK)) / wall_seconds);
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) std::printf("daemon: %s\n", line.c_str());
  }
}

grpc::Status GetJobStats(const std::string& directory, v1::GetJobStatsResponse& response) {
  const auto channel = grpc::CreateChannel("unix:" + directory + "/api.sock", grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::GetJobStatsRequest request;
  request.set_job("stress");
  return v1::SyncStatsService::NewStub(channel)->GetJobStats(&context, request, &response);
}

TEST(ClientsStress, IssuedIsReadPlusOverwrittenForEachOf128Ranks) {
  const int seconds = testing::StressSeconds(8);
  std::string directory = ::testing::TempDir() + "/gg_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  testing::Process daemon({GRADGATED, "--dir=" + directory, "--metrics_listen=", "--max_clients=256"});
  ASSERT_THAT(daemon.ReadLine(), ::testing::HasSubstr("ready"));

  const int64_t begin = Recorder::NowNs();
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const pid_t child = fork();  // before there are threads here
    ASSERT_GE(child, 0);
    if (child == 0) Trainer(rank, directory).Run(seconds);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  const double wall_seconds = static_cast<double>(Recorder::NowNs() - begin) / kSecondNs;
  PrintUsage(daemon.pid(), wall_seconds);

  v1::GetJobStatsResponse stats;
  const int64_t deadline = Recorder::NowNs() + kConnectNs;
  do {  // the last goodbyes may still be on their way
    const grpc::Status status = GetJobStats(directory, stats);
    ASSERT_TRUE(status.ok()) << status.error_message();
  } while (stats.job().state() == v1::STATE_RUNNING && Recorder::NowNs() < deadline);
  EXPECT_EQ(stats.job().state(), v1::STATE_FINISHED);
  ASSERT_EQ(stats.ranks_size(), static_cast<int>(kRanks));

  int64_t issued = 0, read = 0, missed = 0;
  for (const v1::RankStats& rank : stats.ranks()) {
    const auto number = static_cast<uint32_t>(rank.rank());
    SCOPED_TRACE(number);
    const int64_t pairs = PairsOf(number, seconds);
    const v1::SyncTotals& totals = rank.totals();
    EXPECT_EQ(totals.event_read_count() + totals.event_missed_count(), 2 * pairs);
    EXPECT_EQ(totals.window_full_count(), WindowsOf(number, seconds));
    EXPECT_EQ(totals.window_missed_count(), 0);
    EXPECT_EQ(totals.gradient_collective_count(), pairs);
    EXPECT_EQ(static_cast<uint64_t>(totals.gradient_bytes()), AllBytesOf(number, pairs));
    if (Bursts(number)) {
      EXPECT_GT(totals.event_missed_count(), 0);
    }
    issued += 2 * pairs;
    read += totals.event_read_count();
    missed += totals.event_missed_count();
  }
  std::printf("%u ranks, %.1f s: %lld events issued (%.0f a second), %lld read, %lld overwritten\n", kRanks, wall_seconds,
              static_cast<long long>(issued), static_cast<double>(issued) / wall_seconds, static_cast<long long>(read),
              static_cast<long long>(missed));
  EXPECT_EQ(read + missed, issued);
  EXPECT_GT(read, 0);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
  rmdir(directory.c_str());
}

}  // namespace
}  // namespace gradgate
