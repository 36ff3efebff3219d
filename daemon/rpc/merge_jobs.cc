#include "daemon/rpc/merge_jobs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/node/text_check.h"
#include "daemon/rpc/sums.h"

namespace gradgate {
namespace {

using Time = std::pair<int64_t, int32_t>;
Time ToTime(const google::protobuf::Timestamp& time) { return {time.seconds(), time.nanos()}; }

// As page tokens keep it; what comes after the year 2255 is that year's.
int64_t ToNanos(const Time& time) {
  return std::clamp<int64_t>(time.first, 0, 9'000'000'000) * 1'000'000'000 + std::clamp(time.second, 0, 999'999'999);
}

constexpr uint64_t kMergedJobsList = 1;  // job ids, of which other lists are made, begin at 1 and are shifted

using JobKey = std::tuple<int64_t, std::string, std::string, int32_t>;
JobKey KeyOf(const v1::Job& job) { return {job.user_id(), job.job_name(), job.run_id(), job.attempt()}; }

v1::State StateOf(const std::map<v1::State, int32_t>& counts) {
  for (const v1::State state : {v1::STATE_RUNNING, v1::STATE_LOST, v1::STATE_FAILED}) {
    const auto count = counts.find(state);
    if (count != counts.end() && count->second > 0) return state;
  }
  return v1::STATE_FINISHED;
}

void SetCounts(std::map<v1::State, int32_t> counts, v1::Job* job) {
  job->set_state(StateOf(counts));
  job->set_running_rank_count(counts[v1::STATE_RUNNING]);
  job->set_finished_rank_count(counts[v1::STATE_FINISHED]);
  job->set_lost_rank_count(counts[v1::STATE_LOST]);
  job->set_failed_rank_count(counts[v1::STATE_FAILED]);
  if (job->state() == v1::STATE_RUNNING) job->clear_end_time();
}

// Of two that claim to be one rank.
bool IsRather(const v1::RankStats& a, const v1::RankStats& b) {
  const auto running = [](const v1::RankStats& rank) { return rank.state() == v1::STATE_RUNNING; };
  if (running(a) != running(b)) return running(a);
  return ToTime(a.start_time()) > ToTime(b.start_time());
}

struct Claimed {
  size_t part;
  v1::RankStats* rank;
};

// The ranks of all parts, each once. Notes tell who claimed one in vain.
std::map<int32_t, Claimed> ChooseRanks(Parts<v1::GetJobStatsResponse>& parts) {
  std::map<int32_t, Claimed> ranks;
  std::map<std::pair<size_t, size_t>, std::vector<int32_t>> in_vain;  // by loser's part and winner's
  for (size_t i = 0; i < parts.parts.size(); ++i) {
    for (v1::RankStats& rank : *parts.parts[i].answer.mutable_ranks()) {
      rank.set_node_name(parts.nodes[parts.parts[i].node].node_name());
      const auto [at, fresh] = ranks.emplace(rank.rank(), Claimed{i, &rank});
      if (fresh) continue;
      const bool rather = IsRather(rank, *at->second.rank);
      const size_t former = at->second.part;
      if (rather) at->second = Claimed{i, &rank};
      in_vain[rather ? std::pair(former, i) : std::pair(i, former)].push_back(rank.rank());
    }
  }
  for (const auto& [who, claims] : in_vain) {
    AddNote(absl::StrCat("also claims rank ", absl::StrJoin(claims, ", "), ", taken from node ",
                         parts.nodes[parts.parts[who.second].node].node_name()),
            parts.nodes[parts.parts[who.first].node]);
  }
  return ranks;
}

}  // namespace

absl::Status CheckJob(const v1::Job& job) {
  if (job.run_id().empty() || job.job_name().size() > 255 || job.run_id().size() > 64 || job.launch_id().size() > 64) {
    return absl::DataLossError("a job without run id, or with names that are too long");
  }
  if (!IsPrintableUtf8(job.job_name()) || !IsPrintableUtf8(job.run_id()) || !IsPrintableUtf8(job.launch_id()))
    return absl::DataLossError("text that cannot be shown");
  for (const int32_t count : {job.running_rank_count(), job.finished_rank_count(), job.lost_rank_count(),
                              job.failed_rank_count(), job.world_size(), job.lowest_rank()}) {
    if (count < 0) return absl::DataLossError("a negative number of ranks");
  }
  return absl::OkStatus();
}

absl::Status CheckJobStats(const v1::GetJobStatsResponse& part) {
  if (absl::Status status = CheckJob(part.job()); !status.ok()) return status;
  if (part.ranks().empty()) return absl::DataLossError("a job without ranks");
  std::set<int32_t> ranks;
  for (const v1::RankStats& rank : part.ranks()) {
    if (rank.rank() < 0 || !ranks.insert(rank.rank()).second)
      return absl::DataLossError("a rank that is negative, or there twice");
    if (!IsPrintableUtf8(rank.host_name()) || !IsPrintableUtf8(rank.shim_version())) {
      return absl::DataLossError("text that cannot be shown");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckJobList(const v1::ListJobsResponse& part) {
  for (const v1::Job& job : part.jobs()) {
    if (absl::Status status = CheckJob(job); !status.ok()) return status;
  }
  return absl::OkStatus();
}

v1::Job MergeJob(const std::vector<const v1::Job*>& jobs) {
  v1::Job merged = **std::min_element(jobs.begin(), jobs.end(),
                                      [](const v1::Job* a, const v1::Job* b) { return a->lowest_rank() < b->lowest_rank(); });
  std::map<v1::State, int32_t> counts;
  const auto add = [&](v1::State state, int32_t count) {
    counts[state] = static_cast<int32_t>(std::min<int64_t>(int64_t{counts[state]} + count, INT32_MAX));
  };
  for (const v1::Job* job : jobs) {
    add(v1::STATE_RUNNING, job->running_rank_count());
    add(v1::STATE_FINISHED, job->finished_rank_count());
    add(v1::STATE_LOST, job->lost_rank_count());
    add(v1::STATE_FAILED, job->failed_rank_count());
    merged.set_world_size(std::max(merged.world_size(), job->world_size()));
    merged.set_window_count(std::min(merged.window_count(), job->window_count()));
    if (ToTime(job->start_time()) < ToTime(merged.start_time())) *merged.mutable_start_time() = job->start_time();
    if (job->has_end_time() && ToTime(job->end_time()) > ToTime(merged.end_time()))
      *merged.mutable_end_time() = job->end_time();
  }
  SetCounts(std::move(counts), &merged);
  return merged;
}

v1::GetJobStatsResponse MergeJobStats(Parts<v1::GetJobStatsResponse> parts) {
  const std::map<int32_t, Claimed> ranks = ChooseRanks(parts);
  v1::GetJobStatsResponse merged;
  v1::Job& job = *merged.mutable_job();
  job = parts.parts[ranks.begin()->second.part].answer.job();  // modes as its lowest rank's node has them
  job.set_lowest_rank(ranks.begin()->first);
  job.set_window_count(INT64_MAX);
  *job.mutable_start_time() = ranks.begin()->second.rank->start_time();
  job.clear_end_time();
  for (const auto& part : parts.parts) job.set_world_size(std::max(job.world_size(), part.answer.job().world_size()));
  std::map<v1::State, int32_t> counts;
  Sums sums;
  for (const auto& [number, claimed] : ranks) {
    v1::RankStats& rank = *claimed.rank;
    ++counts[rank.state()];
    const v1::SyncTotals& totals = rank.totals();
    const int64_t windows =
        AddCounts(AddCounts(totals.window_full_count(), totals.window_partial_count()), totals.window_empty_count());
    job.set_window_count(std::min(job.window_count(), windows));
    if (ToTime(rank.start_time()) < ToTime(job.start_time())) *job.mutable_start_time() = rank.start_time();
    if (rank.has_end_time() && ToTime(rank.end_time()) > ToTime(job.end_time())) *job.mutable_end_time() = rank.end_time();
    sums.Add(rank);
    merged.add_ranks()->Swap(&rank);
  }
  SetCounts(std::move(counts), &job);
  sums.Fill(&merged);
  for (v1::NodeAnswer& node : parts.nodes) *merged.add_nodes() = std::move(node);
  return merged;
}

absl::StatusOr<v1::ListJobsResponse> MergeJobLists(Parts<v1::ListJobsResponse> parts, const v1::ListJobsRequest& request,
                                                   const PageTokens& tokens) {
  absl::StatusOr<size_t> size = CheckPageSize(request.page_size());
  if (!size.ok()) return size.status();
  std::map<JobKey, std::vector<const v1::Job*>> by_key;
  for (const auto& part : parts.parts) {
    for (const v1::Job& job : part.answer.jobs()) by_key[KeyOf(job)].push_back(&job);
    if (!part.answer.next_page_token().empty()) {
      AddNote(absl::StrCat("has more jobs than the ", part.answer.jobs_size(), " that started last, which are here"),
              parts.nodes[part.node]);
    }
  }
  using Place = std::pair<int64_t, uint64_t>;  // the last started first; ties by a number that each job keeps
  std::map<Place, v1::Job> jobs;
  for (const auto& [key, same] : by_key) {
    v1::Job job = MergeJob(same);
    const Place place{-ToNanos(ToTime(job.start_time())), absl::HashOf(key)};
    jobs.emplace(place, std::move(job));
  }
  auto at = jobs.begin();
  if (!request.page_token().empty()) {
    absl::StatusOr<PageStart> start = tokens.Parse(request.page_token(), kMergedJobsList);
    if (!start.ok()) return start.status();
    at = jobs.upper_bound(Place{start->first, start->second});
  }
  v1::ListJobsResponse merged;
  for (; at != jobs.end() && static_cast<size_t>(merged.jobs_size()) < *size; ++at) *merged.add_jobs() = at->second;
  if (at != jobs.end() && at != jobs.begin()) {
    const Place& last = std::prev(at)->first;
    merged.set_next_page_token(tokens.Make(PageStart{kMergedJobsList, last.first, last.second}));
  }
  for (v1::NodeAnswer& node : parts.nodes) *merged.add_nodes() = std::move(node);
  return merged;
}

}  // namespace gradgate
