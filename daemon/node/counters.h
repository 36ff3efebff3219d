// A plain copy of every counter of a stats page, and the check that counters only grow.
//
// The structs mirror page::PageTotals, RoleTotals, CollectiveCell and RingControl word by word (asserted below), so that a copy
// is one loop over words. Meanings and units are told in proto/shm/stats_page.h.

#ifndef GRADGATE_DAEMON_NODE_COUNTERS_H_
#define GRADGATE_DAEMON_NODE_COUNTERS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "proto/shm/stats_page.h"

namespace gradgate {

// a + b, no more than INT64_MAX: pages are untrusted and sums must not wrap.
constexpr uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  constexpr uint64_t kMax = INT64_MAX;
  return a >= kMax || b >= kMax - a ? kMax : a + b;
}

struct TotalsValues {
  uint64_t window_index;
  uint64_t micro_step;
  uint64_t micro_step_count;
  uint64_t step_count;
  uint64_t last_event_ns;
  uint64_t sync_mode;
  uint64_t policy_version;
  uint64_t closed;

  uint64_t window_full_count;
  uint64_t window_partial_count;
  uint64_t window_empty_count;
  uint64_t window_late_count;
  uint64_t window_unstepped_count;
  uint64_t window_mismatched_count;
  uint64_t window_disagreed_count;
  uint64_t ballot_count;

  uint64_t refused_count;
  uint64_t warning_count;
  uint64_t event_dropped_count;
  uint64_t reconnect_count;
  uint64_t item_count;
  uint64_t override_count;
  uint64_t window_discarded_count;
  uint64_t micro_step_skipped_count;

  uint64_t exposed_ns;
  uint64_t wait_ns;
  uint64_t micro_step_ns;
  uint64_t window_ns;
  uint64_t policy_staged_version;
  uint64_t policy_adopted_window;
  uint64_t policy_rejected_version;
  uint64_t policy_rejection;
};
static_assert(sizeof(TotalsValues) == sizeof(page::PageTotals));
static_assert(offsetof(TotalsValues, closed) == offsetof(page::PageTotals, closed));
static_assert(offsetof(TotalsValues, ballot_count) == offsetof(page::PageTotals, ballot_count));
static_assert(offsetof(TotalsValues, micro_step_skipped_count) == offsetof(page::PageTotals, micro_step_skipped_count));
static_assert(offsetof(TotalsValues, window_ns) == offsetof(page::PageTotals, window_ns));
static_assert(offsetof(TotalsValues, policy_rejection) == offsetof(page::PageTotals, policy_rejection));

struct RoleValues {
  uint64_t intended_count;
  uint64_t issued_count;
  uint64_t suppressed_count;
  uint64_t late_count;
  uint64_t declared_extra_count;
  uint64_t reserved[3];
};
static_assert(sizeof(RoleValues) == sizeof(page::RoleTotals));
static_assert(offsetof(RoleValues, declared_extra_count) == offsetof(page::RoleTotals, declared_extra_count));

struct CellValues {
  uint64_t intended_count;
  uint64_t issued_count[kTrafficClassCount];
  uint64_t bytes[kTrafficClassCount];
  uint64_t tensor_count;
  uint64_t completed_count;
  uint64_t failed_count;
  uint64_t unknown_count;
  uint64_t gradient_completed_count;
  uint64_t duration_ns;
  uint64_t last_issue_ns;
  uint64_t last_complete_ns;
  uint64_t reserved;

  // Whether any collective of this kind was intended or issued.
  bool any() const { return (intended_count | issued_count[0] | issued_count[1] | issued_count[2]) != 0; }
};
static_assert(sizeof(CellValues) == sizeof(page::CollectiveCell));
static_assert(offsetof(CellValues, tensor_count) == offsetof(page::CollectiveCell, tensor_count));
static_assert(offsetof(CellValues, last_complete_ns) == offsetof(page::CollectiveCell, last_complete_ns));

struct RingValues {
  uint64_t event_next;
  uint64_t window_next;
  uint64_t reserved[6];
};
static_assert(sizeof(RingValues) == sizeof(page::RingControl));

struct Counters {
  TotalsValues totals;
  RoleValues roles[kGroupRoleCount];
  CellValues cells[kGroupRoleCount][kCollectiveOpCount];
  RingValues ring;

  uint64_t window_count() const {
    return SaturatingAdd(SaturatingAdd(totals.window_full_count, totals.window_partial_count), totals.window_empty_count);
  }
};
inline constexpr size_t kCounterOffset = offsetof(page::StatsPage, totals);
static_assert(sizeof(Counters) == offsetof(page::StatsPage, windows) - kCounterOffset);
static_assert(offsetof(Counters, cells) == offsetof(page::StatsPage, cells) - kCounterOffset);
static_assert(offsetof(Counters, ring) == offsetof(page::StatsPage, ring) - kCounterOffset);

// OK when every counter of `after` is at least that of `before`. Positions, times and modes may go either way.
// DATA_LOSS names the first counter, by its offset in the page, that ran backwards.
absl::Status CheckGrowth(const Counters& before, const Counters& after);

// OK when every counter fits a signed 64-bit integer, which is what gRPC carries. OUT_OF_RANGE names the first that does not.
absl::Status CheckRange(const Counters& counters);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_COUNTERS_H_
