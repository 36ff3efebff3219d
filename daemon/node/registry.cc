#include "daemon/node/registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/rejection.h"

namespace gradgate {

absl::StatusOr<Registration> Registry::Register(uint32_t user_id, std::unique_ptr<PageMapping> mapping, int32_t process_id) {
  if (absl::Status s = CheckPageHeader(*mapping->page_untrusted()); !s.ok()) return s;
  absl::StatusOr<RankIdentity> identity = ReadIdentity(*mapping->page_untrusted());
  if (!identity.ok()) return identity.status();

  MutexLock lock(&mutex_);
  Expire();
  JobKey key{user_id, identity->job_name, identity->run_id, identity->attempt};
  const uint32_t rank = identity->rank;
  if (absl::Status s = CheckRank(key, rank); !s.ok()) return s;

  const auto [known, is_new] = job_ids_.try_emplace(key, next_job_id_);
  const uint64_t job_id = known->second;
  if (is_new) {
    ++next_job_id_;
    jobs_.emplace(job_id, std::make_unique<JobEntry>(job_id, key, options_.window_history));
  }
  JobEntry& job = *jobs_.at(job_id);
  RankTrack& track = job.ranks[rank];
  Registration registration{next_connection_++, track.holds_slot() ? track.slot() : slots_.Take(), std::move(key),
                            identity->launch_id};
  track.Attach(registration.connection, registration.slot, *std::move(identity), std::move(mapping));
  track.set_peer_process_id(process_id);
  live_.emplace(registration.connection, Live{job_id, rank});
  track.Refresh(Pass::kQuery, SinksOf(job));
  ++generation_;
  return registration;
}

absl::Status Registry::CheckRank(const JobKey& key, uint32_t rank) {
  if (const auto known = job_ids_.find(key); known != job_ids_.end()) {
    const auto& ranks = jobs_.at(known->second)->ranks;
    const auto old = ranks.find(rank);
    if (old != ranks.end() && !old->second.running()) return absl::OkStatus();  // back again
    if (old != ranks.end()) {
      return Reject(Rejection::kRankDuplicate,
                    absl::StrCat("rank ", rank, " of run ", key.run_id, " (job \"", key.job_name, "\", attempt ", key.attempt,
                                 ") is already connected; give each process its own rank"));
    }
    if (ranks.size() >= options_.max_ranks_per_job) {
      return Reject(Rejection::kRankLimit, absl::StrCat("job \"", key.job_name, "\" already has ", ranks.size(),
                                                        " ranks on this node; raise --max_clients"));
    }
  }
  return MakeRoom(key.user_id);
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

RankSinks Registry::SinksOf(JobEntry& job) {
  return RankSinks{&job.windows, &histograms_, &page_errors_, clock_->MonotonicNs()};
}

void Registry::RefreshAll(Pass pass) {
  for (const auto& [connection, live] : live_) {
    JobEntry& job = *jobs_.at(live.job_id);
    if (job.ranks.at(live.rank).Refresh(pass, SinksOf(job))) ++generation_;
  }
}

}  // namespace gradgate
