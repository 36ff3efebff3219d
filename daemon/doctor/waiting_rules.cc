// Processes that do not run, and waits of which nobody knows how long they may be.

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/doctor/rules.h"

namespace gradgate::doctor {
namespace {

// A debugger or a tool that prints stacks holds a process for as long as it looks.
constexpr absl::Duration kLook = absl::Seconds(5);
constexpr absl::Duration kNoHold = absl::Seconds(1);
constexpr size_t kMaxAdvice = 4;

const char* Verb(const RankSet& ranks, const char* of_one, const char* of_many) { return ranks.size() == 1 ? of_one : of_many; }

// Where a loop is, with the collectives that are neither gradients nor gradgate's.
using Place = std::tuple<Position, int32_t>;
Place PlaceOf(const Rank& rank) {
  const v1::RankProgress& progress = rank.told->progress();
  return {PositionOf(rank), progress.counts_exact() ? progress.other_issued_count() : 0};
}

// "an all_reduce": the kind that it issued last beside the gradients.
std::string LastOther(const Rank& rank) {
  const v1::CollectiveStats* last = nullptr;
  const auto issued = [](const v1::CollectiveStats& cell) {
    return std::pair(cell.last_issue_time().seconds(), cell.last_issue_time().nanos());
  };
  for (const v1::CollectiveStats& cell : rank.told->stats().collectives()) {
    if (cell.other_issued_count() > 0 && (last == nullptr || issued(cell) > issued(*last))) last = &cell;
  }
  if (last == nullptr) return "a collective";
  const std::string word = Word(last->op());
  return absl::StrCat(word.find_first_of("aeiou") == 0 ? "an " : "a ", word);
}

std::string WhatFor(const Rank& rank) {
  const v1::RankProgress& progress = rank.told->progress();
  if (rank.inside_window() && progress.gradient_issued_count() > 0) return "a gradient reduction";
  if (rank.inside_window() && progress.ours_issued_count() > 0) return "the ballot";
  return progress.other_issued_count() > 0 ? LastOther(rank) : "a collective";
}

std::vector<Rank> NotThere(const JobFacts& facts, const RankSet& waiting, const Rank& front) {
  std::vector<Rank> missing;
  for (const Rank& rank : facts.ranks()) {
    if (waiting.count(rank.rank()) == 0 && PlaceOf(rank) < PlaceOf(front)) missing.push_back(rank);
  }
  return missing;
}

// In a collective of the first windows, or of the script between two.
void FindInCollective(const JobFacts& facts, Verdicts& out) {
  std::vector<Rank> waiting;
  absl::Duration lasting;
  for (const Rank& rank : facts.running()) {
    if (!rank.in_collective() || rank.idle() < JobFacts::kLeastHang) continue;
    if (rank.inside_window() && !facts.starting()) continue;  // FindHang's
    waiting.push_back(rank);
    lasting = std::max(lasting, rank.idle());
  }
  if (waiting.empty()) return;
  const RankSet numbers = Numbers(waiting);
  const Rank& front =
      *std::max_element(waiting.begin(), waiting.end(), [](const Rank& a, const Rank& b) { return PlaceOf(a) < PlaceOf(b); });
  const std::vector<Rank> missing = NotThere(facts, numbers, front);
  const RankSet absent = Numbers(missing);
  const bool judged = lasting >= facts.hang_threshold();
  v1::Verdict verdict = MakeVerdict(
      v1::VERDICT_KIND_WAITING, judged ? v1::SEVERITY_WARNING : v1::SEVERITY_NOTICE,
      absl::StrCat(
          judged ? "" : "not judged yet: ", RankList(numbers), Verb(numbers, " waits ", " wait "), Span(lasting), " in ",
          WhatFor(front),
          absent.empty() ? "" : absl::StrCat(" that ", RankList(absent), Verb(absent, " has", " have"), " not issued")),
      absent.empty() ? numbers : absent);
  SetWindows(front.window_index(), front.window_index(), verdict);
  *verdict.mutable_lasting() = ToMessage(lasting);
  AddRankLines(missing, verdict);
  AddRankLines(waiting, verdict);
  verdict.add_evidence(absl::StrCat(facts.starting() ? "no window tells yet how long waiting is normal; it is judged after "
                                                     : "between windows, where ranks evaluate and save; it is told after ",
                                    Span(facts.hang_threshold())));
  verdict.add_advice(absent.empty()
                         ? "all that are seen have issued it, or cannot be seen to: stacks tell (py-spy dump --pid, or gdb -p)"
                         : absl::StrCat("if ", RankList(absent), Verb(absent, " evaluates, saves", " evaluate, save"),
                                        " or compiles meanwhile, nothing is wrong; else its stack tells (py-spy dump --pid)"));
  out.push_back(std::move(verdict));
}

// Nobody moves, no collective is seen to be in flight, and they are not at the same place.
void FindStandingApart(const JobFacts& facts, Verdicts& out) {
  if (facts.running().size() < 2) return;
  absl::Duration usual = facts.starting() ? JobFacts::kLeastHang : facts.hang_threshold();
  absl::Duration idle = absl::InfiniteDuration();
  std::set<std::pair<int64_t, int32_t>> places;
  for (const Rank& rank : facts.running()) {
    for (const v1::WindowEvidence& window : rank.told->windows()) {
      usual = std::max(usual, ToDuration(window.window_duration()));
    }
    idle = std::min(idle, rank.idle());
    places.emplace(rank.window_index(), rank.told->stats().micro_step());
    if (rank.in_collective()) return;
  }
  if (places.size() < 2 || idle < usual) return;
  v1::Verdict verdict =
      MakeVerdict(v1::VERDICT_KIND_WAITING, v1::SEVERITY_NOTICE,
                  absl::StrCat("not judged: no rank has moved for ", Span(idle), ", and they stand at different micro-steps"));
  *verdict.mutable_lasting() = ToMessage(idle);
  AddRankLines(facts.running(), verdict);
  verdict.add_evidence("whether one waits for another is not known: no collective is seen that it would wait in");
  verdict.add_advice("stacks of the ranks that are behind tell what they do (py-spy dump --pid, or gdb -p)");
  out.push_back(std::move(verdict));
}

}  // namespace

std::vector<Rank> StoppedRanks(const JobFacts& facts) {
  std::vector<Rank> stopped;
  for (const Rank& rank : facts.running()) {
    const std::string& state = rank.told->process_state();
    if (state == "T" || (state == "t" && rank.idle() >= kLook)) stopped.push_back(rank);
  }
  return stopped;
}

void FindStopped(const JobFacts& facts, Verdicts& out) {
  const std::vector<Rank> stopped = StoppedRanks(facts);
  if (stopped.empty()) return;
  const RankSet numbers = Numbers(stopped);
  absl::Duration since, waited;
  bool by_signal = false;
  for (const Rank& rank : stopped) {
    since = std::max(since, rank.idle());
    by_signal = by_signal || rank.told->process_state() == "T";
  }
  std::vector<Rank> waiting;
  for (const Rank& rank : facts.running()) {
    if (numbers.count(rank.rank()) > 0 || !rank.in_collective() || rank.idle() < kNoHold) continue;
    waiting.push_back(rank);
    waited = std::max(waited, rank.idle());
  }
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_STOPPED, by_signal ? v1::SEVERITY_CRITICAL : v1::SEVERITY_WARNING,
                                    absl::StrCat(RankList(numbers), Verb(numbers, " is", " are"), " stopped by a ",
                                                 by_signal ? "signal" : "debugger", ", and last moved ", Span(since), " ago"),
                                    numbers);
  SetWindows(stopped.front().window_index(), stopped.front().window_index(), verdict);
  *verdict.mutable_lasting() = ToMessage(since);
  AddRankLines(stopped, verdict);
  if (!waiting.empty()) {
    const RankSet others = Numbers(waiting);
    verdict.add_evidence(
        absl::StrCat(RankList(others), Verb(others, " waits", " wait"), " in a collective, for ", Span(waited), " so far"));
  }
  for (size_t i = 0; i < std::min(stopped.size(), kMaxAdvice); ++i) {
    const std::string& host = stopped[i].told->stats().host_name();
    const int64_t process_id = stopped[i].told->stats().process_id();
    verdict.add_advice(absl::StrCat("let rank ", stopped[i].rank(), " go on: kill -CONT ",
                                    process_id > 0 ? absl::StrCat(process_id) : "its pid",
                                    host.empty() ? "" : absl::StrCat(" on ", Shown(host))));
  }
  verdict.add_advice("see who stopped it: a terminal (Ctrl-Z), a debugger, a batch system that suspends jobs");
  out.push_back(std::move(verdict));
}

void FindWaiting(const JobFacts& facts, Verdicts& out) {
  if (facts.world_size() <= 1) return;
  constexpr v1::VerdictKind kStand[] = {v1::VERDICT_KIND_STOPPED, v1::VERDICT_KIND_HUNG, v1::VERDICT_KIND_RANK_LOST,
                                        v1::VERDICT_KIND_RANK_FAILED};
  for (const v1::Verdict& verdict : out) {
    if (std::find(std::begin(kStand), std::end(kStand), verdict.kind()) != std::end(kStand)) return;
  }
  const size_t told = out.size();
  FindInCollective(facts, out);
  if (out.size() == told) FindStandingApart(facts, out);
}

}  // namespace gradgate::doctor
