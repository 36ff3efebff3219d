#include "daemon/node/rank_track.h"

#include <utility>

namespace gradgate {

void RankTrack::Attach(uint64_t connection, uint32_t slot, RankIdentity identity, std::unique_ptr<PageMapping> mapping) {
  const bool same_page = connect_count_ > 0 && mapping->file_id() == file_id_ && identity.process_id == identity_.process_id &&
                         identity.monotonic_ns == identity_.monotonic_ns;
  if (!same_page) {
    counters_ = Counters{};
    window_cursor_ = event_cursor_ = RingCursor{};
    event_read_count_ = event_missed_count_ = window_missed_count_ = 0;
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
  } else if (!CheckGrowth(counters_, fresh).ok()) {
    ++sinks.errors->counters_backwards_count;
  } else {
    counters_ = fresh;
  }
}

bool RankTrack::Refresh(Pass pass, const RankSinks& sinks) {
  if (!mapping_) return false;
  const page::StatsPage& page_untrusted = *mapping_->page_untrusted();
  const WindowReport windows = ReadWindows(page_untrusted, window_cursor_, pass, [&](const page::WindowRecord& record) {
    sinks.windows->Add(
        RankWindow{identity_.rank, identity_.WallTime(record.begin_ns), identity_.WallTime(record.end_ns), record});
    sinks.histograms->window_duration.Observe(record.end_ns - record.begin_ns, kWindowBoundsNs);
    sinks.histograms->window_exposed.Observe(record.exposed_ns, kWindowBoundsNs);
  });
  window_missed_count_ = SaturatingAdd(window_missed_count_, windows.missed);
  sinks.errors->window_torn_count += windows.torn;
  sinks.errors->window_invalid_count += windows.invalid;

  const EventReport events = ReadEvents(page_untrusted, event_cursor_, pass, [&](const page::Event& event) {
    if (event.kind != EventKind::kCollectiveDone) return;
    auto& of_role = sinks.histograms->collective_duration[static_cast<size_t>(event.role)];
    of_role[static_cast<size_t>(event.op)].Observe(event.value, kCollectiveBoundsNs);
  });
  event_read_count_ = SaturatingAdd(event_read_count_, events.delivered);
  event_missed_count_ = SaturatingAdd(event_missed_count_, SaturatingAdd(events.overwritten, events.dropped));
  sinks.errors->event_invalid_count += events.invalid;

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

}  // namespace gradgate
