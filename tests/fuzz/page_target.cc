// The daemon's whole way from a stats page to an answer: header, identity, counters, both rings, the registry's merge, messages
// and metrics. An input is a trainer's life and what a hostile one writes into its page meanwhile: before it connects, between
// two reads (counters that run backwards, rings that jump).

#include <optional>

#include "daemon/metrics/families.h"
#include "daemon/node/registry.h"
#include "daemon/node/rejection.h"
#include "daemon/rpc/convert.h"
#include "tests/fuzz/answers.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/pages.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr int kMaxSteps = 32;
constexpr int kMaxQueries = 1;

enum Step : unsigned { kDamage, kConnect, kEnd, kTick, kQuery, kStepCount };

class SteppedClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::FromUnixSeconds(1'800'000'000);
};

class Scene {
 public:
  explicit Scene(Pages& pages) : pages_(pages) {}

  void Run(Input& in) {
    const bool while_running = in.Coin();
    for (int i = 0; i < kMaxSteps && !in.empty(); ++i) {
      const uint8_t step = in.Byte();
      Take(static_cast<Step>(step % kStepCount), (step / kStepCount) % Pages::kCount, in);
    }
    if (!connected_any_) Connect(0);
    if (while_running) Ask();
    for (size_t page = 0; page < Pages::kCount; ++page) End(page, Ending::kDisconnected);
    if (!while_running) Ask();
    FUZZ_CHECK(registry_.GetNode().client_count == 0, "a client is left over");
  }

 private:
  void Take(Step step, size_t page, Input& in) {
    switch (step) {
      case kDamage:
        return pages_.Damage(page, in);
      case kConnect:
        return Connect(page);
      case kEnd:
        return End(page, static_cast<Ending>(in.Below(3)));
      case kTick:
        clock_.now += absl::Milliseconds(int64_t{1} << in.Below(32));
        return registry_.Tick();
      case kQuery:
        if (++queries_ <= kMaxQueries) Ask();
        return;
      case kStepCount:
        return;
    }
  }

  void Connect(size_t page) {
    if (connections_[page]) return;
    connected_any_ = true;
    const auto registration = registry_.Register(1000, pages_.fake(page).Map());
    if (registration.ok()) {
      connections_[page] = registration->connection;
      slots_[page] = registration->slot;
      seen_[page].reset();
    } else {
      FUZZ_CHECK(RejectionOf(registration.status()) != Rejection::kOther, registration.status().ToString());
    }
  }

  void End(size_t page, Ending ending) {
    if (!connections_[page]) return;
    const std::optional<RankView> view = registry_.End(*connections_[page], ending);
    FUZZ_CHECK(view.has_value(), "a connection ended by itself");
    FUZZ_CHECK(view->state != RankState::kRunning, "still running after its end");
    if (seen_[page]) CheckGrown(*seen_[page], view->counters);
    connections_[page].reset();
  }

  static void CheckGrown(const Counters& before, const Counters& after) {
    const absl::Status grown = CheckGrowth(before, after);
    FUZZ_CHECK(grown.ok(), grown.ToString());
    const absl::Status fits = CheckRange(after);
    FUZZ_CHECK(fits.ok(), fits.ToString());
  }

  // Every question of every client.
  void Ask() {
    for (const JobView& job : registry_.ListJobs()) {
      CheckMessage(ToMessage(job), true);
      const auto stats = registry_.GetJobStats(job.run_id);
      FUZZ_CHECK(stats.ok() || absl::IsInvalidArgument(stats.status()), stats.status().ToString());
      if (stats.ok()) CheckMessage(ToMessage(*stats), true);
      if (!job.job_name.empty()) FUZZ_CHECK(registry_.FindJob(job.job_name).ok(), job.job_name);
      AskWindows(job.id);
    }
    const NodeView node = registry_.GetNode();
    for (const RankView& rank : node.ranks) Remember(rank);
    CheckFamilies(BuildFamilies(node, rejections_, "0"));
  }

  void AskWindows(uint64_t job_id) {
    std::optional<uint64_t> last;
    const auto upward = registry_.ListWindows(job_id, std::nullopt, false, 6);
    FUZZ_CHECK(upward.ok(), upward.status().ToString());
    for (const WindowView& window : *upward) {
      FUZZ_CHECK(!last || window.window_index > *last, "windows out of order");
      last = window.window_index;
      CheckMessage(ToMessage(window), true);
    }
    WatchPosition position{job_id, 0};
    for (int i = 0; i < 4; ++i) {
      const uint64_t before = position.next_index;
      const auto step = registry_.NextForWatch(position);
      FUZZ_CHECK(step.ok(), step.status().ToString());
      if (!step->window) break;
      FUZZ_CHECK(before + step->skipped_count == step->window->window_index, "windows lost and not told");
    }
  }

  // Counters that the registry took over never ran backwards, and fit.
  void Remember(const RankView& rank) {
    for (size_t page = 0; page < Pages::kCount; ++page) {
      if (!connections_[page] || rank.state != RankState::kRunning || rank.slot != slots_[page]) continue;
      if (seen_[page]) CheckGrown(*seen_[page], rank.counters);
      seen_[page] = rank.counters;
    }
  }

  Pages& pages_;
  SteppedClock clock_;
  RejectionCounts rejections_;
  Registry registry_{
      RegistryOptions{
          .window_history = 16, .max_ended_jobs = 2, .max_ranks_per_job = 2, .max_ranks = 3, .max_window_records = 24},
      &clock_};
  std::optional<uint64_t> connections_[Pages::kCount];
  uint32_t slots_[Pages::kCount] = {};
  std::optional<Counters> seen_[Pages::kCount];
  int queries_ = 0;
  bool connected_any_ = false;
};

unsigned At(Step step, unsigned page) { return step + kStepCount * page; }

}  // namespace

std::vector<std::string> Seeds() {
  const auto word = [](size_t offset) { return static_cast<uint16_t>(offset / 8); };
  std::vector<std::string> seeds;
  // A good life, with one window closed between two reads.
  seeds.push_back(SeedBuilder()
                      .Byte(1)
                      .Byte(At(kConnect, 0))
                      .Byte(At(kDamage, 0))
                      .Byte(damage::kWindow)
                      .Byte(0)
                      .Byte(At(kTick, 0))
                      .Byte(3)
                      .Byte(At(kEnd, 0))
                      .Byte(0));
  // Two ranks, one with full rings; a torn window; a restart of the same rank.
  seeds.push_back(SeedBuilder()
                      .Byte(1)
                      .Byte(At(kConnect, 1))
                      .Byte(At(kConnect, 0))
                      .Byte(At(kDamage, 0))
                      .Byte(damage::kTear)
                      .Byte(0)
                      .Byte(At(kTick, 0))
                      .Byte(1)
                      .Byte(At(kQuery, 0))
                      .Byte(At(kEnd, 0))
                      .Byte(2)
                      .Byte(At(kConnect, 3)));
  // Another job; an hour passes.
  seeds.push_back(SeedBuilder()
                      .Byte(1)
                      .Byte(At(kConnect, 2))
                      .Byte(At(kDamage, 2))
                      .Byte(damage::kEvent)
                      .Number(uint64_t{5})
                      .Number(uint64_t{1'000})
                      .Byte(At(kTick, 2))
                      .Byte(1)
                      .Byte(At(kEnd, 2))
                      .Byte(1)
                      .Byte(At(kTick, 0))
                      .Byte(31));
  // A counter that runs backwards between two reads; one too large.
  seeds.push_back(SeedBuilder()
                      .Byte(1)
                      .Byte(At(kConnect, 0))
                      .Byte(At(kDamage, 0))
                      .Byte(damage::kAdd)
                      .Number(word(offsetof(page::StatsPage, totals.step_count)))
                      .Byte(0xff)
                      .Byte(At(kTick, 0))
                      .Byte(0));
  for (const size_t offset : {offsetof(page::StatsPage, totals.item_count), offsetof(page::StatsPage, ring.event_next),
                              offsetof(page::StatsPage, ring.window_next), offsetof(page::StatsPage, cells[2][3].bytes)}) {
    seeds.push_back(SeedBuilder()
                        .Byte(1)
                        .Byte(At(kConnect, 0))
                        .Byte(At(kDamage, 0))
                        .Byte(damage::kWord)
                        .Number(word(offset))
                        .Number(uint64_t{1} << 61)
                        .Byte(At(kTick, 0))
                        .Byte(0)
                        .Byte(At(kTick, 0))
                        .Byte(0));
  }
  // Before it connects: each field of header and identity.
  for (unsigned hot = 0; hot < 16; ++hot) {
    seeds.push_back(SeedBuilder().Byte(1).Byte(At(kDamage, 0)).Byte(damage::kHot).Byte(hot).Byte(14).Byte(At(kConnect, 0)));
  }
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const pages = new gradgate::fuzz::Pages;
  gradgate::fuzz::Input in(data, size);
  gradgate::fuzz::Scene(*pages).Run(in);
  pages->Mend();
  return 0;
}
