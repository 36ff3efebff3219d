#include "daemon/node/window_trail.h"

#include <algorithm>

namespace gradgate {
namespace {

// The k-th smallest.
uint64_t Nth(std::vector<uint64_t> values, size_t k) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(k), values.end());
  return values[k];
}

uint64_t LongestWait(const page::WindowRecord& record, const WindowEvents& events) {
  return std::max({record.wait_ns, record.exposed_ns, events.ballot_ns, events.gradient_ns});
}

void Count(const page::Event& event, WindowEvents& window) {
  switch (event.traffic) {
    case TrafficClass::kGradient:
      ++window.gradient_issued_count;
      break;
    case TrafficClass::kOurs:
      ++window.ours_issued_count;
      break;
    case TrafficClass::kOther:
      ++window.other_issued_count;
      break;
  }
}

}  // namespace

void WindowTrail::AddWindow(const page::WindowRecord& record) {
  TrailWindow window{record, {}, 0};
  if (!windows_.empty()) {
    const page::WindowRecord& before = windows_.back().record;
    const bool next = before.window_index + 1 == record.window_index && before.end_ns <= record.begin_ns;
    if (next) window.gap_ns = record.begin_ns - before.end_ns;
  }
  windows_.push_back(window);
  if (windows_.size() > kWindows) windows_.pop_front();
  if (record.window_index > 0) waits_ns_.push_back(LongestWait(record, {}));  // ranks start at different times
  if (waits_ns_.size() > kWaits) waits_ns_.pop_front();

  const auto closed =
      std::find_if(unmatched_.begin(), unmatched_.end(), [&](const Closed& c) { return c.end_ns == record.end_ns; });
  if (closed == unmatched_.end()) return;
  Fill(windows_.size() - 1, closed->events);
  unmatched_.erase(unmatched_.begin(), closed + 1);
}

void WindowTrail::Fill(size_t at, const WindowEvents& events) {
  TrailWindow& window = windows_[at];
  window.events = events;
  const size_t from_end = windows_.size() - at;
  if (from_end <= waits_ns_.size()) waits_ns_[waits_ns_.size() - from_end] = LongestWait(window.record, events);
  const bool early = early_ns_.size() < kEarly && window.record.window_index >= kWarmUp;
  if (early && events.exact && events.gradient_ns > 0) early_ns_.push_back(events.gradient_ns);
}

void WindowTrail::CloseOpen(uint64_t end_ns) {
  const WindowEvents closed = open_;
  open_ = WindowEvents{.exact = true};
  for (size_t at = windows_.size(); at-- > 0;) {
    if (windows_[at].record.end_ns == end_ns) return Fill(at, closed);
  }
  unmatched_.push_back(Closed{end_ns, closed});
  if (unmatched_.size() > kWindows) unmatched_.pop_front();
}

void WindowTrail::AddEvent(const page::Event& event) {
  if (event.index != next_event_) open_.exact = false;
  next_event_ = event.index + 1;
  switch (event.kind) {
    case EventKind::kMicroStepBegin:
      open_.in_micro_step = true;
      break;
    case EventKind::kMicroStepEnd:
      open_.in_micro_step = false;
      open_.micro_step_ns += std::min(event.value, uint64_t{1} << 62);
      break;
    case EventKind::kCollectiveIssued:
      Count(event, open_);
      break;
    case EventKind::kCollectiveDone:
      if (event.traffic == TrafficClass::kGradient) open_.gradient_ns = std::max(open_.gradient_ns, event.value);
      if (event.traffic == TrafficClass::kOurs) open_.ballot_ns = std::max(open_.ballot_ns, event.value);
      break;
    case EventKind::kWindowClosed:
      CloseOpen(event.time_ns);
      break;
    case EventKind::kCollectiveFailed:
    case EventKind::kUnspecified:
      break;
  }
}

uint64_t WindowTrail::WaitP99Ns() const {
  if (waits_ns_.empty()) return 0;
  const size_t k = (waits_ns_.size() - 1) * 99 / 100;  // of a few, one that is unlike the rest is left out
  return Nth({waits_ns_.begin(), waits_ns_.end()}, k);
}

uint64_t WindowTrail::EarlyGradientNs() const {
  if (early_ns_.size() < kEarly) return 0;
  return Nth(early_ns_, early_ns_.size() / 2);
}

}  // namespace gradgate
