// The registry's answers.

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/node/job_selector.h"
#include "daemon/node/registry.h"

namespace gradgate {
namespace {

constexpr size_t kMinRunIdDigits = 6;
constexpr size_t kRunIdDigits = 32;

// `selector` as the beginning of a run id, or empty when it cannot be one.
std::string AsRunIdPrefix(absl::string_view selector) {
  if (selector.size() < kMinRunIdDigits || selector.size() > kRunIdDigits) return "";
  if (!std::all_of(selector.begin(), selector.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); })) return "";
  return absl::AsciiStrToLower(std::string(selector));
}

}  // namespace

absl::StatusOr<JobEntry*> Registry::Find(absl::string_view text) {
  const JobSelector selector = ParseJobSelector(text);
  if (selector.job.empty()) {
    return absl::InvalidArgumentError("job is empty; give a job name, or at least 6 digits of a run id, or UID/ before either");
  }
  const std::string prefix = AsRunIdPrefix(selector.job);
  JobEntry* named = nullptr;
  JobEntry* by_run = nullptr;
  // A user may name a job as another does, claim its run id, and say when it started; only the uid is the kernel's word.
  std::set<std::pair<int64_t, std::string>> named_runs, claimed_runs;
  std::set<int64_t> named_users, claiming_users;
  std::set<std::string> runs;
  const auto take_later = [](JobEntry*& best, JobEntry* job) {
    if (best == nullptr || StartedAfter(job->View(), best->View())) best = job;
  };
  for (const auto& [id, job] : jobs_) {
    const JobKey& key = job->key;
    if (!selector.IsOf(key.user_id)) continue;
    if (key.job_name == selector.job) {
      named_runs.emplace(key.user_id, key.run_id);
      named_users.insert(key.user_id);
      take_later(named, job.get());
    }
    if (!prefix.empty() && absl::StartsWith(key.run_id, prefix)) {
      claimed_runs.emplace(key.user_id, key.run_id);
      claiming_users.insert(key.user_id);
      runs.insert(key.run_id);
      take_later(by_run, job.get());
    }
  }
  if (named_users.size() > 1) return SeveralUsers("are called", selector.job, named_runs);
  if (named != nullptr) return named;
  if (runs.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("several runs begin with \"", selector.job, "\"; give more digits"));
  }
  if (claiming_users.size() > 1) return SeveralUsers("claim the run", selector.job, claimed_runs);
  if (by_run != nullptr) return by_run;
  return absl::NotFoundError(
      absl::StrCat("no job \"", text, "\" on this node; ListJobs tells those that are (", jobs_.size(), ")"));
}

absl::StatusOr<JobEntry*> Registry::FindById(uint64_t job_id) {
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return absl::NotFoundError("the job ended and is no longer kept");
  return job->second.get();
}

std::vector<JobView> Registry::ListJobs() {
  std::vector<JobView> views;
  {
    MutexLock lock(&mutex_);
    RefreshAll(Pass::kQuery);
    Expire();
    views.reserve(jobs_.size());
    for (const auto& [id, job] : jobs_) views.push_back(job->View());
  }
  std::sort(views.begin(), views.end(), StartedAfter);
  return views;
}

absl::StatusOr<JobStatsView> Registry::GetJobStats(absl::string_view selector) {
  MutexLock lock(&mutex_);
  RefreshAll(Pass::kQuery);
  Expire();
  absl::StatusOr<JobEntry*> job = Find(selector);
  if (!job.ok()) return job.status();
  JobStatsView stats{(*job)->View(), {}};
  for (const auto& [rank, track] : (*job)->ranks) stats.ranks.push_back(track.View());
  return stats;
}

absl::StatusOr<JobEvidenceView> Registry::GetEvidence(absl::string_view selector) {
  MutexLock lock(&mutex_);
  RefreshAll(Pass::kQuery);
  Expire();
  absl::StatusOr<JobEntry*> job = Find(selector);
  if (!job.ok()) return job.status();
  return EvidenceOf(**job);
}

std::vector<JobEvidenceView> Registry::GetRunningEvidence() {
  MutexLock lock(&mutex_);
  RefreshAll(Pass::kQuery);
  Expire();
  std::vector<JobEvidenceView> all;
  for (const auto& [id, job] : jobs_) {
    if (job->running()) all.push_back(EvidenceOf(*job));
  }
  return all;
}

JobEvidenceView Registry::EvidenceOf(const JobEntry& job) const {
  JobEvidenceView evidence{job.View(), clock_->Now(), {}};
  const uint64_t now_ns = clock_->MonotonicNs();
  for (const auto& [rank, track] : job.ranks) evidence.ranks.push_back(track.Evidence(evidence.now, now_ns));
  return evidence;
}

absl::StatusOr<uint64_t> Registry::FindJob(absl::string_view selector) {
  MutexLock lock(&mutex_);
  Expire();
  absl::StatusOr<JobEntry*> job = Find(selector);
  if (!job.ok()) return job.status();
  return (*job)->id;
}

absl::StatusOr<JobView> Registry::ViewJob(absl::string_view selector) {
  MutexLock lock(&mutex_);
  RefreshAll(Pass::kQuery);
  Expire();
  absl::StatusOr<JobEntry*> job = Find(selector);
  if (!job.ok()) return job.status();
  return (*job)->View();
}

absl::StatusOr<std::vector<WindowView>> Registry::ListWindows(uint64_t job_id, std::optional<uint64_t> from_index,
                                                              bool newest_first, size_t limit) {
  MutexLock lock(&mutex_);
  RefreshAll(Pass::kQuery);
  absl::StatusOr<JobEntry*> job = FindById(job_id);
  if (!job.ok()) return job.status();
  const WindowHistory::Map& windows = (*job)->windows.windows();
  std::vector<WindowView> views;
  if (newest_first) {
    auto at = from_index ? windows.upper_bound(*from_index) : windows.end();
    while (at != windows.begin() && views.size() < limit) views.push_back((*job)->ViewWindow(--at));
  } else {
    auto at = from_index ? windows.lower_bound(*from_index) : windows.begin();
    for (; at != windows.end() && views.size() < limit; ++at) views.push_back((*job)->ViewWindow(at));
  }
  return views;
}

absl::StatusOr<WatchPosition> Registry::StartWatch(absl::string_view selector, std::optional<uint64_t> first_index) {
  MutexLock lock(&mutex_);
  RefreshAll(Pass::kQuery);
  absl::StatusOr<JobEntry*> job = Find(selector);
  if (!job.ok()) return job.status();
  const WindowHistory::Map& windows = (*job)->windows.windows();
  if (first_index) {
    const uint64_t oldest = windows.empty() ? 0 : windows.begin()->first;
    return WatchPosition{(*job)->id, std::max(*first_index, oldest)};
  }
  const uint64_t after_newest = windows.empty() ? 0 : std::prev(windows.end())->first + 1;
  return WatchPosition{(*job)->id, std::min((*job)->ClosedByRunning(), after_newest)};
}

absl::StatusOr<WatchStep> Registry::NextForWatch(WatchPosition& position) {
  MutexLock lock(&mutex_);
  absl::StatusOr<JobEntry*> job = FindById(position.job_id);
  if (!job.ok()) return job.status();
  const WindowHistory::Map& windows = (*job)->windows.windows();
  const auto window = windows.lower_bound(position.next_index);
  WatchStep step;
  if (window != windows.end() && window->first < (*job)->ClosedByRunning()) {
    step.window = (*job)->ViewWindow(window);
    step.skipped_count = window->first - position.next_index;
    position.next_index = window->first + 1;
  } else if (!(*job)->running()) {
    step.ended_job = (*job)->View();
  }
  return step;
}

std::vector<PolicyInForce> Registry::ListPoliciesInForce() const {
  std::vector<PolicyInForce> all;
  MutexLock lock(&mutex_);
  for (const auto& [id, job] : jobs_) {
    PolicyInForce one{job->key, job->ranks.begin()->second.identity().launch_id, 0};
    for (const auto& [rank, track] : job->ranks) one.version = std::max(one.version, track.counters().totals.policy_version);
    if (one.version != 0 && !one.launch_id.empty()) all.push_back(std::move(one));
  }
  return all;
}

NodeView Registry::GetNode() {
  NodeView node;
  {
    MutexLock lock(&mutex_);
    RefreshAll(Pass::kQuery);
    Expire();
    for (const auto& [id, job] : jobs_) {
      for (const auto& [rank, track] : job->ranks) {
        if (track.holds_slot()) node.ranks.push_back(track.View());
      }
    }
    node.client_count = live_.size();
    node.lost_count = lost_count_;
    node.job_count = jobs_.size();
    node.page_errors = page_errors_;
    node.histograms = histograms_;
  }
  std::sort(node.ranks.begin(), node.ranks.end(), [](const RankView& a, const RankView& b) { return a.slot < b.slot; });
  return node;
}

}  // namespace gradgate
