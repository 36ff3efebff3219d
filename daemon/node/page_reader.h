// Reads a stats page that an untrusted process may change at any instant: copies, then validates, then reports.
//
// Works on any bytes that stay mapped, so that a fuzzer can call it. Nothing that was read is read again after it was checked.
// Each call takes bounded time, whatever the writer does.
//
// Thread class: one thread per object at a time (the caller's lock). Loads are relaxed, but for the sequences of the rings.

#ifndef GRADGATE_DAEMON_NODE_PAGE_READER_H_
#define GRADGATE_DAEMON_NODE_PAGE_READER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/node/counters.h"
#include "proto/shm/stats_page.h"
#include "proto/shm/types.h"

namespace gradgate {

inline constexpr uint32_t kMaxWorldSize = 1u << 20;

// The page's identity, copied and checked.
struct RankIdentity {
  std::string job_name;   // printable UTF-8; may be empty
  std::string run_id;     // 32 hexadecimal digits
  std::string launch_id;  // as many; empty: not known
  std::string shim_version;
  std::string host_name;
  uint32_t attempt = 0;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t local_rank = 0;
  int64_t process_id = 0;
  int64_t wall_time_ns = 0;   // CLOCK_REALTIME …
  uint64_t monotonic_ns = 0;  // … at this CLOCK_MONOTONIC
  uint32_t accumulate = 0;
  SyncMode sync_mode = SyncMode::kUnspecified;
  Enforcement enforcement = Enforcement::kUnspecified;
  uint64_t config_hash = 0;

  // Wall time of an instant on the trainer's CLOCK_MONOTONIC.
  absl::Time WallTime(uint64_t at_monotonic_ns) const;
  absl::Time start_time() const { return absl::FromUnixNanos(wall_time_ns); }
};

// Where a reader stands in a ring.
struct RingCursor {
  uint64_t next = 0;     // the first index not accounted for
  bool waiting = false;  // `next` was reserved but not written at the last tick
};

// What a pass over a ring does with an entry that is reserved but not written.
enum class Pass {
  kQuery,  // leaves it for later
  kTick,   // gives it up when the tick before already found it so
  kFinal,  // the writer is gone: gives it up
};

// What became of the windows between two positions of a cursor: delivered + torn + invalid + missed is how far it moved.
struct WindowReport {
  uint64_t delivered = 0;
  uint64_t torn = 0;     // still half-written: its writer died, or never came back
  uint64_t invalid = 0;  // complete, but no window record
  uint64_t missed = 0;   // overwritten before it was read
};

// As for windows: delivered + overwritten + dropped + invalid is how far the cursor moved.
struct EventReport {
  uint64_t delivered = 0;
  uint64_t overwritten = 0;
  uint64_t dropped = 0;  // reserved, never written
  uint64_t invalid = 0;
};

// OK when the header is one this reader understands. Errors: Rejection::kPageNotReady, kPageMagic, kPageVersion, kPageLayout,
// kPageHeader.
absl::Status CheckPageHeader(const page::StatsPage& page_untrusted);

// Copies and checks the identity. Errors: Rejection::kPageIdentity, naming field and value.
absl::StatusOr<RankIdentity> ReadIdentity(const page::StatsPage& page_untrusted);

// Copies every counter; each is exact, no two need be of the same instant.
Counters ReadCounters(const page::StatsPage& page_untrusted);

// Delivers the closed windows from `cursor` on, oldest first, each at most once. Windows have one writer at a time, so a
// half-written record with a later one behind it is torn for good; the newest is waited for, except in a final pass. A ring
// position before the cursor is ignored: CheckGrowth reports it.
WindowReport ReadWindows(const page::StatsPage& page_untrusted, RingCursor& cursor, Pass pass,
                         absl::FunctionRef<void(const page::WindowRecord&)> deliver);

// Delivers the events from `cursor` on, in order, each at most once. One that is given up (see Pass) is counted as dropped,
// even if it is written later.
EventReport ReadEvents(const page::StatsPage& page_untrusted, RingCursor& cursor, Pass pass,
                       absl::FunctionRef<void(const page::Event&)> deliver);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_PAGE_READER_H_
