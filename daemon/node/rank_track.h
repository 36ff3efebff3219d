// One rank of a job on this node: its page while it lives, and the last good copy of what the page said.
//
//   RUNNING --end()--> FINISHED | LOST | FAILED --Attach()--> RUNNING (the same rank, connected anew)
//
// Thread class: the registry's lock.

#ifndef GRADGATE_DAEMON_NODE_RANK_TRACK_H_
#define GRADGATE_DAEMON_NODE_RANK_TRACK_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "daemon/node/page_mapping.h"
#include "daemon/node/page_reader.h"
#include "daemon/node/views.h"
#include "daemon/node/window_history.h"
#include "daemon/node/window_trail.h"

namespace gradgate {

// Where what is read goes besides the rank itself. Not owned.
struct RankSinks {
  WindowHistory* windows;
  NodeHistograms* histograms;
  PageErrors* errors;
  uint64_t now_ns;  // the node's CLOCK_MONOTONIC
};

class RankTrack {
 public:
  // Takes over a page whose header and identity are checked. With the same file as before, rings are read on from where they
  // were; with another (a new process of the same rank), from the start.
  void Attach(uint64_t connection, uint32_t slot, RankIdentity identity, std::unique_ptr<PageMapping> mapping);

  // Reads counters and rings of a live page; does nothing otherwise. True if a window was added.
  bool Refresh(Pass pass, const RankSinks& sinks);

  // Reads the page one last time, lets go of it, then changes state.
  void End(RankState state, absl::Time now, const RankSinks& sinks);

  // As the kernel tells it in this daemon's namespace; 0: not known.
  void set_peer_process_id(int32_t process_id) { peer_process_id_ = process_id; }

  bool running() const { return state_ == RankState::kRunning; }
  uint64_t connection() const { return connection_; }
  RankState state() const { return state_; }
  const RankIdentity& identity() const { return identity_; }
  const Counters& counters() const { return counters_; }
  std::optional<absl::Time> end_time() const { return end_time_; }
  // Windows before this index are read, or known to be lost.
  uint64_t window_next() const { return window_cursor_.next; }

  // Whether the slot is this rank's, so that its series may be exported.
  bool holds_slot() const { return holds_slot_; }
  uint32_t slot() const { return slot_; }
  void ReleaseSlot() { holds_slot_ = false; }

  RankView View() const;
  // What the doctor looks at. `now` and `now_ns`: one instant, by the wall and by CLOCK_MONOTONIC.
  RankEvidenceView Evidence(absl::Time now, uint64_t now_ns) const;

 private:
  void TakeCounters(const RankSinks& sinks);

  uint64_t connection_ = 0;
  uint32_t slot_ = 0;
  bool holds_slot_ = false;
  RankState state_ = RankState::kRunning;
  int32_t peer_process_id_ = 0;
  RankIdentity identity_;
  std::unique_ptr<PageMapping> mapping_;  // null when ended
  PageMapping::FileId file_id_{};
  Counters counters_{};
  RingCursor window_cursor_;
  RingCursor event_cursor_;
  std::optional<absl::Time> end_time_;
  uint64_t event_read_count_ = 0;
  uint64_t event_missed_count_ = 0;
  uint64_t window_missed_count_ = 0;
  uint64_t connect_count_ = 0;
  // Of the two above, what was gone before this daemon first looked.
  uint64_t event_missed_before_ = 0;
  uint64_t window_missed_before_ = 0;
  uint64_t page_error_count_ = 0;
  WindowTrail trail_;
  uint64_t active_ns_ = 0;   // latest instant that the page has, on the trainer's clock
  uint64_t changed_ns_ = 0;  // when that was seen to change, on the node's
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_RANK_TRACK_H_
