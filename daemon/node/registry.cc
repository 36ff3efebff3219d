#include "daemon/node/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/rejection.h"

namespace gradgate {

absl::StatusOr<Registration> Registry::Register(uint32_t user_id, std::unique_ptr<PageMapping> mapping) {
  if (absl::Status s = CheckPageHeader(*mapping->page_untrusted()); !s.ok()) return s;
  absl::StatusOr<RankIdentity> identity = ReadIdentity(*mapping->page_untrusted());
  if (!identity.ok()) return identity.status();

  MutexLock lock(&mutex_);
  Expire();
  JobKey key{user_id, identity->job_name, identity->run_id, identity->attempt};
  const auto known = job_ids_.find(key);
  const uint64_t job_id = known != job_ids_.end() ? known->second : next_job_id_;
  const uint32_t rank = identity->rank;
  if (known != job_ids_.end()) {
    const auto& ranks = jobs_.at(job_id)->ranks;
    const auto old = ranks.find(rank);
    if (old != ranks.end() && old->second.running()) {
      return Reject(Rejection::kRankDuplicate,
                    absl::StrCat("rank ", rank, " of run ", identity->run_id, " (job \"", identity->job_name, "\", attempt ",
                                 identity->attempt, ") is already connected; give each process its own rank"));
    }
    if (old == ranks.end() && ranks.size() >= options_.max_ranks_per_job) {
      return Reject(Rejection::kRankLimit, absl::StrCat("job \"", identity->job_name, "\" already has ", ranks.size(),
                                                        " ranks on this node; raise --max_clients"));
    }
  } else {
    ++next_job_id_;
    jobs_.emplace(job_id, std::make_unique<JobEntry>(job_id, key, options_.window_history));
    job_ids_.emplace(std::move(key), job_id);
  }

  JobEntry& job = *jobs_.at(job_id);
  RankTrack& track = job.ranks[rank];
  const Registration registration{next_connection_++, track.holds_slot() ? track.slot() : slots_.Take()};
  track.Attach(registration.connection, registration.slot, *std::move(identity), std::move(mapping));
  live_.emplace(registration.connection, Live{job_id, rank});
  track.Refresh(Pass::kQuery, SinksOf(job));
  ++generation_;
  return registration;
}

std::optional<RankView> Registry::End(uint64_t connection, Ending ending) {
  MutexLock lock(&mutex_);
  const auto live = live_.find(connection);
  if (live == live_.end()) return std::nullopt;
  JobEntry& job = *jobs_.at(live->second.job_id);
  RankTrack& track = job.ranks.at(live->second.rank);
  live_.erase(live);
  const RankState state = ending == Ending::kGoodbye         ? RankState::kFinished
                          : ending == Ending::kGoodbyeFailed ? RankState::kFailed
                                                             : RankState::kLost;
  track.End(state, clock_->Now(), SinksOf(job));
  if (track.state() == RankState::kLost) ++lost_count_;
  ++generation_;
  RankView view = track.View();
  Expire();
  return view;
}

void Registry::Tick() {
  MutexLock lock(&mutex_);
  RefreshAll(Pass::kTick);
  Expire();
}

uint64_t Registry::generation() const {
  MutexLock lock(&mutex_);
  return generation_;
}

RankSinks Registry::SinksOf(JobEntry& job) { return RankSinks{&job.windows, &histograms_, &page_errors_}; }

void Registry::RefreshAll(Pass pass) {
  for (const auto& [connection, live] : live_) {
    JobEntry& job = *jobs_.at(live.job_id);
    if (job.ranks.at(live.rank).Refresh(pass, SinksOf(job))) ++generation_;
  }
}

void Registry::Expire() {
  const absl::Time now = clock_->Now();
  std::vector<std::pair<absl::Time, uint64_t>> ended;
  for (const auto& [id, job] : jobs_) {
    for (auto& [rank, track] : job->ranks) {
      if (track.holds_slot() && track.end_time() && *track.end_time() + options_.series_linger <= now) {
        track.ReleaseSlot();
        slots_.Release(track.slot());
      }
    }
    if (const auto end_time = job->EndTime()) ended.emplace_back(*end_time, id);
  }
  std::sort(ended.begin(), ended.end());
  const size_t surplus = ended.size() > options_.max_ended_jobs ? ended.size() - options_.max_ended_jobs : 0;
  for (size_t i = 0; i < ended.size(); ++i) {
    if (i < surplus || ended[i].first + options_.keep_ended <= now) DropJob(ended[i].second);
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
