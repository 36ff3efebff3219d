// The last closed windows of one job, merged by window index over the ranks of this node.
//
// Bounded in windows, and in records of single ranks so that a job with many ranks does not cost more memory than one with few.
// The window with the lowest index goes first. Thread class: the caller's lock.

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

  static constexpr size_t kMaxRecords = 65536;  // some 14 MiB

  // At most `max_windows` windows and `max_records` records; at least one window is kept whole.
  explicit WindowHistory(size_t max_windows, size_t max_records = kMaxRecords)
      : max_windows_(max_windows), max_records_(max_records) {}

  // Adds one rank's record. One of the same rank and index is replaced; one older than all that are kept by a full history is
  // not kept.
  void Add(const RankWindow& window);

  // Forgets the window with the lowest index, unless it is the only one. False if it was.
  bool DropOldest();

  const Map& windows() const { return windows_; }
  size_t record_count() const { return record_count_; }

 private:
  bool full() const { return windows_.size() >= max_windows_ || record_count_ >= max_records_; }

  const size_t max_windows_;
  const size_t max_records_;
  size_t record_count_ = 0;
  Map windows_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_WINDOW_HISTORY_H_
