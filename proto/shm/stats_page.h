// The stats page: what one trainer process publishes about its gradient synchronisation, specified byte by byte.
//
// The trainer creates the page as a sealed memfd (F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE after its own mapping)
// and passes the descriptor to the daemon, which maps it read-only. The daemon never writes. The page is one process's,
// never shared between trainers. It outlives the trainer as long as the daemon holds the descriptor.
//
//   offset      bytes  content                                     written by
//   ------      -----  -------                                     ----------
//        0         64  PageHeader                                  creator, once; magic last, with release
//       64        448  PageIdentity                                creator, before magic
//      512        256  PageTotals (4 lines)                        the loop's thread; atomics
//      768        256  4 x RoleTotals, by GroupRole                any thread; atomic adds
//     1024       5632  4 x 11 x CollectiveCell, by role, then op   any thread; atomic adds
//     6656         64  RingControl                                 any thread; atomic adds
//     6720      49152  256 x WindowSlot                            the thread that closes the window
//    55872     131072  4096 x EventSlot                            any thread; slots reserved by fetch_add
//   186944             page ends (the file is rounded up to whole memory pages)
//
// All integers are little-endian and fixed width. Times are CLOCK_MONOTONIC in ns; PageIdentity maps them to wall time.
//
// Memory order. Counters are independent relaxed atomics: no two need be from the same instant, each is exact. A
// WindowSlot and an EventSlot carry a sequence: odd while written, even when done; the writer stores payload words relaxed
// between an acquire-ordered claim with a release fence and a release store, the reader loads the sequence (acquire), the
// words (relaxed), then an acquire fence and the sequence again, and gives up after kReadRetries. A writer killed in between
// leaves the sequence odd for ever: readers report that slot as torn and keep what they had.
//
// Limits: 256 windows, so that a reader that looks ten times a second misses none of windows longer than 0.4 ms; 4096 events,
// so that it misses none at 40,000 a second. What a reader missed it can count: sequences name the index they hold.
//
// Growth: a minor version only appends after the last field, within page_bytes; the offsets above stay. Anything else is a new
// major. layout_hash is computed from every size and offset, so that a forgotten bump cannot be read as the old layout.
//
// The reader's rules: copy, then validate, then report; nothing in the page is trusted, least of all after it was checked.

#ifndef GRADGATE_PROTO_SHM_STATS_PAGE_H_
#define GRADGATE_PROTO_SHM_STATS_PAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/shm/types.h"

namespace gradgate::page {

inline constexpr uint64_t kMagic = 0x3147504554414747;  // "GGATEPG1", little-endian
inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 2;
inline constexpr uint32_t kWindowSlots = 256;
inline constexpr uint32_t kEventSlots = 4096;
inline constexpr uint32_t kReadRetries = 16;

using U64 = std::atomic<uint64_t>;
static_assert(U64::is_always_lock_free && sizeof(U64) == 8);

// SyncMode, and above it the Enforcement that a policy has put in force; unspecified: the identity's.
constexpr uint64_t PackMode(SyncMode mode, Enforcement enforcement) {
  return static_cast<uint64_t>(mode) | static_cast<uint64_t>(enforcement) << 8;
}
// Unspecified where the word holds none that is known.
constexpr SyncMode UnpackMode(uint64_t word) {
  return (word & 0xff) <= static_cast<uint64_t>(SyncMode::kAuto) ? static_cast<SyncMode>(word & 0xff) : SyncMode::kUnspecified;
}
constexpr Enforcement UnpackEnforcement(uint64_t word) {
  return word >> 8 <= static_cast<uint64_t>(Enforcement::kEnforce) ? static_cast<Enforcement>(word >> 8)
                                                                   : Enforcement::kUnspecified;
}

// Written once. A reader first loads `magic` with acquire; zero means "not ready yet".
struct PageHeader {
  U64 magic;
  uint16_t major;
  uint16_t minor;
  uint32_t header_bytes;  // sizeof(PageHeader)
  uint64_t page_bytes;    // sizeof(StatsPage), before rounding
  uint64_t layout_hash;
  uint32_t window_slot_bytes;
  uint32_t window_slot_count;
  uint32_t event_slot_bytes;
  uint32_t event_slot_count;
  uint64_t reserved[2];  // zero
};
static_assert(sizeof(PageHeader) == 64);

// Who publishes. Text is UTF-8, zero-terminated within its array.
struct PageIdentity {
  char job_name[128];
  uint8_t run_id[16];  // random, rank 0's, the same on all ranks of a run
  char shim_version[32];
  char host_name[64];
  uint32_t attempt;      // restarts by the launcher, from 0
  uint32_t rank;         // 0 … world_size − 1
  uint32_t world_size;   // ranks in the job, at least 1
  uint32_t local_rank;   // rank within the node
  int64_t process_id;    // as the trainer sees it; means nothing across containers
  int64_t wall_time_ns;  // CLOCK_REALTIME at the instant of monotonic_ns
  uint64_t monotonic_ns;
  uint32_t accumulate;    // declared micro-steps per window; 0: not declared
  uint8_t sync_mode;      // SyncMode at start
  uint8_t enforcement;    // Enforcement
  uint8_t reserved0[2];   // zero
  uint64_t config_hash;   // equal on all ranks
  uint8_t launch_id[16];  // rank 0's; the same for all attempts of one launch, of no other; zero: not known. Since 1.2
  uint8_t reserved[136];  // zero
};
static_assert(sizeof(PageIdentity) == 448);

// Line 1: where the loop is. Line 2: closed windows. Line 3: what went wrong. Line 4: sums of time, policies.
struct alignas(64) PageTotals {
  U64 window_index;      // the open window, or the next one; from 0
  U64 micro_step;        // micro-steps begun in the open window
  U64 micro_step_count;  // micro-steps begun since start
  U64 step_count;        // optimizer steps announced and allowed
  U64 last_event_ns;     // the loop's last call, any kind
  U64 sync_mode;         // PackMode of what is in force
  U64 policy_version;    // 0: the one given at attach
  U64 closed;            // 1 after a clean close

  U64 window_full_count;
  U64 window_partial_count;
  U64 window_empty_count;
  U64 window_late_count;        // closed by a late reduction
  U64 window_unstepped_count;   // reduced, then a new window began without a step
  U64 window_mismatched_count;  // issued reductions were not the intended ones
  U64 window_disagreed_count;   // the ballot showed ranks that differ
  U64 ballot_count;

  U64 refused_count;  // steps refused with an error
  U64 warning_count;
  U64 event_dropped_count;       // events not written because their slot was busy
  U64 reconnect_count;           // times the link was set up again
  U64 item_count;                // this rank's items
  U64 override_count;            // reductions that something issued against the policy
  U64 window_discarded_count;    // by agreement, no step followed
  U64 micro_step_skipped_count;  // to which this rank contributed nothing

  U64 exposed_ns;     // sum over windows, see WindowRecord::exposed_ns
  U64 wait_ns;        // time blocked for reductions
  U64 micro_step_ns;  // sum of micro-step durations
  U64 window_ns;      // sum of window durations, first begin to step
  // Of policies beside the one in force, which is policy_version.
  U64 policy_staged_version;    // votes for it at each ballot; 0: none
  U64 policy_adopted_window;    // first window under the one in force
  U64 policy_rejected_version;  // the last that this rank could not carry out; 0: none
  U64 policy_rejection;         // PolicyRejection, why
};
static_assert(sizeof(PageTotals) == 256);

// Reductions: passes that make a window's gradients equal across a group, by one or more collectives.
struct alignas(64) RoleTotals {
  U64 intended_count;    // by the policy in force (in audit: by the policy that would be)
  U64 issued_count;      // includes late
  U64 suppressed_count;  // would have been issued by the wrapper; the policy did not want them
  U64 late_count;
  U64 declared_extra_count;  // forced by the framework, e.g. DDP's static graph
  U64 reserved[3];
};
static_assert(sizeof(RoleTotals) == 64);

// Collectives of one operation in groups of one role. issued = completed + failed + unknown + still in flight.
struct alignas(64) CollectiveCell {
  U64 intended_count;                    // gradient collectives the policy wanted
  U64 issued_count[kTrafficClassCount];  // by TrafficClass
  U64 bytes[kTrafficClassCount];         // payload handed to the collective by this rank, by TrafficClass
  U64 tensor_count;                      // tensors of all classes; a coalesced call has several
  U64 completed_count;                   // all classes
  U64 failed_count;                      // all classes: error or deadline
  U64 unknown_count;                     // all classes: completion cannot be observed
  U64 gradient_completed_count;          // of completed_count, those of TrafficClass::kGradient
  U64 duration_ns;                       // sum over completed ones, issue to completion
  U64 last_issue_ns;
  U64 last_complete_ns;
  U64 reserved;
};
static_assert(sizeof(CollectiveCell) == 128);

struct alignas(64) RingControl {
  U64 event_next;   // events reserved since start; event i lies in slot i % 4096
  U64 window_next;  // windows closed since start; window i lies in slot i % 256
  U64 reserved[6];
};
static_assert(sizeof(RingControl) == 64);

// Bits of WindowRecord::flags.
inline constexpr uint32_t kWindowLate = 1u << 0;        // reduced at the step, not in the last backward
inline constexpr uint32_t kWindowMismatched = 1u << 1;  // issued reductions differ from intended ones
inline constexpr uint32_t kWindowDisagreed = 1u << 2;   // the ballot showed ranks that differ
inline constexpr uint32_t kWindowUnstepped = 1u << 3;   // no step followed
inline constexpr uint32_t kWindowFailed = 1u << 4;      // the reduction failed; no step may follow
inline constexpr uint32_t kWindowFlagsMask = (1u << 5) - 1;

// One closed window of this rank. A plain value; it crosses as 23 words of a WindowSlot.
struct WindowRecord {
  uint64_t window_index;
  uint8_t kind;  // WindowKind
  uint8_t mode;  // SyncMode in force
  uint8_t reserved0[2];
  uint32_t flags;
  uint32_t micro_steps;          // brought by this rank
  uint32_t planned_micro_steps;  // declared; 0: not declared
  uint32_t min_micro_steps;      // over all ranks, from the ballot; 0 for an empty rank
  uint32_t max_micro_steps;      // over all ranks, from the ballot
  uint32_t last_reduction_at;    // micro-step (from 1) whose gradients the last reduction took in; 0: none
  uint32_t intended_reductions;
  uint32_t issued_reductions;
  uint32_t suppressed_reductions;
  uint32_t late_reductions;
  uint32_t intended_collectives;  // gradient collectives
  uint32_t issued_collectives;    // gradient collectives
  uint32_t completed_collectives;
  uint32_t failed_collectives;
  uint32_t reserved1;
  uint64_t gradient_bytes;
  uint64_t item_count;            // this rank's
  uint64_t begin_ns;              // first micro-step's begin; for an empty window the step's
  uint64_t end_ns;                // when the step was allowed or refused
  uint64_t boundary_ns;           // duration of the boundary micro-step and of the wait at the step
  uint64_t suppressed_median_ns;  // median duration of suppressed micro-steps of this window; 0: none
  // Duration of the boundary micro-step less the median of the suppressed ones; for a window without suppressed micro-steps:
  // completion of each reduction less issue of its last bucket, summed.
  uint64_t exposed_ns;
  uint64_t wait_ns;  // blocked for this window's reductions
  uint64_t policy_version;
  uint64_t reserved2[5];  // zero
};
inline constexpr uint32_t kWindowWords = 23;
static_assert(sizeof(WindowRecord) == kWindowWords * 8);

// sequence: 0 never written; 2i + 1 while window i is written; 2i + 2 when it is done.
struct alignas(64) WindowSlot {
  U64 sequence;
  U64 words[kWindowWords];
};
static_assert(sizeof(WindowSlot) == 192);

// One event. `what` packs EventKind (bits 0–7), GroupRole (8–11), CollectiveOp (12–15), TrafficClass (16–17) and the micro-step
// (bits 32–63). sequence as in WindowSlot, by event index.
struct EventSlot {
  U64 sequence;
  U64 time_ns;
  U64 what;
  U64 value;  // see EventKind
};
static_assert(sizeof(EventSlot) == 32);

struct Event {
  uint64_t index;
  uint64_t time_ns;
  EventKind kind;
  GroupRole role;
  CollectiveOp op;
  TrafficClass traffic;
  uint32_t micro_step;
  uint64_t value;
};

constexpr uint64_t PackWhat(EventKind kind, GroupRole role, CollectiveOp op, TrafficClass traffic, uint32_t micro_step) {
  return static_cast<uint64_t>(kind) | static_cast<uint64_t>(role) << 8 | static_cast<uint64_t>(op) << 12 |
         static_cast<uint64_t>(traffic) << 16 | static_cast<uint64_t>(micro_step) << 32;
}

struct StatsPage {
  PageHeader header;
  PageIdentity identity;
  PageTotals totals;
  RoleTotals roles[kGroupRoleCount];
  CollectiveCell cells[kGroupRoleCount][kCollectiveOpCount];
  RingControl ring;
  WindowSlot windows[kWindowSlots];
  EventSlot events[kEventSlots];
};
static_assert(offsetof(StatsPage, identity) == 64);
static_assert(offsetof(StatsPage, totals) == 512);
static_assert(offsetof(StatsPage, roles) == 768);
static_assert(offsetof(StatsPage, cells) == 1024);
static_assert(offsetof(StatsPage, ring) == 6656);
static_assert(offsetof(StatsPage, windows) == 6720);
static_assert(offsetof(StatsPage, events) == 55872);
static_assert(sizeof(StatsPage) == 186944);

namespace internal {

// FNV-1a over 64-bit words.
template <typename... Words>
constexpr uint64_t Hash(Words... words) {
  uint64_t hash = 0xcbf29ce484222325;
  const uint64_t all[] = {static_cast<uint64_t>(words)...};
  for (uint64_t word : all) {
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((word >> shift) & 0xff)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace internal

inline constexpr uint64_t kLayoutHash = internal::Hash(
    kMajor, sizeof(StatsPage), kGroupRoleCount, kCollectiveOpCount, kTrafficClassCount, kWindowSlots, kEventSlots,
    offsetof(StatsPage, identity), offsetof(StatsPage, totals), offsetof(StatsPage, roles), offsetof(StatsPage, cells),
    offsetof(StatsPage, ring), offsetof(StatsPage, windows), offsetof(StatsPage, events), offsetof(PageIdentity, run_id),
    offsetof(PageIdentity, shim_version), offsetof(PageIdentity, host_name), offsetof(PageIdentity, attempt),
    offsetof(PageIdentity, rank), offsetof(PageIdentity, world_size), offsetof(PageIdentity, local_rank),
    offsetof(PageIdentity, process_id), offsetof(PageIdentity, wall_time_ns), offsetof(PageIdentity, monotonic_ns),
    offsetof(PageIdentity, accumulate), offsetof(PageIdentity, sync_mode), offsetof(PageIdentity, enforcement),
    offsetof(PageIdentity, config_hash), offsetof(PageTotals, step_count), offsetof(PageTotals, closed),
    offsetof(PageTotals, window_full_count), offsetof(PageTotals, window_unstepped_count), offsetof(PageTotals, ballot_count),
    offsetof(PageTotals, refused_count), offsetof(PageTotals, item_count), offsetof(PageTotals, exposed_ns),
    offsetof(PageTotals, window_ns), offsetof(RoleTotals, declared_extra_count), offsetof(CollectiveCell, issued_count),
    offsetof(CollectiveCell, bytes), offsetof(CollectiveCell, tensor_count), offsetof(CollectiveCell, gradient_completed_count),
    offsetof(CollectiveCell, last_complete_ns), sizeof(WindowRecord), offsetof(WindowRecord, flags),
    offsetof(WindowRecord, max_micro_steps), offsetof(WindowRecord, late_reductions),
    offsetof(WindowRecord, failed_collectives), offsetof(WindowRecord, gradient_bytes), offsetof(WindowRecord, exposed_ns),
    offsetof(WindowRecord, policy_version), sizeof(WindowSlot), offsetof(WindowSlot, words), sizeof(EventSlot),
    offsetof(EventSlot, what), offsetof(EventSlot, value));

}  // namespace gradgate::page

#endif  // GRADGATE_PROTO_SHM_STATS_PAGE_H_
