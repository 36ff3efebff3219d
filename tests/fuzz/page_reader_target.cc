// The reader of stats pages alone, many times as fast as with all that is made of it: header, identity, counters, rings. The
// page changes between two reads and, from within the reader's own callbacks, during one.

#include "daemon/node/counters.h"
#include "daemon/node/page_reader.h"
#include "daemon/node/rejection.h"
#include "daemon/node/text_check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/pages.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr int kMaxSteps = 48;
constexpr int kMaxFullReads = 2;

enum Step : unsigned { kDamage, kHeader, kCounters, kWindows, kEvents, kStepCount };

class Reading {
 public:
  explicit Reading(Pages& pages) : pages_(pages) {}

  void Run(Input& in) {
    page_ = in.Below(Pages::kCount);
    for (int i = 0; i < kMaxSteps && !in.empty(); ++i) {
      const uint8_t step = in.Byte();
      const auto pass = static_cast<Pass>((step / kStepCount) % 3);
      switch (static_cast<Step>(step % kStepCount)) {
        case kDamage:
          pages_.Damage(page_, in);
          break;
        case kHeader:
          CheckHead();
          break;
        case kCounters:
          CheckCounters();
          break;
        case kWindows:
          CheckWindows(pass, in);
          break;
        case kEvents:
          if (++event_reads_ <= kMaxFullReads) CheckEvents(pass, in);
          break;
        case kStepCount:
          break;
      }
    }
    CheckHead();
    CheckWindows(Pass::kFinal, in);
  }

 private:
  void CheckHead() {
    const absl::Status header = CheckPageHeader(pages_.at(page_));
    if (!header.ok()) FUZZ_CHECK(RejectionOf(header) != Rejection::kOther, header.ToString());
    const auto identity = ReadIdentity(pages_.at(page_));
    if (!identity.ok()) {
      FUZZ_CHECK(RejectionOf(identity.status()) == Rejection::kPageIdentity, identity.status().ToString());
      FUZZ_CHECK(IsPrintableUtf8(identity.status().message()), identity.status().ToString());
      return;
    }
    for (const std::string* text : {&identity->job_name, &identity->run_id, &identity->shim_version, &identity->host_name}) {
      FUZZ_CHECK(IsPrintableUtf8(*text), *text);
    }
    FUZZ_CHECK(identity->rank < identity->world_size, std::to_string(identity->rank));
    (void)identity->WallTime(pages_.at(page_).totals.last_event_ns.load());
  }

  void CheckCounters() {
    const Counters fresh = ReadCounters(pages_.at(page_));
    if (CheckRange(fresh).ok() && CheckGrowth(counters_, fresh).ok()) {
      FUZZ_CHECK(fresh.totals.step_count >= counters_.totals.step_count, "a counter ran backwards");
      counters_ = fresh;
    }
  }

  void CheckWindows(Pass pass, Input& in) {
    const uint64_t from = windows_.next;
    uint64_t next = windows_.next;
    int changes = 0;
    const WindowReport report = ReadWindows(pages_.at(page_), windows_, pass, [&](const page::WindowRecord& record) {
      FUZZ_CHECK(record.window_index >= next, "a window twice");
      FUZZ_CHECK(record.begin_ns <= record.end_ns && (record.flags & ~page::kWindowFlagsMask) == 0, "not a window record");
      next = record.window_index + 1;
      if (++changes < 8 && !in.empty()) pages_.Damage(page_, in);
    });
    const uint64_t moved = report.delivered + report.torn + report.invalid + report.missed;
    FUZZ_CHECK(from + moved == windows_.next, "windows do not add up");
    FUZZ_CHECK(report.delivered + report.torn + report.invalid <= page::kWindowSlots, "more windows than slots");
  }

  void CheckEvents(Pass pass, Input& in) {
    const uint64_t from = events_.next;
    uint64_t next = events_.next;
    int changes = 0;
    const EventReport report = ReadEvents(pages_.at(page_), events_, pass, [&](const page::Event& event) {
      FUZZ_CHECK(event.index >= next, "an event twice");
      FUZZ_CHECK(static_cast<size_t>(event.op) < kCollectiveOpCount, "no operation");
      next = event.index + 1;
      if (++changes < 8 && !in.empty()) pages_.Damage(page_, in);
    });
    const uint64_t moved = report.delivered + report.overwritten + report.dropped + report.invalid;
    FUZZ_CHECK(from + moved == events_.next, "events do not add up");
    FUZZ_CHECK(report.delivered + report.dropped + report.invalid <= page::kEventSlots, "more events than slots");
  }

  Pages& pages_;
  size_t page_ = 0;
  Counters counters_{};
  RingCursor windows_;
  RingCursor events_;
  int event_reads_ = 0;
};

unsigned At(Step step, Pass pass = Pass::kQuery) { return step + kStepCount * static_cast<unsigned>(pass); }

}  // namespace

std::vector<std::string> Seeds() {
  const auto word = [](size_t offset) { return static_cast<uint16_t>(offset / 8); };
  std::vector<std::string> seeds;
  for (unsigned page = 0; page < Pages::kCount; ++page) {
    seeds.push_back(SeedBuilder().Byte(page).Byte(At(kHeader)).Byte(At(kCounters)).Byte(At(kWindows)).Byte(At(kEvents)));
  }
  // Each field of header and identity.
  for (unsigned hot = 0; hot < 16; ++hot) {
    seeds.push_back(SeedBuilder().Byte(0).Byte(At(kDamage)).Byte(damage::kHot).Byte(hot).Byte(14).Byte(At(kHeader)));
  }
  // A counter that runs backwards between two reads; one too large; rings that jump.
  seeds.push_back(SeedBuilder()
                      .Byte(0)
                      .Byte(At(kCounters))
                      .Byte(At(kDamage))
                      .Byte(damage::kAdd)
                      .Number(word(offsetof(page::StatsPage, totals.step_count)))
                      .Byte(0xff)
                      .Byte(At(kCounters)));
  for (const size_t offset : {offsetof(page::StatsPage, totals.item_count), offsetof(page::StatsPage, ring.event_next),
                              offsetof(page::StatsPage, ring.window_next)}) {
    seeds.push_back(SeedBuilder()
                        .Byte(0)
                        .Byte(At(kWindows))
                        .Byte(At(kDamage))
                        .Byte(damage::kWord)
                        .Number(word(offset))
                        .Number(uint64_t{1} << 61)
                        .Byte(At(kCounters))
                        .Byte(At(kEvents, Pass::kTick))
                        .Byte(At(kWindows)));
  }
  // A torn window with a later one behind it; a reserved event, waited for and then given up.
  seeds.push_back(SeedBuilder()
                      .Byte(0)
                      .Byte(At(kDamage))
                      .Byte(damage::kTear)
                      .Byte(0)
                      .Byte(At(kWindows))
                      .Byte(At(kDamage))
                      .Byte(damage::kWindow)
                      .Byte(0)
                      .Byte(At(kWindows)));
  seeds.push_back(SeedBuilder()
                      .Byte(3)
                      .Byte(At(kDamage))
                      .Byte(damage::kTear)
                      .Byte(2)
                      .Byte(At(kEvents, Pass::kTick))
                      .Byte(At(kEvents, Pass::kTick)));
  // Scribbled on while being read.
  seeds.push_back(SeedBuilder()
                      .Byte(1)
                      .Byte(At(kWindows, Pass::kFinal))
                      .Byte(damage::kHot)
                      .Byte(33)
                      .Byte(12)
                      .Byte(damage::kWord)
                      .Number(word(offsetof(page::StatsPage, windows[9].sequence)))
                      .Number(uint64_t{1})
                      .Byte(At(kWindows)));
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const pages = new gradgate::fuzz::Pages;
  gradgate::fuzz::Input in(data, size);
  gradgate::fuzz::Reading(*pages).Run(in);
  pages->Mend();
  return 0;
}
