#include "daemon/node/window_history.h"

#include <algorithm>

namespace gradgate {

void WindowHistory::Add(const RankWindow& window) {
  const uint64_t index = window.record.window_index;
  if (full() && !windows_.empty() && index < windows_.begin()->first) return;
  std::vector<RankWindow>& ranks = windows_[index];
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), window.rank,
                                   [](const RankWindow& kept, uint32_t rank) { return kept.rank < rank; });
  if (at != ranks.end() && at->rank == window.rank) {
    *at = window;
  } else {
    ranks.insert(at, window);
    ++record_count_;
  }
  while ((windows_.size() > max_windows_ || record_count_ > max_records_) && DropOldest()) {
  }
}

bool WindowHistory::DropOldest() {
  if (windows_.size() <= 1) return false;
  record_count_ -= windows_.begin()->second.size();
  windows_.erase(windows_.begin());
  return true;
}

}  // namespace gradgate
