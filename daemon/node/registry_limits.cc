// What the registry forgets: by age, and where a bound is reached. Each pass is over all jobs, of which there are few.

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/registry.h"
#include "daemon/node/rejection.h"

namespace gradgate {
namespace {

size_t One(const JobEntry&) { return 1; }
size_t RankCount(const JobEntry& job) { return job.ranks.size(); }
size_t RecordCount(const JobEntry& job) { return job.windows.record_count(); }

// The key with the largest value; `sizes` is not empty.
uint32_t Heaviest(const std::map<uint32_t, size_t>& sizes) {
  return std::max_element(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
}

// What one user may hold of a bound that ended jobs no longer make room in: three quarters.
size_t ShareOfOne(size_t bound) { return bound - bound / 4; }

}  // namespace

void Registry::Expire() {
  const absl::Time now = clock_->Now();
  std::vector<uint64_t> old;
  for (const auto& [id, job] : jobs_) {
    for (auto& [rank, track] : job->ranks) {
      if (track.holds_slot() && track.end_time() && *track.end_time() + options_.series_linger <= now) {
        track.ReleaseSlot();
        slots_.Release(track.slot());
      }
    }
    if (const auto end_time = job->EndTime(); end_time && *end_time + options_.keep_ended <= now) old.push_back(id);
  }
  for (const uint64_t id : old) DropJob(id);
  EvictEnded(One, options_.max_ended_jobs, /*ended_only=*/true);
  if (EvictEnded(RecordCount, options_.max_window_records, /*ended_only=*/false) > options_.max_window_records) TrimWindows();
}

absl::Status Registry::MakeRoom(uint32_t user_id) {
  const size_t kept = EvictEnded(RankCount, options_.max_ranks - 1, /*ended_only=*/false);
  if (kept >= options_.max_ranks) {
    return Reject(Rejection::kRankLimit, absl::StrCat("running jobs already have ", kept, " ranks; raise --max_ranks"));
  }
  size_t own = 0;
  for (const auto& [id, job] : jobs_) {
    if (job->key.user_id == user_id && job->running()) own += job->ranks.size();
  }
  if (own < ShareOfOne(options_.max_ranks)) return absl::OkStatus();
  return Reject(Rejection::kRankLimit, absl::StrCat("running jobs of uid ", user_id, " already have ", own,
                                                    " ranks, three quarters of --max_ranks; raise it"));
}

size_t Registry::EvictEnded(size_t (*size_of)(const JobEntry&), size_t limit, bool ended_only) {
  size_t kept = 0;
  std::map<uint32_t, size_t> of_user;  // in ended jobs
  std::map<std::pair<uint32_t, absl::Time>, std::vector<uint64_t>> ended;
  for (const auto& [id, job] : jobs_) {
    const size_t size = size_of(*job);
    const auto end_time = job->EndTime();
    if (end_time || !ended_only) kept += size;
    if (!end_time || size == 0) continue;
    of_user[job->key.user_id] += size;
    ended[{job->key.user_id, *end_time}].push_back(id);
  }
  while (kept > limit && !ended.empty()) {
    const uint32_t user_id = Heaviest(of_user);
    const auto first = ended.lower_bound({user_id, absl::InfinitePast()});
    for (const uint64_t id : first->second) {
      if (kept <= limit) break;
      const size_t size = size_of(*jobs_.at(id));
      kept -= size;
      if ((of_user[user_id] -= size) == 0) of_user.erase(user_id);
      DropJob(id);
    }
    ended.erase(first);
  }
  return kept;
}

// Half of the largest history of the heaviest user at a time, so that this costs little however fast windows come.
void Registry::TrimWindows() {
  size_t kept = 0;
  std::map<uint32_t, size_t> of_user;
  for (const auto& [id, job] : jobs_) {
    kept += RecordCount(*job);
    of_user[job->key.user_id] += RecordCount(*job);
  }
  while (kept > options_.max_window_records) {
    const uint32_t user_id = Heaviest(of_user);
    JobEntry* largest = nullptr;
    for (const auto& [id, job] : jobs_) {
      if (job->key.user_id != user_id) continue;
      if (largest == nullptr || RecordCount(*job) > RecordCount(*largest)) largest = job.get();
    }
    const size_t before = RecordCount(*largest);
    while (RecordCount(*largest) > before / 2 && largest->windows.DropOldest()) {
    }
    const size_t dropped = before - RecordCount(*largest);
    if (dropped == 0) return;  // one window in each: ranks are bounded, and so are these
    kept -= dropped;
    of_user[user_id] -= dropped;
  }
}

void Registry::DropJob(uint64_t job_id) {
  const auto job = jobs_.find(job_id);
  for (auto& [rank, track] : job->second->ranks) {
    if (track.holds_slot()) slots_.Release(track.slot());
  }
  job_ids_.erase(job->second->key);
  jobs_.erase(job);
  ++generation_;
}

}  // namespace gradgate
