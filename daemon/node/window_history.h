// The last closed windows of one job, merged by window index over the ranks of this node.
//
// Bounded: the window with the lowest index goes first. Thread class: the caller's lock.

#ifndef GRADGATE_DAEMON_NODE_WINDOW_HISTORY_H_
#define GRADGATE_DAEMON_NODE_WINDOW_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "proto/shm/stats_page.h"

namespace gradgate {

struct RankWindow {
  uint32_t rank;
  absl::Time begin_time;
  absl::Time end_time;
  page::WindowRecord record;
};

class WindowHistory {
 public:
  using Map = std::map<uint64_t, std::vector<RankWindow>>;  // by window index; ranks ascending

  // `capacity` windows, at least 1.
  explicit WindowHistory(size_t capacity) : capacity_(capacity) {}

  // Adds one rank's record. One of the same rank and index is replaced; one older than all that are kept by a full history is
  // not kept.
  void Add(const RankWindow& window);

  const Map& windows() const { return windows_; }

 private:
  const size_t capacity_;
  Map windows_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_WINDOW_HISTORY_H_
