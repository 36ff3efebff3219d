#include "tests/fuzz/page_check.h"

#include <string>

#include "daemon/node/counters.h"
#include "daemon/node/page_reader.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {

void CheckPage(const page::StatsPage& page) {
  const absl::Status header = CheckPageHeader(page);
  FUZZ_CHECK(header.ok(), header.ToString());
  const auto identity = ReadIdentity(page);
  FUZZ_CHECK(identity.ok(), identity.status().ToString());
  const Counters counters = ReadCounters(page);
  const absl::Status range = CheckRange(counters);
  FUZZ_CHECK(range.ok(), range.ToString());
  RingCursor windows, events;
  const WindowReport read = ReadWindows(page, windows, Pass::kFinal, [](const page::WindowRecord&) {});
  FUZZ_CHECK(read.torn + read.invalid + read.missed == 0 && read.delivered == counters.window_count(),
             std::to_string(read.delivered) + " windows of " + std::to_string(counters.window_count()));
  const EventReport told = ReadEvents(page, events, Pass::kFinal, [](const page::Event&) {});
  FUZZ_CHECK(told.dropped + told.invalid + told.overwritten == 0, "events that the daemon does not understand");
  FUZZ_CHECK(counters.totals.step_count <= counters.window_count(), "more steps than windows");
}

}  // namespace gradgate::fuzz
