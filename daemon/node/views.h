// What the registry answers: plain copies, taken under its lock, that hold nothing of it.

#ifndef GRADGATE_DAEMON_NODE_VIEWS_H_
#define GRADGATE_DAEMON_NODE_VIEWS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "daemon/node/counters.h"
#include "daemon/node/histogram.h"
#include "daemon/node/page_reader.h"
#include "daemon/node/window_history.h"
#include "daemon/node/window_trail.h"

namespace gradgate {

enum class RankState : uint8_t { kRunning = 0, kFinished = 1, kLost = 2, kFailed = 3 };
inline constexpr size_t kRankStateCount = 4;

struct RankView {
  uint32_t slot = 0;
  RankState state = RankState::kRunning;
  RankIdentity identity;
  std::optional<absl::Time> end_time;
  Counters counters{};  // the last good ones
  uint64_t event_read_count = 0;
  uint64_t event_missed_count = 0;
  uint64_t window_missed_count = 0;
  uint64_t connect_count = 0;  // times it said Hello to this daemon
};

// What is in force on a rank: as its page tells, else as it was given.
inline SyncMode ModeInForce(const RankIdentity& identity, const Counters& counters) {
  const SyncMode mode = page::UnpackMode(counters.totals.sync_mode);
  return mode != SyncMode::kUnspecified ? mode : identity.sync_mode;
}
inline Enforcement EnforcementInForce(const RankIdentity& identity, const Counters& counters) {
  const Enforcement enforcement = page::UnpackEnforcement(counters.totals.sync_mode);
  return enforcement != Enforcement::kUnspecified ? enforcement : identity.enforcement;
}

struct JobView {
  uint64_t id = 0;  // this daemon's number for the job, never reused
  uint32_t user_id = 0;
  std::string job_name;
  std::string run_id;
  uint32_t attempt = 0;
  std::string launch_id;  // empty: not known
  uint32_t world_size = 0;
  RankState state = RankState::kRunning;
  absl::Time start_time;
  std::optional<absl::Time> end_time;
  std::array<uint32_t, kRankStateCount> rank_counts{};
  SyncMode sync_mode = SyncMode::kUnspecified;
  Enforcement enforcement = Enforcement::kUnspecified;
  uint32_t accumulate = 0;
  uint64_t window_count = 0;
  uint32_t lowest_rank = 0;
  uint64_t closed_by_all = 0;      // windows below this are closed by every rank seen
  uint64_t closed_by_running = 0;  // by every running one; UINT64_MAX: none runs
};

struct JobStatsView {
  JobView job;
  std::vector<RankView> ranks;  // by rank
};

// A rank as the doctor looks at it.
struct RankEvidenceView {
  RankView rank;
  int32_t peer_process_id = 0;   // as the kernel tells it, while it runs; 0: not known
  absl::Duration idle;           // since its loop, or a collective of its, was seen to do anything
  uint64_t in_flight_count = 0;  // collectives whose end would be seen, and was not
  // Without what was gone before this daemon first looked.
  uint64_t event_missed_count = 0;
  uint64_t window_missed_count = 0;
  uint64_t page_error_count = 0;     // records torn or invalid, counters not taken over
  WindowEvents open;                 // of the open window
  std::vector<TrailWindow> windows;  // oldest first
  absl::Duration wait_p99;
  size_t wait_count = 0;  // what that is of
  uint64_t early_gradient_ns = 0;
};

struct WindowView {
  uint64_t window_index = 0;
  std::vector<RankWindow> ranks;  // by rank
  bool complete = false;          // every rank that is, or was, connected here has closed it
};

// What was wrong inside pages that had been accepted.
struct PageErrors {
  uint64_t window_torn_count = 0;
  uint64_t window_invalid_count = 0;
  uint64_t event_invalid_count = 0;
  uint64_t counters_backwards_count = 0;  // snapshots not taken over because a counter ran backwards
  uint64_t counters_invalid_count = 0;    // snapshots not taken over because a counter was out of range
};

// A job as the doctor looks at it.
struct JobEvidenceView {
  JobView job;
  absl::Time now;
  std::vector<RankEvidenceView> ranks;  // by rank
};

// Sums over all ranks this daemon has seen; they only grow.
struct NodeHistograms {
  std::array<std::array<CollectiveHistogram, kCollectiveOpCount>, kGroupRoleCount> collective_duration;
  WindowHistogram window_duration;
  WindowHistogram window_exposed;
};

struct NodeView {
  std::vector<RankView> ranks;  // live ones and those whose series linger; by slot, each slot once
  uint64_t client_count = 0;    // trainers connected and registered
  uint64_t lost_count = 0;      // ranks lost since start
  uint64_t job_count = 0;       // kept, running or ended
  PageErrors page_errors;
  NodeHistograms histograms;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_VIEWS_H_
