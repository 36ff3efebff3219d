// One job on this node: its ranks, its windows, and the answers that are made of them.
//
// Thread class: the registry's lock.

#ifndef GRADGATE_DAEMON_NODE_JOB_ENTRY_H_
#define GRADGATE_DAEMON_NODE_JOB_ENTRY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "daemon/node/rank_track.h"
#include "daemon/node/views.h"
#include "daemon/node/window_history.h"

namespace gradgate {

struct JobKey {
  uint32_t user_id;
  std::string job_name;
  std::string run_id;
  uint32_t attempt;
  auto operator<=>(const JobKey&) const = default;
};

// What a job has in force, for those who come after it.
struct PolicyInForce {
  JobKey job;
  std::string launch_id;  // never empty
  uint64_t version = 0;   // never 0
};

struct JobEntry {
  JobEntry(uint64_t job_id, JobKey job_key, size_t window_history)
      : id(job_id), key(std::move(job_key)), windows(window_history) {}

  // RUNNING while any rank is; else LOST if any was lost; else FAILED if any failed; else FINISHED.
  RankState State() const;
  bool running() const { return State() == RankState::kRunning; }
  absl::Time StartTime() const;               // of the first rank
  std::optional<absl::Time> EndTime() const;  // of the last rank; none while running

  // Windows below this are closed by every running rank (without one: by none that will still come, so no bound).
  uint64_t ClosedByRunning() const;
  // Windows below this are closed by every rank seen.
  uint64_t ClosedByAll() const;

  JobView View() const;
  WindowView ViewWindow(WindowHistory::Map::const_iterator window) const;

  const uint64_t id;
  const JobKey key;
  std::map<uint32_t, RankTrack> ranks;  // by rank; never empty
  WindowHistory windows;
};

// Whether `a` started after `b`; ties go to the job met later.
bool StartedAfter(const JobView& a, const JobView& b);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_JOB_ENTRY_H_
