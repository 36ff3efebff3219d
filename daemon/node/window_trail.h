// The latest windows of one rank with what their events add, and what its open window has issued: what the doctor looks at.
//
// Records and events come from two rings that are read one after the other, so either may be a window ahead; they are matched
// by the instant of the close, which both hold. A window of which an event was missed says so.
//
// Thread class: the registry's lock. Bounded: kWindows windows, kWaits waits.

#ifndef GRADGATE_DAEMON_NODE_WINDOW_TRAIL_H_
#define GRADGATE_DAEMON_NODE_WINDOW_TRAIL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "proto/shm/stats_page.h"

namespace gradgate {

// What events tell of one window.
struct WindowEvents {
  bool exact = false;  // all of them were read
  uint32_t gradient_issued_count = 0;
  uint32_t ours_issued_count = 0;
  uint32_t other_issued_count = 0;
  uint64_t ballot_ns = 0;    // issue to completion of the longest of ours; 0: none completed
  uint64_t gradient_ns = 0;  // of the longest gradient collective; 0: none completed
  uint64_t micro_step_ns = 0;
  bool in_micro_step = false;
};

struct TrailWindow {
  page::WindowRecord record;
  WindowEvents events;
  uint64_t gap_ns = 0;  // from the end of the window before; 0: not known
};

class WindowTrail {
 public:
  static constexpr size_t kWindows = 32;
  static constexpr size_t kWaits = 1024;
  // Windows at a run's start that are unlike the rest, and the ones after them that later ones are compared with.
  static constexpr uint64_t kWarmUp = 2;
  static constexpr size_t kEarly = 16;

  void AddWindow(const page::WindowRecord& record);
  void AddEvent(const page::Event& event);

  const std::deque<TrailWindow>& windows() const { return windows_; }  // oldest first
  const WindowEvents& open() const { return open_; }

  // 99th percentile of the longest wait of each window but the first, rounded down; 0: no such window yet.
  uint64_t WaitP99Ns() const;
  size_t wait_count() const { return waits_ns_.size(); }

  // Median of the longest gradient collectives of the early windows; 0: fewer than kEarly yet.
  uint64_t EarlyGradientNs() const;

 private:
  struct Closed {
    uint64_t end_ns;
    WindowEvents events;
  };

  void CloseOpen(uint64_t end_ns);
  void Fill(size_t at, const WindowEvents& events);

  std::deque<TrailWindow> windows_;
  std::deque<Closed> unmatched_;  // closed by events alone so far
  std::deque<uint64_t> waits_ns_;
  std::vector<uint64_t> early_ns_;
  WindowEvents open_{.exact = true};
  uint64_t next_event_ = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_WINDOW_TRAIL_H_
