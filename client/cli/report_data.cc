#include "client/cli/report_data.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "client/cli/doctor_view.h"
#include "client/cli/format.h"

namespace gradgate::cli {
namespace {

bool Flagged(const v1::RankWindow& window) {
  return window.mismatched() || window.late() || window.failed() || window.disagreed();
}

// One that the framework forced is no mismatch.
int WastedIn(const v1::RankWindow& window) {
  return window.mismatched() ? std::max(0, window.reduction_issued_count() - window.reduction_intended_count()) : 0;
}

void Add(const WindowSeconds& one, WindowSeconds* sum) {
  sum->own += one.own;
  sum->exposed += one.exposed;
  sum->wait += one.wait;
}

void Divide(int64_t count, WindowSeconds* sum) {
  const auto by = static_cast<double>(std::max<int64_t>(1, count));
  sum->own /= by;
  sum->exposed /= by;
  sum->wait /= by;
}

WindowGroup Group(const v1::ListWindowsResponse& windows, int first, int end) {
  WindowGroup group;
  group.first_index = windows.windows(first).window_index();
  group.last_index = windows.windows(end - 1).window_index();
  for (int i = first; i < end; ++i) {
    for (const v1::RankWindow& rank : windows.windows(i).ranks()) {
      ++group.count;
      group.issued += rank.reduction_issued_count();
      group.intended += rank.reduction_intended_count();
      group.extra += WastedIn(rank);
      group.flagged_count += Flagged(rank) ? 1 : 0;
      if (const auto seconds = SecondsOf(rank)) {
        ++group.timed_count;
        Add(*seconds, &group.seconds);
      }
    }
  }
  const auto count = static_cast<double>(std::max<int64_t>(1, group.count));
  group.issued /= count;
  group.intended /= count;
  group.extra /= count;
  Divide(group.timed_count, &group.seconds);
  return group;
}

// Over its whole run.
void SetFromTotals(const v1::SyncTotals& totals, RankReport* rank) {
  rank->whole_run = true;
  rank->window_count = totals.window_full_count() + totals.window_partial_count() + totals.window_empty_count();
  const double window = absl::ToDoubleSeconds(ToDuration(totals.window_duration()));
  if (rank->window_count == 0 || window <= 0) return;
  WindowSeconds seconds;
  seconds.exposed = std::min(window, absl::ToDoubleSeconds(ToDuration(totals.exposed_duration())));
  seconds.own = window - seconds.exposed;
  seconds.wait = absl::ToDoubleSeconds(ToDuration(totals.wait_duration()));
  Divide(rank->window_count, &seconds);
  rank->seconds = seconds;
}

std::map<int, std::vector<std::string>> VerdictsByRank(const ReportAnswers& answers) {
  std::map<int, std::vector<std::string>> by_rank;
  if (!answers.diagnosis.ok()) return by_rank;
  for (const v1::Verdict& verdict : answers.diagnosis->verdicts()) {
    if (verdict.severity() <= v1::SEVERITY_OK || verdict.ranks_size() >= answers.stats.ranks_size()) continue;
    for (const int rank : verdict.ranks()) by_rank[rank].push_back(VerdictWord(verdict.kind()));
  }
  return by_rank;
}

}  // namespace

std::optional<WindowSeconds> SecondsOf(const v1::RankWindow& window) {
  if (!window.has_begin_time() || !window.has_end_time() || !window.has_exposed_duration()) return std::nullopt;
  const double all = absl::ToDoubleSeconds(ToTime(window.end_time()) - ToTime(window.begin_time()));
  if (all < 0) return std::nullopt;
  WindowSeconds seconds;
  seconds.exposed = std::min(all, absl::ToDoubleSeconds(ToDuration(window.exposed_duration())));
  seconds.own = all - seconds.exposed;
  seconds.wait = absl::ToDoubleSeconds(ToDuration(window.wait_duration()));
  return seconds;
}

std::vector<WindowGroup> GroupWindows(const v1::ListWindowsResponse& windows, size_t most) {
  std::vector<WindowGroup> groups;
  const int count = windows.windows_size();
  const int each = (count + static_cast<int>(most) - 1) / static_cast<int>(most);
  for (int first = 0; first < count; first += each) groups.push_back(Group(windows, first, std::min(count, first + each)));
  return groups;
}

std::vector<RankReport> RankReports(const ReportAnswers& answers) {
  struct Sum {
    WindowSeconds seconds;
    int64_t count = 0;
  };
  std::map<int, Sum> sums;
  if (answers.windows.ok()) {
    for (const v1::Window& window : answers.windows->windows()) {
      for (const v1::RankWindow& rank : window.ranks()) {
        const auto seconds = SecondsOf(rank);
        if (!seconds.has_value()) continue;
        Add(*seconds, &sums[rank.rank()].seconds);
        ++sums[rank.rank()].count;
      }
    }
  }
  std::map<int, std::vector<std::string>> verdicts = VerdictsByRank(answers);
  std::vector<RankReport> ranks;
  for (const v1::RankStats& stats : answers.stats.ranks()) {
    RankReport& rank = ranks.emplace_back();
    rank.stats = &stats;
    rank.verdicts = verdicts[stats.rank()];
    Sum& sum = sums[stats.rank()];
    if (sum.count == 0) {
      SetFromTotals(stats.totals(), &rank);
      continue;
    }
    Divide(sum.count, &sum.seconds);
    rank.seconds = sum.seconds;
    rank.window_count = sum.count;
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const RankReport& a, const RankReport& b) { return a.stats->rank() < b.stats->rank(); });
  return ranks;
}

std::vector<RankReport> WorstFirst(std::vector<RankReport> ranks) {
  const auto badness = [](const RankReport& rank) {
    const v1::State state = rank.stats->state();
    return std::tuple(state == v1::STATE_LOST || state == v1::STATE_FAILED, !rank.verdicts.empty(),
                      rank.seconds.has_value() ? rank.seconds->own : -1);
  };
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](const RankReport& a, const RankReport& b) { return badness(a) > badness(b); });
  return ranks;
}

std::optional<Spread> SpreadOf(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return Spread{values.front(), at(0.5), at(0.9), values.back()};
}

std::optional<double> ReductionReport::PerStep(int64_t count) const {
  if (step_count <= 0) return std::nullopt;
  return static_cast<double>(count) / static_cast<double>(step_count);
}

std::optional<double> ReductionReport::WastedShare() const {
  if (issued_count <= 0) return std::nullopt;
  return static_cast<double>(wasted_count) / static_cast<double>(issued_count);
}

ReductionReport ReductionsOf(const ReportAnswers& answers) {
  ReductionReport report;
  const bool open = answers.stats.job().state() != v1::STATE_FINISHED;
  if (open && answers.windows.ok() && !answers.windows->windows().empty()) {
    report.window_count = answers.windows->windows_size();
    for (const v1::Window& window : answers.windows->windows()) {
      for (const v1::RankWindow& rank : window.ranks()) {
        report.step_count += rank.unstepped() ? 0 : 1;
        report.issued_count += rank.reduction_issued_count();
        report.intended_count += rank.reduction_intended_count();
        report.wasted_count += WastedIn(rank);
        report.gradient_bytes += rank.gradient_bytes();
      }
    }
    return report;
  }
  const v1::SyncTotals& totals = answers.stats.totals();
  report.whole_run = true;
  report.step_count = totals.step_count();
  report.issued_count = totals.reduction_issued_count();
  report.intended_count = totals.reduction_intended_count();
  report.wasted_count =
      std::max<int64_t>(0, report.issued_count - report.intended_count - totals.reduction_declared_extra_count());
  report.gradient_bytes = totals.gradient_bytes();
  return report;
}

std::optional<double> PerStep(int64_t count, const v1::SyncTotals& totals) {
  if (totals.step_count() <= 0) return std::nullopt;
  return static_cast<double>(count) / static_cast<double>(totals.step_count());
}

}  // namespace gradgate::cli
