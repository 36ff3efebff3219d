// Writes the stats page (proto/shm/stats_page.h): counters, window records, events. The ledger of the shim is this page; there
// is no second copy of any count.
//
// Thread class: methods marked "any" may be called from any thread; the rest from the loop's thread. No method locks, allocates
// or makes a system call, except Create and the destructor.
//
// Fork: in a child the page is replaced by private memory of the child's own (see shim/link/fork_guard.h), so that nothing it
// writes is seen.

#ifndef GRADGATE_SHIM_STATS_RECORDER_H_
#define GRADGATE_SHIM_STATS_RECORDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "proto/shm/stats_page.h"
#include "shim/core/status.h"

namespace gradgate {

// What is published about the process; lengths are cut to the page's arrays.
struct RecorderIdentity {
  std::string job_name;
  uint8_t run_id[16] = {};
  uint8_t launch_id[16] = {};  // zero: not known
  uint32_t attempt = 0;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t local_rank = 0;
  uint32_t accumulate = 0;
  SyncMode sync_mode = SyncMode::kWindow;
  Enforcement enforcement = Enforcement::kEnforce;
  uint64_t config_hash = 0;
};

class Recorder {
 public:
  // The system calls that a kernel or a sandbox may refuse; replaced in tests.
  struct System {
    int (*memfd_create)(const char* name, unsigned flags);
    int (*add_seals)(int fd, int seals);
  };
  static const System kLinux;

  // Makes the page, sealed. Where memfd_create or the seals are refused, *out still works, on private memory with fd() = −1,
  // and the status says why nothing can be exported (kUnavailable). Throws std::bad_alloc where there is no memory at all.
  static Status Create(const RecorderIdentity& identity, std::unique_ptr<Recorder>* out, const System& system = kLinux);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  int fd() const { return fd_; }  // owned; −1: not exported
  page::StatsPage& page() { return *page_; }
  const page::StatsPage& page() const { return *page_; }

  // CLOCK_MONOTONIC.
  static int64_t NowNs();

  // Adds to a counter that only the loop's thread writes; no locked instruction.
  static void AddOwned(page::U64& counter, uint64_t amount) {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  // Adds to a counter that several threads write. Any thread.
  static void AddShared(page::U64& counter, uint64_t amount) { counter.fetch_add(amount, std::memory_order_relaxed); }

  // Counts the issue and writes an event. Any thread. `intended`: the policy wanted it; ignored but for gradient collectives.
  void CollectiveIssued(GroupRole role, CollectiveOp op, TrafficClass traffic, uint64_t bytes, uint32_t tensors, bool intended,
                        uint32_t micro_step, int64_t now_ns);
  // Counts the end of one, in completed_count or failed_count, and writes an event. Any thread.
  void CollectiveDone(GroupRole role, CollectiveOp op, TrafficClass traffic, bool ok, uint32_t micro_step, int64_t issue_ns,
                      int64_t done_ns);

  // Counts one whose end cannot be observed. Any thread.
  void CollectiveUnknown(GroupRole role, CollectiveOp op) {
    AddShared(page_->cells[static_cast<uint32_t>(role)][static_cast<uint32_t>(op)].unknown_count, 1);
  }

  // Writes one event into the ring; dropped, and counted, if the slot is being written by another thread. Any thread.
  void Record(EventKind kind, GroupRole role, CollectiveOp op, TrafficClass traffic, uint32_t micro_step, uint64_t value,
              int64_t now_ns);

  // Publishes a closed window; record.window_index is set by the caller, slots go by closing order. Neither counts in
  // PageTotals nor writes an event. Loop's thread.
  void WindowClosed(const page::WindowRecord& record);

 private:
  Recorder(page::StatsPage* page, uint64_t mapped_bytes, int fd);

  page::StatsPage* page_;
  uint64_t mapped_bytes_;
  int fd_;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_STATS_RECORDER_H_
