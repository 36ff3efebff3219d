#include "daemon/doctor/doctor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/doctor/rules.h"

namespace gradgate {
namespace doctor {
namespace {

using Rule = void (*)(const JobFacts&, Verdicts&);
constexpr Rule kRules[] = {FindStopped,   FindHang,       FindEndedRanks, FindWaiting, FindUnreduced, FindFailedWindows,
                           FindApart,     FindDisagreed,  FindDiffering,  FindPolicy,  FindRefusals,  FindWaste,
                           FindOverrides, FindStragglers, FindSlowing,    FindLogging, FindUnstepped, FindLate,
                           FindUnseen,    FindSilent,     FindStore,      FindMissed};

std::string StateLine(const JobFacts& facts) {
  RankSet running, finished;
  for (const Rank& rank : facts.ranks()) {
    if (rank.running()) running.insert(rank.rank());
    if (rank.state() == v1::STATE_FINISHED) finished.insert(rank.rank());
  }
  std::string text = absl::StrCat(facts.ranks().size(), " of ", facts.world_size(), " ranks seen");
  if (!running.empty()) absl::StrAppend(&text, ", ", running.size(), " running");
  if (!finished.empty()) absl::StrAppend(&text, ", ", finished.size(), " finished");
  return text;
}

// "idle since" of a job that stands between windows, or nothing.
std::string IdleLine(const JobFacts& facts) {
  if (facts.running().empty()) return "";
  absl::Duration least = absl::InfiniteDuration();
  bool inside = false, ends_seen = true;
  RankSet waiting;
  for (const Rank& rank : facts.running()) {
    least = std::min(least, rank.idle());
    inside = inside || rank.inside_window();
    ends_seen = ends_seen && rank.ends_seen();
    if (rank.in_collective()) waiting.insert(rank.rank());
  }
  if (least < JobFacts::kLeastHang) return "";
  const std::string idle = absl::StrCat("idle for ", Span(least));
  if (!waiting.empty()) return absl::StrCat(idle, ", which is not long here; in a collective: ", RankList(waiting));
  return absl::StrCat(idle, inside ? ", all ranks inside a window" : ", all ranks between windows",
                      ends_seen ? "; no collective is in flight" : "; whether one waits in a collective cannot be seen here");
}

std::string ReductionLine(const JobFacts& facts) {
  int64_t issued = 0, intended = 0, windows = 0, closed = 0;
  for (const Rank& rank : facts.judged()) {
    closed = std::max(closed, rank.window_index());
    for (int i = rank.first_in_force(); i < rank.told->windows_size(); ++i) {
      const v1::RankWindow& window = rank.told->windows(i).window();
      ++windows;
      issued += window.reduction_issued_count();
      intended += window.reduction_intended_count();
    }
  }
  if (windows == 0) return "no window closed yet";
  const auto per_window = [&](int64_t count) { return Number(static_cast<double>(count) / static_cast<double>(windows)); };
  std::string text = absl::StrCat("reductions per window: ", per_window(issued), " issued, ", per_window(intended),
                                  " intended; ", Count(closed, "window"), " closed, the last ");
  const Rank& one = facts.judged().front();
  const int first = one.first_in_force();
  absl::StrAppend(&text, one.told->windows_size() - first, " looked at");
  if (first == 0) return text;
  const v1::WindowEvidence& adopted = one.told->windows(first);
  return absl::StrCat(text, ", under policy ", adopted.window().policy_version(), " since window ", adopted.window_index());
}

std::string WaitLine(const JobFacts& facts) {
  if (facts.world_size() <= 1) return "one rank: nothing to reduce";
  if (facts.starting()) return "starting: no window tells yet how long waiting is normal";
  absl::Duration exposed, window;
  for (const Rank& rank : facts.judged()) {
    exposed += ToDuration(rank.told->stats().totals().exposed_duration());
    window += ToDuration(rank.told->stats().totals().window_duration());
  }
  std::string text =
      absl::StrCat("99 % of waits are below ", Span(facts.wait_p99()), "; a hang is told after ", Span(facts.hang_threshold()));
  if (window > absl::ZeroDuration()) {
    absl::StrAppendFormat(&text, "; synchronisation adds %.1f %% of the windows' time",
                          100 * absl::FDivDuration(exposed, window));
  }
  return text;
}

}  // namespace

v1::Verdict Healthy(const JobFacts& facts) {
  const char* headline = "nothing is wrong";
  if (static_cast<int64_t>(facts.ranks().size()) < facts.world_size()) headline = "nothing is wrong with the ranks seen";
  if (facts.running().empty()) headline = "ended, and nothing was wrong";
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_HEALTHY, v1::SEVERITY_OK, headline);
  for (std::string line : {StateLine(facts), ReductionLine(facts), WaitLine(facts), IdleLine(facts)}) {
    if (!line.empty()) *verdict.add_evidence() = std::move(line);
  }
  return verdict;
}

v1::Verdict MakeVerdict(v1::VerdictKind kind, v1::Severity severity, std::string headline, const RankSet& ranks) {
  v1::Verdict verdict;
  verdict.set_kind(kind);
  verdict.set_severity(severity);
  verdict.set_headline(std::move(headline));
  verdict.mutable_ranks()->Add(ranks.begin(), ranks.end());
  return verdict;
}

void SetWindows(int64_t first, int64_t last, v1::Verdict& verdict) {
  verdict.set_first_window_index(first);
  verdict.set_last_window_index(last);
}

}  // namespace doctor

std::vector<v1::Verdict> Diagnose(const Evidence& evidence) {
  const doctor::JobFacts facts(evidence);
  doctor::Verdicts verdicts;
  for (const doctor::Rule rule : doctor::kRules) rule(facts, verdicts);
  std::stable_sort(verdicts.begin(), verdicts.end(),
                   [](const v1::Verdict& a, const v1::Verdict& b) { return a.severity() > b.severity(); });
  if (verdicts.empty() || verdicts.front().severity() <= v1::SEVERITY_NOTICE) {
    const bool waits = std::any_of(verdicts.begin(), verdicts.end(),
                                   [](const v1::Verdict& verdict) { return verdict.kind() == v1::VERDICT_KIND_WAITING; });
    if (!waits) verdicts.push_back(doctor::Healthy(facts));
  }
  return verdicts;
}

}  // namespace gradgate
