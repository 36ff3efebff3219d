// What the hot path costs: a window decision, a recorded event, with and without the clock, and how many system calls they
// make.
//
//   bench_micro [ROUNDS]

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include "bench/c_session.h"
#include "bench/interleave.h"
#include "bench/system_calls.h"
#include "bench/temporary_directory.h"
#include "shim/core/window_engine.h"
#include "shim/stats/recorder.h"

namespace gradgate::bench {
namespace {

constexpr uint32_t kBatch = 2000;  // a fraction of a millisecond: seldom interrupted

template <typename Body>
double NsEach(Body&& body) {
  const int64_t begin = Recorder::NowNs();
  for (uint32_t i = 0; i < kBatch; ++i) body();
  return static_cast<double>(Recorder::NowNs() - begin) / kBatch;
}

void Event(Recorder& recorder, int64_t now_ns) {
  recorder.Record(EventKind::kMicroStepBegin, GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kOther, 1, 0, now_ns);
}

std::unique_ptr<Recorder> MakeRecorder() {
  std::unique_ptr<Recorder> recorder;
  (void)Recorder::Create({.job_name = "bench"}, &recorder);
  return recorder;
}

void RunOn(uint32_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// Times that this thread was put off its core, or gave it up.
int64_t Interruptions() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw + usage.ru_nvcsw;
}

// A thread on another core that records as fast as it can while measured code does the same.
class Rival {
 public:
  explicit Rival(Recorder& recorder) : thread_([this, &recorder] { Run(recorder); }) { RunOn(0); }
  ~Rival() {
    end_ = true;
    thread_.join();
  }
  // A batch during which neither was interrupted. NaN: the other thread got no core of its own, however often it was tried.
  double NsEach(Recorder& recorder) {
    double each = std::nan("");
    on_ = true;
    for (int tries = 0; tries < 200 && std::isnan(each); ++tries) {
      const int64_t interruptions = Interruptions();
      const uint64_t before = events_;
      const double took = bench::NsEach([&] { Event(recorder, Recorder::NowNs()); });
      if (events_ - before > kBatch / 2 && Interruptions() == interruptions) each = took;
    }
    on_ = false;
    return each;
  }

 private:
  void Run(Recorder& recorder) {
    RunOn(1);
    while (!end_) {
      if (!on_) {
        std::this_thread::yield();
        continue;
      }
      Event(recorder, Recorder::NowNs());
      events_.store(events_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
  }
  std::atomic<bool> on_{false}, end_{false};
  alignas(64) std::atomic<uint64_t> events_{0};
  std::thread thread_;
};

// A rank of a world of 1 or 2 that is never at a boundary. Rank 1 sits in the same process and waits.
class Suppressed {
 public:
  explicit Suppressed(uint32_t world) {
    const std::string url = "file://" + directory_.path("store");
    SessionShape shape{.daemon_dir = directory_.path("nobody")};
    std::thread other([&] {
      if (world == 1) return;
      groups_[1] = std::make_unique<Group>(url, 1, world);
      sessions_[1] = std::make_unique<CSession>(*groups_[1], shape, std::vector{Tensor(1024)});
    });
    groups_[0] = std::make_unique<Group>(url, 0, world);
    sessions_[0] = std::make_unique<CSession>(*groups_[0], shape, std::vector{Tensor(1024)});
    other.join();
  }
  void MicroStep() { Keep(sessions_[0]->MicroStep(GG_LAST_NO, &error_)); }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<Group> groups_[2];
  std::unique_ptr<CSession> sessions_[2];
  gg_error error_;
};

void PrintOne(const char* name, const char* unit, double value) { Print({name, unit, nullptr, {value}}); }

// From one event to the next: one clock and one record.
void Latencies(bool record, uint32_t rounds) {
  constexpr uint32_t kEvents = 1'000'000;
  const auto recorder = MakeRecorder();
  std::vector<int64_t> took(kEvents);
  Series median{record ? "event_clock_p50" : "clock_p50", "ns", nullptr};
  Series tail{record ? "event_clock_p999" : "clock_p999", "ns", nullptr};
  for (uint32_t round = 0; round < rounds; ++round) {
    int64_t last = Recorder::NowNs();
    for (int64_t& each : took) {
      const int64_t now = Recorder::NowNs();
      if (record) Event(*recorder, now);
      each = now - last;
      last = now;
    }
    for (auto [series, index] : {std::pair(&median, kEvents / 2), std::pair(&tail, kEvents - kEvents / 1000)}) {
      std::nth_element(took.begin(), took.begin() + index, took.end());
      (round % 2 == 0 ? series->samples : series->again).push_back(static_cast<double>(took[index]));
    }
  }
  Print(median);
  Print(tail);
}

void CountCalls() {
  constexpr uint32_t kTimes = 200'000;
  std::unique_ptr<Recorder> recorder;
  const auto events = [&] {
    for (uint32_t i = 0; i < kTimes; ++i) Event(*recorder, Recorder::NowNs());
  };
  PrintOne("event_system_calls", "calls", static_cast<double>(CountSystemCalls([&] { recorder = MakeRecorder(); }, events)));
  for (const uint32_t world : {1u, 2u}) {
    std::unique_ptr<Suppressed> rank;
    const auto micro_steps = [&] {
      for (uint32_t i = 0; i < kTimes; ++i) rank->MicroStep();
    };
    const int64_t calls = CountSystemCalls([&] { rank = std::make_unique<Suppressed>(world); }, micro_steps);
    PrintOne(world == 1 ? "micro_step_1_system_calls" : "micro_step_2_system_calls", "calls", static_cast<double>(calls));
  }
}

int Main(uint32_t rounds) {
  CountCalls();  // forks: before there are threads
  const auto recorder = MakeRecorder(), shared = MakeRecorder();
  WindowEngine engine({.accumulate = 4});
  {
    Suppressed one(1), two(2);
    std::vector<Series> series = {
        {"clock", "ns", [] { return NsEach([] { Keep(Recorder::NowNs()); }); }},
        {"event", "ns", [&] { return NsEach([&] { Event(*recorder, 1); }); }},
        {"event_clock", "ns", [&] { return NsEach([&] { Event(*recorder, Recorder::NowNs()); }); }},
        {"engine", "ns",
         [&] {
           return NsEach([&] {
             Keep(engine.BeginMicroStep(Last::kNo));
             Keep(engine.EndMicroStep());
           });
         }},
        {"micro_step_1", "ns", [&] { return NsEach([&] { one.MicroStep(); }); }},
        {"micro_step_2", "ns", [&] { return NsEach([&] { two.MicroStep(); }); }},
    };
    RunInterleaved(series, rounds);
    for (const Series& each : series) Print(each);
  }
  Latencies(false, std::max(4u, rounds / 10));
  Latencies(true, std::max(4u, rounds / 10));
  Rival rival(*shared);
  std::vector<Series> threads = {{"event_clock_two_threads", "ns", [&] { return rival.NsEach(*shared); }}};
  RunInterleaved(threads, rounds);
  Print(threads[0]);
  return 0;
}

}  // namespace
}  // namespace gradgate::bench

int main(int argc, char** argv) { return gradgate::bench::Main(argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 20); }
