// What gradgatectl top knows: the latest answers, how fast each rank is, and since when nothing was answered.
//
// One thread per object. No clock: times are given.

#ifndef GRADGATE_CLIENT_CLI_TOP_MODEL_H_
#define GRADGATE_CLIENT_CLI_TOP_MODEL_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cli/top_rates.h"
#include "gradgate/v1/diagnosis.pb.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::cli {

// Names a run to a daemon, and to itself: "UID/RUN_ID".
std::string TopKey(const v1::Job& job);

// One round of questions.
struct TopRound {
  absl::Time at;  // of the answers
  absl::Status status;
  std::vector<v1::Job> jobs;  // the most recently started first; as `nodes` and `stats` kept from before where not OK
  std::vector<v1::NodeAnswer> nodes;
  std::map<std::string, v1::GetJobStatsResponse> stats;  // by TopKey, of those that were asked for
  std::string diagnosed;                                 // the job that the doctor was asked about; empty: not this time
  absl::StatusOr<v1::DiagnoseResponse> diagnosis = absl::UnknownError("");
};

// Unset where nothing is known.
struct TopCounts {
  std::optional<Counted> recent;  // for rates and shares of time; of what ended, its whole run, without a span
  std::optional<Counted> ratios;  // see Rates::ForRatios

  void Add(const TopCounts& other);
};

struct TopRank {
  v1::RankStats stats;
  TopCounts counts;
  std::string trouble;  // kinds of verdicts that name it, as "straggler"; empty: none
};

struct TopJob {
  std::string key;
  v1::Job job;
  TopCounts counts;      // of all its ranks that run; of all, where it ended
  bool counted = false;  // its ranks were asked for
};

class TopModel {
 public:
  void Add(TopRound round);

  // OK, or why the last round failed, and since when.
  const absl::Status& status() const { return status_; }
  absl::Time answered_at() const { return answered_at_; }

  const std::vector<v1::NodeAnswer>& nodes() const { return round_.nodes; }
  const std::vector<TopJob>& jobs() const { return jobs_; }

  // The job that `key` names, else the first that runs, else the first. Null: no job.
  const TopJob* Selected(absl::string_view key) const;

  // Of one job, by rank; empty where it was not asked for.
  std::vector<TopRank> RanksOf(const TopJob& job) const;

  // Of one job: null where nobody has asked the doctor about it yet.
  const absl::StatusOr<v1::DiagnoseResponse>* DiagnosisOf(const TopJob& job) const;

  // Of the ranks that were asked for.
  const v1::GetJobStatsResponse* StatsOf(const TopJob& job) const;

 private:
  using RankKey = std::pair<std::string, int>;  // of the attempt, and the rank in it

  void AddRates();
  TopJob Summary(const v1::Job& job) const;
  TopCounts CountsOf(const v1::Job& job, const v1::RankStats& rank) const;

  TopRound round_;  // the last that was answered
  absl::Status status_;
  absl::Time answered_at_ = absl::InfinitePast();
  std::vector<TopJob> jobs_;
  std::map<RankKey, Rates> rates_;
  std::map<std::string, absl::StatusOr<v1::DiagnoseResponse>> diagnoses_;  // by TopKey
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_MODEL_H_
