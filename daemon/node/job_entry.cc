#include "daemon/node/job_entry.h"

#include <algorithm>
#include <array>

namespace gradgate {
namespace {

std::array<uint32_t, kRankStateCount> CountStates(const std::map<uint32_t, RankTrack>& ranks) {
  std::array<uint32_t, kRankStateCount> counts{};
  for (const auto& [rank, track] : ranks) ++counts[static_cast<size_t>(track.state())];
  return counts;
}

}  // namespace

RankState JobEntry::State() const {
  const auto counts = CountStates(ranks);
  for (RankState state : {RankState::kRunning, RankState::kLost, RankState::kFailed}) {
    if (counts[static_cast<size_t>(state)] > 0) return state;
  }
  return RankState::kFinished;
}

absl::Time JobEntry::StartTime() const {
  absl::Time first = absl::InfiniteFuture();
  for (const auto& [rank, track] : ranks) first = std::min(first, track.identity().start_time());
  return first;
}

std::optional<absl::Time> JobEntry::EndTime() const {
  std::optional<absl::Time> last;
  for (const auto& [rank, track] : ranks) {
    if (!track.end_time()) return std::nullopt;
    last = std::max(last.value_or(absl::InfinitePast()), *track.end_time());
  }
  return last;
}

uint64_t JobEntry::ClosedByRunning() const {
  uint64_t closed = UINT64_MAX;
  for (const auto& [rank, track] : ranks) {
    if (track.running()) closed = std::min(closed, track.window_next());
  }
  return closed;
}

uint64_t JobEntry::ClosedByAll() const {
  uint64_t closed = UINT64_MAX;
  for (const auto& [rank, track] : ranks) closed = std::min(closed, track.window_next());
  return closed;
}

JobView JobEntry::View() const {
  const RankTrack& lowest = ranks.begin()->second;
  JobView view;
  view.id = id;
  view.user_id = key.user_id;
  view.job_name = key.job_name;
  view.run_id = key.run_id;
  view.attempt = key.attempt;
  view.launch_id = lowest.identity().launch_id;
  view.state = State();
  view.start_time = StartTime();
  view.end_time = EndTime();
  view.rank_counts = CountStates(ranks);
  view.sync_mode = ModeInForce(lowest.identity(), lowest.counters());
  view.enforcement = EnforcementInForce(lowest.identity(), lowest.counters());
  view.accumulate = lowest.identity().accumulate;
  view.lowest_rank = ranks.begin()->first;
  view.closed_by_all = ClosedByAll();
  view.closed_by_running = ClosedByRunning();
  view.window_count = INT64_MAX;
  for (const auto& [rank, track] : ranks) {
    view.world_size = std::max(view.world_size, track.identity().world_size);
    view.window_count = std::min(view.window_count, track.counters().window_count());
  }
  return view;
}

WindowView JobEntry::ViewWindow(WindowHistory::Map::const_iterator window) const {
  return WindowView{window->first, window->second, window->first < ClosedByAll()};
}

bool StartedAfter(const JobView& a, const JobView& b) {
  return a.start_time != b.start_time ? a.start_time > b.start_time : a.id > b.id;
}

}  // namespace gradgate
