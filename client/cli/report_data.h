// What a report is made of: the daemon's answers, and the figures that are drawn from them. Pure functions; any thread.
//
// What a daemon did not tell is unset, never 0.

#ifndef GRADGATE_CLIENT_CLI_REPORT_DATA_H_
#define GRADGATE_CLIENT_CLI_REPORT_DATA_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gradgate/v1/diagnosis.pb.h"
#include "gradgate/v1/plan.pb.h"
#include "gradgate/v1/policy.pb.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::cli {

struct ReportAnswers {
  absl::Time now;
  v1::GetJobStatsResponse stats;
  absl::StatusOr<v1::ListWindowsResponse> windows = absl::UnknownError("not asked");  // the latest ones, oldest first
  absl::StatusOr<v1::DiagnoseResponse> diagnosis = absl::UnknownError("not asked");
  absl::StatusOr<v1::PlanSyncResponse> plan = absl::UnknownError("not asked");
  absl::StatusOr<v1::GetPolicyResponse> policy = absl::UnknownError("not asked");
};

// A window of one rank in seconds. Exposed is part of the window; the rest is its own.
struct WindowSeconds {
  double own = 0, exposed = 0, wait = 0;
  double all() const { return own + exposed; }
};

// Unset: the record has no times, or its end lies before its begin.
std::optional<WindowSeconds> SecondsOf(const v1::RankWindow& window);

// Windows that follow each other, drawn as one column: means over those windows of single ranks that are known.
struct WindowGroup {
  int64_t first_index = 0, last_index = 0;
  int64_t count = 0;                           // windows of single ranks
  double issued = 0, intended = 0, extra = 0;  // a window; `extra`: beyond the intended
  int64_t timed_count = 0;                     // of `count`, those with times
  WindowSeconds seconds;
  int64_t flagged_count = 0;  // mismatched, late, failed or disagreed
};

// At most `most` groups, of equally many windows.
std::vector<WindowGroup> GroupWindows(const v1::ListWindowsResponse& windows, size_t most);

// A rank over the windows that are kept, or, without any, over its whole run.
struct RankReport {
  const v1::RankStats* stats = nullptr;
  std::optional<WindowSeconds> seconds;  // the mean window
  int64_t window_count = 0;              // that it is the mean of
  bool whole_run = false;
  std::vector<std::string> verdicts;  // that name this rank, and not all of them
};

// By rank.
std::vector<RankReport> RankReports(const ReportAnswers& answers);

// The worst first: ended badly, then named by the doctor, then those with the longest time of their own in a window, which is
// what others wait for. Those without times last.
std::vector<RankReport> WorstFirst(std::vector<RankReport> ranks);

struct Spread {
  double least, median, p90, most;
};

// Of values; empty: unset.
std::optional<Spread> SpreadOf(std::vector<double> values);

// Reductions of optimizer steps. Counts of a rank that runs, or was lost, have its open window in them, of which reductions are
// issued that are not intended yet; so for those it is made of closed windows, as far as any is kept.
struct ReductionReport {
  bool whole_run = false;
  int64_t window_count = 0;  // windows of the job that it is made of, where not the whole run
  int64_t step_count = 0;    // of all ranks together
  int64_t issued_count = 0;
  int64_t intended_count = 0;
  int64_t wasted_count = 0;  // issued, neither intended nor forced by the framework
  int64_t gradient_bytes = 0;

  // Unset: no step, or no reduction, to divide by.
  std::optional<double> PerStep(int64_t count) const;
  std::optional<double> WastedShare() const;
};
ReductionReport ReductionsOf(const ReportAnswers& answers);

// The same of a rank's, or a job's, whole run as it was counted.
std::optional<double> PerStep(int64_t count, const v1::SyncTotals& totals);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_REPORT_DATA_H_
