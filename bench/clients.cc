// Ranks that do nothing but count: each has a stats page and a link, as in a trainer, and records a fixed number of events a
// second. What the daemon costs is measured from outside.
//
//   bench_clients DIRECTORY RANKS EVENTS_PER_SECOND [JOBS]
//
// The ranks are those of JOBS jobs, one if not given, as many in each.
//
// Prints "linked" when the daemon has welcomed all, then runs until stdin ends; then "sent N events".

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "shim/link/link.h"
#include "shim/stats/recorder.h"

namespace gradgate::bench {
namespace {

constexpr int64_t kMs = 1'000'000;
// One window as a trainer with four buckets and four micro-steps records it.
constexpr uint32_t kMicroSteps = 4;
constexpr uint32_t kBuckets = 4;
constexpr uint32_t kEventsPerWindow = 2 * kMicroSteps + 2 * (1 + kBuckets) + 1;

class Rank {
 public:
  Rank(const std::string& directory, uint32_t job, uint32_t rank, uint32_t world) {
    RecorderIdentity identity;
    identity.job_name = "bench-" + std::to_string(job);
    std::memcpy(identity.run_id, "bench clients  ", 16);
    std::memcpy(identity.run_id, &job, sizeof(job));
    identity.rank = rank;
    identity.local_rank = rank;
    identity.world_size = world;
    identity.accumulate = kMicroSteps;
    (void)Recorder::Create(identity, &recorder_);
    link_ = std::make_unique<Link>(std::vector{directory}, recorder_->fd(), &recorder_->page(), &Complain, nullptr);
  }

  bool Linked(int64_t now_ns) {
    link_->Poll(now_ns);
    return link_->welcomed();
  }

  // The next event of the endless series of windows.
  void Event(int64_t now_ns) {
    const uint32_t at = static_cast<uint32_t>(sent_++ % kEventsPerWindow);
    page::PageTotals& totals = recorder_->page().totals;
    if (at < 2 * kMicroSteps) {
      if (at == 0) begin_ns_ = now_ns;
      const bool begins = at % 2 == 0;
      if (begins) Recorder::AddOwned(totals.micro_step_count, 1);
      totals.last_event_ns.store(static_cast<uint64_t>(now_ns), std::memory_order_relaxed);
      recorder_->Record(begins ? EventKind::kMicroStepBegin : EventKind::kMicroStepEnd, GroupRole::kDp,
                        CollectiveOp::kAllReduce, TrafficClass::kOther, at / 2 + 1, 1000, now_ns);
    } else if (at < kEventsPerWindow - 1) {
      const uint32_t of = at - 2 * kMicroSteps;
      const TrafficClass traffic = of < 2 ? TrafficClass::kOurs : TrafficClass::kGradient;
      if (of % 2 == 0) {
        recorder_->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, traffic, 1 << 20, 10, of >= 2, 4, now_ns);
      } else {
        recorder_->CollectiveDone(GroupRole::kDp, CollectiveOp::kAllReduce, traffic, true, 4, now_ns - kMs, now_ns);
      }
    } else {
      Close(now_ns);
    }
  }

  uint64_t sent() const { return sent_; }
  void Goodbye() { link_->Goodbye(false); }

 private:
  static void Complain(void* /*user*/, const char* reason, const char* message) {
    std::fprintf(stderr, "bench_clients: %s: %s\n", reason, message);
  }

  void Close(int64_t now_ns) {
    page::WindowRecord record{};
    record.window_index = windows_++;
    record.begin_ns = static_cast<uint64_t>(begin_ns_);
    record.end_ns = static_cast<uint64_t>(now_ns);
    record.kind = static_cast<uint8_t>(WindowKind::kFull);
    record.mode = static_cast<uint8_t>(SyncMode::kWindow);
    record.micro_steps = kMicroSteps;
    record.planned_micro_steps = kMicroSteps;
    record.min_micro_steps = kMicroSteps;
    record.max_micro_steps = kMicroSteps;
    record.last_reduction_at = kMicroSteps;
    record.intended_reductions = 1;
    record.issued_reductions = 1;
    record.suppressed_reductions = kMicroSteps - 1;
    record.intended_collectives = kBuckets;
    record.issued_collectives = kBuckets;
    record.completed_collectives = kBuckets;
    record.gradient_bytes = kBuckets << 20;
    record.boundary_ns = 2 * kMs;
    record.suppressed_median_ns = kMs;
    record.exposed_ns = kMs;
    page::PageTotals& totals = recorder_->page().totals;
    Recorder::AddOwned(totals.window_full_count, 1);
    Recorder::AddOwned(totals.step_count, 1);
    totals.window_index.store(windows_, std::memory_order_relaxed);
    recorder_->WindowClosed(record);
    recorder_->Record(EventKind::kWindowClosed, GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kOther, kMicroSteps, 0,
                      now_ns);
    link_->Poll(now_ns);
  }

  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Link> link_;
  uint64_t sent_ = 0;
  uint64_t windows_ = 0;
  int64_t begin_ns_ = 0;
};

void SleepMs() {
  const timespec pause{0, kMs};
  nanosleep(&pause, nullptr);
}

bool StdinEnded() {
  pollfd in{STDIN_FILENO, POLLIN, 0};
  char byte;
  return poll(&in, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

int Main(const std::string& directory, uint32_t ranks, uint64_t rate, uint32_t jobs) {
  std::vector<std::unique_ptr<Rank>> all;
  for (uint32_t i = 0; i < ranks; ++i) all.push_back(std::make_unique<Rank>(directory, i % jobs, i / jobs, ranks / jobs));
  const int64_t deadline_ns = Recorder::NowNs() + 20'000 * kMs;
  for (auto& rank : all) {
    while (!rank->Linked(Recorder::NowNs())) {
      if (Recorder::NowNs() > deadline_ns) {
        std::fprintf(stderr, "bench_clients: no daemon in %s welcomed all %u ranks within 20 s\n", directory.c_str(), ranks);
        return 1;
      }
      SleepMs();
    }
  }
  std::printf("linked\n");
  std::fflush(stdout);
  const int64_t begin_ns = Recorder::NowNs();
  while (!StdinEnded()) {
    for (auto& rank : all) {
      const auto due =
          static_cast<uint64_t>(static_cast<double>(Recorder::NowNs() - begin_ns) / 1e9 * static_cast<double>(rate));
      while (rank->sent() < due) rank->Event(Recorder::NowNs());
    }
    SleepMs();
  }
  uint64_t sent = 0;
  for (auto& rank : all) {
    rank->Goodbye();
    sent += rank->sent();
  }
  std::printf("sent %llu events\n", static_cast<unsigned long long>(sent));
  return 0;
}

}  // namespace
}  // namespace gradgate::bench

int main(int argc, char** argv) {
  const auto number = [&](int i, uint32_t otherwise) {
    return argc > i ? static_cast<uint32_t>(std::atoi(argv[i])) : otherwise;
  };
  const uint32_t ranks = number(2, 0), rate = number(3, 0), jobs = number(4, 1);
  if (argc < 4 || argc > 5 || jobs == 0 || ranks % jobs != 0) {
    std::fprintf(stderr, "usage: bench_clients DIRECTORY RANKS EVENTS_PER_SECOND [JOBS]; RANKS a multiple of JOBS\n");
    return 2;
  }
  return gradgate::bench::Main(argv[1], ranks, rate, jobs);
}
