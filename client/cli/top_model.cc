#include "client/cli/top_model.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/cli/doctor_view.h"

namespace gradgate::cli {
namespace {

std::string AttemptKey(const v1::Job& job) { return absl::StrCat(TopKey(job), "/", job.attempt()); }

void AddTo(const std::optional<Counted>& one, std::optional<Counted>* sum) {
  if (!one.has_value()) return;
  if (sum->has_value()) {
    (*sum)->Add(*one);
  } else {
    *sum = one;
  }
}

}  // namespace

std::string TopKey(const v1::Job& job) { return absl::StrCat(job.user_id(), "/", job.run_id()); }

void TopCounts::Add(const TopCounts& other) {
  AddTo(other.recent, &recent);
  AddTo(other.ratios, &ratios);
}

void TopModel::Add(TopRound round) {
  status_ = round.status;
  if (!round.status.ok()) return;
  answered_at_ = round.at;
  if (!round.diagnosed.empty()) diagnoses_.insert_or_assign(round.diagnosed, round.diagnosis);
  round_ = std::move(round);
  AddRates();
  jobs_.clear();
  std::set<std::string> known;
  for (const v1::Job& job : round_.jobs) {
    jobs_.push_back(Summary(job));
    known.insert(jobs_.back().key);
  }
  for (auto it = diagnoses_.begin(); it != diagnoses_.end();)
    it = known.count(it->first) != 0 ? std::next(it) : diagnoses_.erase(it);
}

// A rank that a silent node has is not read anew, and none is forgotten for that while its job is there.
void TopModel::AddRates() {
  std::set<std::string> attempts;
  for (const v1::Job& job : round_.jobs) attempts.insert(AttemptKey(job));
  for (auto it = rates_.begin(); it != rates_.end();)
    it = attempts.count(it->first.first) != 0 ? std::next(it) : rates_.erase(it);
  for (const auto& [key, stats] : round_.stats) {
    for (const v1::RankStats& rank : stats.ranks()) {
      rates_[{AttemptKey(stats.job()), rank.rank()}].Add(round_.at, CountedOf(rank.totals()));
    }
  }
}

TopCounts TopModel::CountsOf(const v1::Job& job, const v1::RankStats& rank) const {
  if (rank.state() != v1::STATE_RUNNING) return {CountedOf(rank.totals()), CountedOf(rank.totals())};
  const auto rates = rates_.find({AttemptKey(job), rank.rank()});
  if (rates == rates_.end()) return {};
  return {rates->second.Recent(), rates->second.ForRatios()};
}

// While the job runs, of those ranks that run.
TopJob TopModel::Summary(const v1::Job& job) const {
  TopJob out;
  out.key = TopKey(job);
  out.job = job;
  const v1::GetJobStatsResponse* const stats = StatsOf(out);
  out.counted = stats != nullptr;
  if (stats == nullptr) return out;
  for (const v1::RankStats& rank : stats->ranks()) {
    if (job.state() == v1::STATE_RUNNING && rank.state() != v1::STATE_RUNNING) continue;
    out.counts.Add(CountsOf(stats->job(), rank));
  }
  return out;
}

const TopJob* TopModel::Selected(absl::string_view key) const {
  const auto find = [&](auto is) -> const TopJob* {
    const auto found = std::find_if(jobs_.begin(), jobs_.end(), is);
    return found == jobs_.end() ? nullptr : &*found;
  };
  if (const TopJob* named = find([&](const TopJob& job) { return job.key == key; })) return named;
  if (const TopJob* running = find([](const TopJob& job) { return job.job.state() == v1::STATE_RUNNING; })) return running;
  return jobs_.empty() ? nullptr : &jobs_.front();
}

std::vector<TopRank> TopModel::RanksOf(const TopJob& job) const {
  std::vector<TopRank> ranks;
  const v1::GetJobStatsResponse* const stats = StatsOf(job);
  if (stats == nullptr) return ranks;
  std::map<int, std::string> trouble;
  const auto* const diagnosis = DiagnosisOf(job);
  if (diagnosis != nullptr && diagnosis->ok()) {
    for (const v1::Verdict& verdict : (*diagnosis)->verdicts()) {
      if (verdict.severity() <= v1::SEVERITY_OK || verdict.ranks_size() == stats->ranks_size()) continue;  // no rank's own
      for (const int rank : verdict.ranks()) {
        std::string& words = trouble[rank];
        absl::StrAppend(&words, words.empty() ? "" : ",", VerdictWord(verdict.kind()));
      }
    }
  }
  for (const v1::RankStats& rank : stats->ranks()) ranks.push_back({rank, CountsOf(stats->job(), rank), trouble[rank.rank()]});
  return ranks;
}

const absl::StatusOr<v1::DiagnoseResponse>* TopModel::DiagnosisOf(const TopJob& job) const {
  const auto found = diagnoses_.find(job.key);
  return found == diagnoses_.end() ? nullptr : &found->second;
}

const v1::GetJobStatsResponse* TopModel::StatsOf(const TopJob& job) const {
  const auto found = round_.stats.find(job.key);
  return found == round_.stats.end() ? nullptr : &found->second;
}

}  // namespace gradgate::cli
