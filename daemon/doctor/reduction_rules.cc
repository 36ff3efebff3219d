// What windows and counts say of reductions: none, too few, too many, too late.

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/doctor/rules.h"

namespace gradgate::doctor {
namespace {

// Windows of which something holds, over all ranks.
struct Found {
  RankSet ranks;
  std::set<int64_t> windows;
  int64_t looked_at = 0;  // windows of single ranks
  int64_t count = 0;      // of those
  const v1::WindowEvidence* last = nullptr;
  int32_t last_rank = 0;

  bool none() const { return count == 0; }
  int64_t first_window() const { return *windows.begin(); }
  int64_t last_window() const { return *windows.rbegin(); }
  // "4 of the last 32 windows"
  std::string Share() const { return absl::StrCat(count, " of the last ", looked_at, " windows of single ranks"); }
};

// What happened stays so under any policy; how a job runs is asked of the policy in force alone.
enum class Windows { kAll, kInForce };

template <typename Holds>
Found Look(const JobFacts& facts, Windows which, Holds holds) {
  Found found;
  for (const Rank& rank : facts.ranks()) {
    for (int i = which == Windows::kAll ? 0 : rank.first_in_force(); i < rank.told->windows_size(); ++i) {
      const v1::WindowEvidence& window = rank.told->windows(i);
      ++found.looked_at;
      if (!holds(rank, window.window())) continue;
      ++found.count;
      found.ranks.insert(rank.rank());
      found.windows.insert(window.window_index());
      if (found.last != nullptr && found.last->window_index() >= window.window_index()) continue;
      found.last = &window;
      found.last_rank = rank.rank();
    }
  }
  return found;
}

v1::Verdict VerdictOf(const Found& found, v1::VerdictKind kind, v1::Severity severity, std::string headline) {
  v1::Verdict verdict = MakeVerdict(kind, severity, std::move(headline), found.ranks);
  SetWindows(found.first_window(), found.last_window(), verdict);
  return verdict;
}

bool NeverReduced(const v1::RankWindow& window) {
  return window.reduction_intended_count() > 0 && window.reduction_issued_count() == 0;
}
bool WrongPosition(const v1::RankWindow& window) {
  return window.reduction_issued_count() > 0 && window.last_reduction_at() < window.micro_step_count();
}
bool TooFew(const v1::RankWindow& window) { return window.reduction_issued_count() < window.reduction_intended_count(); }

bool SteppedOnData(const v1::RankWindow& window) {
  return window.micro_step_count() > 0 && !window.failed() && !window.unstepped();
}

std::string UnreducedLine(const Found& found) {
  const v1::RankWindow& window = found.last->window();
  const std::string where = absl::StrCat("window ", found.last->window_index(), " of rank ", found.last_rank, ": ");
  if (NeverReduced(window)) {
    return absl::StrCat(where, "no reduction at all over ", Count(window.micro_step_count(), "micro-step"), ", then a step");
  }
  if (WrongPosition(window)) {
    return absl::StrCat(where, "the last reduction took in micro-steps up to ", window.last_reduction_at(),
                        ", the step came after ", window.micro_step_count());
  }
  return absl::StrCat(where, window.reduction_issued_count(), " reductions where ", window.reduction_intended_count(),
                      " are needed; some group's gradients were left out");
}

// What the reductions beyond the intended ones cost, per window.
struct Waste {
  int64_t windows = 0, issued = 0, intended = 0;
  double bytes = 0;
  double seconds = 0;
  bool waits_seen = true;
  bool ends_seen = true;  // else nobody knows how long a collective took
};

Waste WasteOf(const JobFacts& facts) {
  Waste waste;
  for (const Rank& rank : facts.ranks()) {
    for (int i = rank.first_in_force(); i < rank.told->windows_size(); ++i) {
      const v1::RankWindow& window = rank.told->windows(i).window();
      if (!window.mismatched() || window.reduction_issued_count() <= window.reduction_intended_count()) continue;
      ++waste.windows;
      waste.ends_seen = waste.ends_seen && rank.ends_seen();
      waste.issued += window.reduction_issued_count();
      waste.intended += window.reduction_intended_count();
      const double share = 1.0 - static_cast<double>(window.reduction_intended_count()) / window.reduction_issued_count();
      waste.bytes += share * static_cast<double>(window.gradient_bytes());
      // Of an exposed time without as much waiting only the end is seen: the last reduction, and nothing of those before it.
      waste.waits_seen = waste.waits_seen && ToDuration(window.wait_duration()) >= ToDuration(window.exposed_duration());
      waste.seconds += share * absl::ToDoubleSeconds(ToDuration(window.wait_duration()));
    }
  }
  return waste;
}

// "dp all_reduce: 8 gradient collectives per optimizer step, 2 intended", a line for each that has too many.
void AddCollectives(const JobFacts& facts, v1::Verdict& verdict) {
  struct Sum {
    int64_t intended = 0, issued = 0;
  };
  std::map<std::pair<int, int>, Sum> sums;
  double steps = 0;
  for (const Rank& rank : facts.ranks()) {
    steps += static_cast<double>(rank.told->stats().totals().step_count());
    for (const v1::CollectiveStats& cell : rank.told->stats().collectives()) {
      Sum& sum = sums[{cell.group(), cell.op()}];
      sum.intended += cell.intended_count();
      sum.issued += cell.gradient_issued_count();
    }
  }
  if (steps == 0) return;
  for (const auto& [which, sum] : sums) {
    if (sum.issued <= sum.intended) continue;
    verdict.add_evidence(
        absl::StrCat(Word(static_cast<v1::GroupRole>(which.first)), " ", Word(static_cast<v1::CollectiveOp>(which.second)),
                     ": ", Number(static_cast<double>(sum.issued) / steps), " gradient collectives per optimizer step, ",
                     Number(static_cast<double>(sum.intended) / steps), " intended, over the whole run"));
  }
}

template <typename Value>
std::map<int32_t, int64_t> CountsByRank(const JobFacts& facts, Value value) {
  std::map<int32_t, int64_t> counts;
  for (const Rank& rank : facts.ranks()) {
    const int64_t count = value(rank);
    if (count > 0) counts[rank.rank()] = count;
  }
  return counts;
}

std::string SumText(const std::map<int32_t, int64_t>& counts, RankSet* ranks) {
  int64_t most = 0;
  for (const auto& [rank, count] : counts) {
    ranks->insert(rank);
    most = std::max(most, count);
  }
  return absl::StrCat(most, counts.size() > 1 ? " on the rank that has most of them" : "");
}

std::string TimeText(const Waste& waste) {
  if (!waste.ends_seen) return "; the time is not known here, where ends of collectives are not seen";
  if (!waste.waits_seen) return "; the time is not known here, where waits inside backwards are not seen";
  if (waste.seconds <= 0 || waste.windows == 0) return "; the time is not known";
  return absl::StrCat(", and ", Span(absl::Seconds(waste.seconds / static_cast<double>(waste.windows))), " of its time");
}

// Live first: what is in force changes at the next windows, and nothing is started again.
std::string AdviceToAudited(const JobFacts& facts) {
  const std::string& job = facts.evidence().nodes.front().job().job_name();
  if (facts.running().empty())
    return "the job was audited; to reduce once per window at its next start: GRADGATE=enforce (gradgate run --enforce)";
  return absl::StrCat("the job is audited; to reduce once per window from now on: gradgatectl policy set ",
                      job.empty() ? "JOB" : Shown(job),
                      " enforcement=enforce mode=window; or at its next start: GRADGATE=enforce (gradgate run --enforce)");
}

}  // namespace

void FindUnreduced(const JobFacts& facts, Verdicts& out) {
  if (facts.world_size() <= 1) return;
  const Found found = Look(facts, Windows::kAll, [](const Rank&, const v1::RankWindow& window) {
    return SteppedOnData(window) && (NeverReduced(window) || WrongPosition(window) || TooFew(window));
  });
  if (found.none()) return;
  v1::Verdict verdict =
      VerdictOf(found, v1::VERDICT_KIND_NOT_REDUCED, v1::SEVERITY_CRITICAL,
                absl::StrCat("optimizer steps on gradients that were not, or not all, reduced: ", RankList(found.ranks)));
  verdict.add_evidence(absl::StrCat(found.Share(), ", ", WindowSpan(found.first_window(), found.last_window())));
  verdict.add_evidence(UnreducedLine(found));
  verdict.add_advice("ranks drift apart from here on: stop, and go back to a checkpoint from before the first such window");
  verdict.add_advice(
      "reduce in the last micro-step of the window (GRADGATE=enforce does), and flush() what an epoch's end leaves open");
  out.push_back(std::move(verdict));
}

void FindFailedWindows(const JobFacts& facts, Verdicts& out) {
  const bool ended_badly = facts.any_ended_badly();
  const Found found = Look(facts, Windows::kAll, [&](const Rank& rank, const v1::RankWindow& window) {
    const bool aftermath = ended_badly && &window == &rank.told->windows(rank.told->windows_size() - 1).window();
    return window.failed() && !rank.ended_badly() && !aftermath;
  });
  if (found.none()) return;
  v1::Verdict verdict = VerdictOf(found, v1::VERDICT_KIND_WINDOW_FAILED, v1::SEVERITY_CRITICAL,
                                  absl::StrCat("the reduction of ", WindowSpan(found.first_window(), found.last_window()),
                                               " failed on ", RankList(found.ranks)));
  verdict.add_evidence(found.Share());
  verdict.add_evidence(absl::StrCat("window ", found.last->window_index(), " of rank ", found.last_rank, ": ",
                                    found.last->window().collective_issued_count(), " gradient collectives issued, ",
                                    found.last->window().collective_completed_count(), " completed, ",
                                    found.last->window().collective_failed_count(), " failed"));
  verdict.add_advice(
      "no step may follow a failed window; the error is in the output of that rank. Start again from a checkpoint");
  out.push_back(std::move(verdict));
}

void FindWaste(const JobFacts& facts, Verdicts& out) {
  const Found found = Look(facts, Windows::kInForce, [](const Rank&, const v1::RankWindow& window) {
    return window.mismatched() && !window.failed() && window.reduction_issued_count() > window.reduction_intended_count();
  });
  if (found.none()) return;
  const Waste waste = WasteOf(facts);
  const auto per_window = [&](double value) { return value / static_cast<double>(std::max<int64_t>(waste.windows, 1)); };
  const std::string issued = Number(per_window(static_cast<double>(waste.issued)));
  const std::string intended = Number(per_window(static_cast<double>(waste.intended)));
  v1::Verdict verdict =
      VerdictOf(found, v1::VERDICT_KIND_WASTED_REDUCTIONS, v1::SEVERITY_WARNING,
                absl::StrCat(issued, " reductions per optimizer step where ", intended, " would do: ", RankList(found.ranks)));
  verdict.add_evidence(absl::StrCat(found.Share(), ", ", WindowSpan(found.first_window(), found.last_window())));
  AddCollectives(facts, verdict);
  verdict.add_evidence(absl::StrCat("costs ", Bytes(per_window(waste.bytes)), " per optimizer step and rank", TimeText(waste)));
  const bool audit = std::any_of(facts.ranks().begin(), facts.ranks().end(),
                                 [](const Rank& rank) { return rank.told->enforcement() == v1::ENFORCEMENT_AUDIT; });
  verdict.add_advice(audit ? AdviceToAudited(facts)
                           : "something beside gradgate reduces: a no_sync that wraps only the backward, or a second wrapper");
  out.push_back(std::move(verdict));
}

void FindLate(const JobFacts& facts, Verdicts& out) {
  if (facts.world_size() <= 1) return;
  const Found found = Look(facts, Windows::kInForce, [](const Rank&, const v1::RankWindow& window) {
    return window.late() && window.kind() == v1::WINDOW_KIND_FULL && !window.failed();
  });
  if (found.count < 3 || found.count * 4 < found.looked_at) return;
  v1::Verdict verdict =
      VerdictOf(found, v1::VERDICT_KIND_REDUCED_LATE, v1::SEVERITY_NOTICE,
                absl::StrCat("whole windows are reduced at the step, where nothing overlaps: ", RankList(found.ranks)));
  verdict.add_evidence(found.Share());
  absl::Duration exposed;
  for (const Rank& rank : facts.ranks()) {
    for (const v1::WindowEvidence& window : rank.told->windows()) {
      if (window.window().late()) exposed += ToDuration(window.window().exposed_duration());
    }
  }
  verdict.add_evidence(
      absl::StrCat("exposed: ", Span(exposed / std::max<int64_t>(found.count, 1)), " per such window and rank"));
  verdict.add_advice("declare the window (accumulate=N, or last=True), so that its last backward reduces");
  out.push_back(std::move(verdict));
}

void FindUnstepped(const JobFacts& facts, Verdicts& out) {
  const Found found = Look(facts, Windows::kInForce,
                           [](const Rank&, const v1::RankWindow& window) { return window.unstepped() && !window.failed(); });
  int64_t discarded = 0;
  for (const Rank& rank : facts.ranks()) discarded += rank.told->window_discarded_count();
  if (found.count - discarded < 2 || found.count * 10 < found.looked_at) return;
  v1::Verdict verdict = VerdictOf(found, v1::VERDICT_KIND_UNSTEPPED, v1::SEVERITY_WARNING,
                                  absl::StrCat("windows were reduced and no optimizer step followed: ", RankList(found.ranks)));
  verdict.add_evidence(absl::StrCat(found.Share(), ", ", WindowSpan(found.first_window(), found.last_window())));
  verdict.add_advice("does a GradScaler skip these steps (inf or nan in the gradients), or does the loop throw windows away?");
  out.push_back(std::move(verdict));
}

void FindOverrides(const JobFacts& facts, Verdicts& out) {
  RankSet ranks;
  const auto counts = CountsByRank(facts, [](const Rank& rank) { return rank.told->override_count(); });
  if (counts.empty()) return;
  const std::string most = SumText(counts, &ranks);
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_OVERRIDDEN, v1::SEVERITY_WARNING,
                                    absl::StrCat("something reduced against the policy: ", RankList(ranks)), ranks);
  verdict.add_evidence(absl::StrCat("reductions issued against the policy since the start: ", most));
  verdict.add_advice("look for a second no_sync, a set_requires_gradient_sync, or a reduction of the loop's own");
  out.push_back(std::move(verdict));
}

void FindRefusals(const JobFacts& facts, Verdicts& out) {
  RankSet ranks;
  const auto counts = CountsByRank(
      facts, [&](const Rank& rank) { return facts.any_ended_badly() ? 0 : rank.told->stats().totals().refused_count(); });
  if (counts.empty()) return;
  const std::string most = SumText(counts, &ranks);
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_STEP_REFUSED, v1::SEVERITY_WARNING,
                                    absl::StrCat("calls or steps were refused with an error: ", RankList(ranks)), ranks);
  verdict.add_evidence(absl::StrCat("refused since the start: ", most));
  verdict.add_advice(
      "the error in that rank's output names the call and the remedy; a loop that catches it goes on without the step");
  out.push_back(std::move(verdict));
}

void FindLogging(const JobFacts& facts, Verdicts& out) {
  constexpr double kSmallBytes = 256;
  RankSet ranks;
  std::string line;
  for (const Rank& rank : facts.judged()) {
    const v1::SyncTotals& totals = rank.told->stats().totals();
    if (totals.step_count() < 2) continue;
    const double steps = static_cast<double>(totals.step_count());
    for (const v1::CollectiveStats& cell : rank.told->stats().collectives()) {
      const bool logs = cell.op() == v1::COLLECTIVE_OP_ALL_REDUCE || cell.op() == v1::COLLECTIVE_OP_REDUCE ||
                        cell.op() == v1::COLLECTIVE_OP_ALL_GATHER || cell.op() == v1::COLLECTIVE_OP_GATHER;
      const double count = static_cast<double>(cell.other_issued_count());
      if (!logs || count == 0 || static_cast<double>(cell.other_bytes()) > kSmallBytes * count) continue;
      if (count / steps < std::max(2.0, 0.9 * static_cast<double>(totals.micro_step_count()) / steps)) continue;
      ranks.insert(rank.rank());
      if (!line.empty()) continue;
      line = absl::StrCat("rank ", rank.rank(), ": ", Number(count / steps), " small ", Word(cell.op()),
                          " per optimizer step of ", Number(static_cast<double>(totals.micro_step_count()) / steps),
                          " micro-steps, ", Bytes(static_cast<double>(cell.other_bytes()) / count), " each");
      if (cell.completed_count() > 0) {
        absl::StrAppend(&line, ", ", Span(ToDuration(cell.total_duration()) / cell.completed_count()), " per ",
                        Word(cell.op()));
      }
    }
  }
  if (ranks.empty()) return;
  v1::Verdict verdict =
      MakeVerdict(v1::VERDICT_KIND_LOGGING_COLLECTIVES, v1::SEVERITY_WARNING,
                  absl::StrCat("small collectives in each micro-step beside the gradients: ", RankList(ranks)), ranks);
  verdict.add_evidence(std::move(line));
  verdict.add_evidence("each is a meeting of all ranks, which takes back what one reduction per window saves");
  verdict.add_advice("losses and counts can ride in the ballot: sync.mean(loss=loss), then sync.means at the boundary");
  out.push_back(std::move(verdict));
}

}  // namespace gradgate::doctor
