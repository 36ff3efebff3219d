#include "daemon/node/rank_track.h"

#include <algorithm>
#include <utility>

namespace gradgate {
namespace {

// A trainer in a time namespace has another CLOCK_MONOTONIC than the node; no other difference is as large.
constexpr absl::Duration kSameClock = absl::Seconds(5);

// The latest instant at which the loop, or a collective, was seen to do something.
uint64_t LastActivity(const Counters& counters) {
  uint64_t last_ns = counters.totals.last_event_ns;
  for (const auto& of_role : counters.cells) {
    for (const CellValues& cell : of_role) last_ns = std::max({last_ns, cell.last_issue_ns, cell.last_complete_ns});
  }
  return last_ns;
}

// Collectives of which neither end nor failure was seen, but for those whose end cannot be.
uint64_t InFlight(const Counters& counters) {
  uint64_t issued = 0, ended = 0;
  for (const auto& of_role : counters.cells) {
    for (const CellValues& cell : of_role) {
      for (const uint64_t count : cell.issued_count) issued = SaturatingAdd(issued, count);
      for (const uint64_t count : {cell.completed_count, cell.failed_count, cell.unknown_count}) {
        ended = SaturatingAdd(ended, count);
      }
    }
  }
  return issued > ended ? issued - ended : 0;
}

}  // namespace

void RankTrack::Attach(uint64_t connection, uint32_t slot, RankIdentity identity, std::unique_ptr<PageMapping> mapping) {
  const bool same_page = connect_count_ > 0 && mapping->file_id() == file_id_ && identity.process_id == identity_.process_id &&
                         identity.monotonic_ns == identity_.monotonic_ns;
  if (!same_page) {
    counters_ = Counters{};
    window_cursor_ = event_cursor_ = RingCursor{};
    event_read_count_ = event_missed_count_ = window_missed_count_ = 0;
    trail_ = WindowTrail();
    active_ns_ = changed_ns_ = 0;
    event_missed_before_ = window_missed_before_ = page_error_count_ = 0;
  }
  connection_ = connection;
  slot_ = slot;
  holds_slot_ = true;
  state_ = RankState::kRunning;
  identity_ = std::move(identity);
  file_id_ = mapping->file_id();
  mapping_ = std::move(mapping);
  end_time_.reset();
  ++connect_count_;
}

void RankTrack::TakeCounters(const RankSinks& sinks) {
  const Counters fresh = ReadCounters(*mapping_->page_untrusted());
  if (!CheckRange(fresh).ok()) {
    ++sinks.errors->counters_invalid_count;
    ++page_error_count_;
  } else if (!CheckGrowth(counters_, fresh).ok()) {
    ++sinks.errors->counters_backwards_count;
    ++page_error_count_;
  } else {
    counters_ = fresh;
    const uint64_t active_ns = LastActivity(fresh);
    if (active_ns != active_ns_ || changed_ns_ == 0) changed_ns_ = sinks.now_ns;
    active_ns_ = active_ns;
  }
}

bool RankTrack::Refresh(Pass pass, const RankSinks& sinks) {
  if (!mapping_) return false;
  const page::StatsPage& page_untrusted = *mapping_->page_untrusted();
  const bool first_look = changed_ns_ == 0;
  const WindowReport windows = ReadWindows(page_untrusted, window_cursor_, pass, [&](const page::WindowRecord& record) {
    sinks.windows->Add(
        RankWindow{identity_.rank, identity_.WallTime(record.begin_ns), identity_.WallTime(record.end_ns), record});
    trail_.AddWindow(record);
    sinks.histograms->window_duration.Observe(record.end_ns - record.begin_ns, kWindowBoundsNs);
    sinks.histograms->window_exposed.Observe(record.exposed_ns, kWindowBoundsNs);
  });
  window_missed_count_ = SaturatingAdd(window_missed_count_, windows.missed);
  sinks.errors->window_torn_count += windows.torn;
  sinks.errors->window_invalid_count += windows.invalid;

  const EventReport events = ReadEvents(page_untrusted, event_cursor_, pass, [&](const page::Event& event) {
    trail_.AddEvent(event);
    if (event.kind != EventKind::kCollectiveDone) return;
    auto& of_role = sinks.histograms->collective_duration[static_cast<size_t>(event.role)];
    of_role[static_cast<size_t>(event.op)].Observe(event.value, kCollectiveBoundsNs);
  });
  event_read_count_ = SaturatingAdd(event_read_count_, events.delivered);
  event_missed_count_ = SaturatingAdd(event_missed_count_, SaturatingAdd(events.overwritten, events.dropped));
  sinks.errors->event_invalid_count += events.invalid;
  page_error_count_ = SaturatingAdd(page_error_count_, windows.torn + windows.invalid + events.invalid);

  if (first_look) {
    window_missed_before_ = windows.missed;
    event_missed_before_ = events.overwritten;
  }

  // Last, so that the counters are at least as recent as the windows shown beside them.
  TakeCounters(sinks);
  return windows.delivered + windows.torn + windows.invalid + windows.missed > 0;
}

void RankTrack::End(RankState state, absl::Time now, const RankSinks& sinks) {
  Refresh(Pass::kFinal, sinks);
  if (state == RankState::kLost && counters_.totals.closed == 1) state = RankState::kFinished;  // its goodbye was lost
  mapping_.reset();
  state_ = state;
  end_time_ = now;
}

RankView RankTrack::View() const {
  RankView view;
  view.slot = slot_;
  view.state = state_;
  view.identity = identity_;
  view.end_time = end_time_;
  view.counters = counters_;
  view.event_read_count = event_read_count_;
  view.event_missed_count = event_missed_count_;
  view.window_missed_count = window_missed_count_;
  view.connect_count = connect_count_;
  return view;
}

RankEvidenceView RankTrack::Evidence(absl::Time now, uint64_t now_ns) const {
  RankEvidenceView view;
  view.rank = View();
  view.peer_process_id = running() ? peer_process_id_ : 0;
  // Two ways from the identity's instant to now agree when the trainer reads the node's clock.
  const absl::Duration apart =
      (now - identity_.start_time()) - absl::Nanoseconds(static_cast<int64_t>(now_ns - identity_.monotonic_ns));
  const bool same_clock = absl::AbsDuration(apart) < kSameClock && active_ns_ != 0 && active_ns_ <= now_ns;
  const uint64_t since_ns = same_clock ? active_ns_ : changed_ns_;
  view.idle = absl::Nanoseconds(now_ns > since_ns && since_ns != 0 ? now_ns - since_ns : 0);
  view.in_flight_count = InFlight(counters_);
  view.event_missed_count = event_missed_count_ - event_missed_before_;
  view.window_missed_count = window_missed_count_ - window_missed_before_;
  view.page_error_count = page_error_count_;
  view.open = trail_.open();
  view.windows.assign(trail_.windows().begin(), trail_.windows().end());
  view.wait_p99 = absl::Nanoseconds(static_cast<int64_t>(std::min<uint64_t>(trail_.WaitP99Ns(), INT64_MAX)));
  view.wait_count = trail_.wait_count();
  view.early_gradient_ns = trail_.EarlyGradientNs();
  return view;
}

}  // namespace gradgate
