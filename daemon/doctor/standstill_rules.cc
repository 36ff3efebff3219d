// Ranks that wait for others, and ranks that ended.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/doctor/rules.h"

namespace gradgate::doctor {
namespace {

constexpr size_t kMaxRankLines = 6;
constexpr int kLastWindows = 3;
// Ranks that ended within this of the first one may have ended for the same reason.
constexpr absl::Duration kTogether = absl::Seconds(1);
// On one node the order of ends is known better: a launcher ends the others soon after the first.
constexpr absl::Duration kTogetherOnNode = absl::Milliseconds(2);

// "in window 7, micro-step 3 of 4, 1 gradient collective issued"
std::string Place(const Rank& rank) {
  const v1::RankProgress& progress = rank.told->progress();
  if (!rank.inside_window()) return absl::StrCat("between windows, before window ", rank.window_index());
  std::string text = absl::StrCat("in window ", rank.window_index());
  if (rank.told->stats().micro_step() > 0) {
    absl::StrAppend(&text, ", micro-step ", rank.told->stats().micro_step());
    if (rank.told->accumulate() > 0) absl::StrAppend(&text, " of ", rank.told->accumulate());
  }
  if (!progress.counts_exact()) return absl::StrCat(text, ", collectives of the window not known");
  return absl::StrCat(text, ", ", Count(progress.gradient_issued_count(), "gradient collective"), " issued",
                      progress.ours_issued_count() > 0 ? ", ballot issued" : "",
                      rank.in_collective() ? absl::StrCat(", ", progress.in_flight_count(), " in flight") : "");
}

const char* Process(const Rank& rank) {
  const std::string& state = rank.told->process_state();
  if (state == "T") return "; its process is stopped by a signal";
  if (state == "t") return "; its process is stopped by a debugger";
  if (state == "Z") return "; its process is dead";
  if (state == "D") return "; its process waits for a device or a file system";
  return "";
}

std::string StateLine(const Rank& rank) {
  if (rank.state() == v1::STATE_FINISHED) return absl::StrCat(Who(rank), ": finished, before window ", rank.window_index());
  return absl::StrCat(Who(rank), ": ", Place(rank), "; last seen to move ", Span(rank.idle()), " ago", Process(rank));
}

// Who waits, for whom, and where the front is.
struct Wait {
  std::vector<Rank> waiting;
  std::vector<Rank> missing;  // not arrived where the front waits
  RankSet unseen;
  Position front;
  absl::Duration lasting;
};

// Where ends of collectives cannot be seen, counts alone tell: all stand still, and not at the same place.
std::vector<Rank> StandingApart(const JobFacts& facts) {
  std::vector<Rank> front;
  bool apart = false;
  for (const Rank& rank : facts.running()) {
    if (rank.idle() < facts.hang_threshold() || !rank.told->progress().counts_exact()) return {};
    if (!front.empty() && PositionOf(rank) != PositionOf(front.front())) apart = true;
    if (!front.empty() && PositionOf(rank) > PositionOf(front.front())) front.clear();
    if (front.empty() || PositionOf(rank) == PositionOf(front.front())) front.push_back(rank);
  }
  const bool issued =
      !front.empty() && PositionOf(front.front()).gradient_issued_count + PositionOf(front.front()).ours_issued_count > 0;
  return apart && issued ? front : std::vector<Rank>();
}

template <typename Which>
void Move(std::vector<Rank>& from, std::vector<Rank>& to, Which which) {
  const auto first = std::stable_partition(from.begin(), from.end(), [&](const Rank& rank) { return !which(rank); });
  if (first == from.begin()) return;  // nobody would be left
  to.insert(to.end(), first, from.end());
  from.erase(first, from.end());
}

Wait FindWait(const JobFacts& facts) {
  Wait wait;
  wait.unseen = UnseenRanks(facts);
  wait.waiting = WaitingTooLong(facts);
  if (wait.waiting.empty()) wait.waiting = StandingApart(facts);
  for (const Rank& rank : wait.waiting) {
    wait.front = std::max(wait.front, PositionOf(rank));
    wait.lasting = std::max(wait.lasting, rank.idle());
  }
  const RankSet waiting = Numbers(wait.waiting);
  for (const Rank& rank : facts.ranks()) {
    if (waiting.count(rank.rank()) == 0 && PositionOf(rank) < wait.front) wait.missing.push_back(rank);
  }
  // One that is stopped has not arrived, wherever it was when that happened.
  Move(wait.waiting, wait.missing, [](const Rank& rank) { return rank.stopped(); });
  // Those behind may have issued it and wait for what an unseen one was to send.
  if (wait.missing.empty() && wait.unseen.empty()) {
    Move(wait.waiting, wait.missing, [&](const Rank& rank) { return PositionOf(rank) < wait.front; });
  }
  return wait;
}

void AdviseOnMissing(const Rank& rank, v1::Verdict& verdict) {
  const std::string name = absl::StrCat("rank ", rank.rank());
  if (rank.stopped()) {
    verdict.add_advice(absl::StrCat("the process of ", name,
                                    " does not run: let it go on (kill -CONT), or see who stopped it: a debugger, "
                                    "a batch system that suspends jobs"));
  } else if (rank.state() == v1::STATE_FINISHED) {
    verdict.add_advice(absl::StrCat(name,
                                    " left the training while others go on: its data ended first. Let all ranks end together "
                                    "(micro_batches with uneven=\"stop\" or \"zeros\")"));
  } else if (!rank.inside_window()) {
    verdict.add_advice(absl::StrCat(name,
                                    " has not begun the window: does it evaluate, write a checkpoint or wait for data alone? "
                                    "Its stack tells (py-spy dump --pid, or gdb -p)"));
  } else {
    verdict.add_advice(absl::StrCat("look at ", name,
                                    "'s process first: stopped, swapping, a data loader, a device that hangs? Its "
                                    "stack tells (py-spy dump --pid, or gdb -p)"));
  }
}

std::string Headline(const Wait& wait) {
  const std::string where = absl::StrCat("window ", wait.front.window_index, ": ");
  const std::string waited = absl::StrCat(RankList(Numbers(wait.waiting)), wait.waiting.size() == 1 ? " has" : " have",
                                          " waited ", Span(wait.lasting), " for ");
  if (!wait.missing.empty()) return absl::StrCat(where, waited, RankList(Numbers(wait.missing)));
  if (!wait.unseen.empty()) {
    return absl::StrCat(where, waited, RankList(wait.unseen), wait.unseen.size() == 1 ? ", which is" : ", which are",
                        " not seen");
  }
  return absl::StrCat(where, waited, "a collective that every rank has issued");
}

void AddLastWindows(const Rank& rank, v1::Verdict& verdict) {
  const auto& windows = rank.told->windows();
  for (int i = std::max(0, windows.size() - kLastWindows); i < windows.size(); ++i) {
    const v1::RankWindow& window = windows[i].window();
    verdict.add_evidence(absl::StrCat("rank ", rank.rank(), ", window ", windows[i].window_index(), " from its page: ",
                                      Count(window.micro_step_count(), "micro-step"), ", ", window.reduction_issued_count(),
                                      " of ", Count(window.reduction_intended_count(), "reduction"),
                                      window.failed() ? ", failed" : (window.unstepped() ? ", not stepped" : ", stepped")));
  }
  if (windows.empty()) verdict.add_evidence(absl::StrCat("rank ", rank.rank(), " had closed no window"));
}

// What others did when the first had ended.
void AddAftermath(const JobFacts& facts, const RankSet& causes, v1::Verdict& verdict) {
  RankSet waiting, lost, failed;
  absl::Duration lasting;
  for (const Rank& rank : facts.ranks()) {
    if (causes.count(rank.rank()) > 0) continue;
    if (rank.state() == v1::STATE_LOST) lost.insert(rank.rank());
    if (rank.state() == v1::STATE_FAILED) failed.insert(rank.rank());
    if (!rank.running() || !rank.inside_window() || !rank.in_collective() || rank.idle() < absl::Seconds(1)) continue;
    waiting.insert(rank.rank());
    lasting = std::max(lasting, rank.idle());
  }
  if (!waiting.empty()) {
    verdict.add_evidence(absl::StrCat(RankList(waiting), " wait", waiting.size() == 1 ? "s" : "", " in a collective, for ",
                                      Span(lasting), " so far; at the deadline they end with an error"));
  }
  if (!failed.empty()) verdict.add_evidence(absl::StrCat("after that ", RankList(failed), " ended with an error"));
  if (!lost.empty()) verdict.add_evidence(absl::StrCat("after that ", RankList(lost), " ended without a goodbye"));
}

// Its last window failed: it saw another rank's end, or that of the network, before its own.
bool LastFailed(const Rank& rank) {
  const auto& windows = rank.told->windows();
  return !windows.empty() && windows[windows.size() - 1].window().failed();
}

// For the same reason as `first`, as far as times tell.
bool EndedWith(const Rank& rank, const Rank& first) {
  if (rank.state() != first.state() || LastFailed(rank) != LastFailed(first)) return false;
  const absl::Duration within = rank.node_name == first.node_name ? kTogetherOnNode : kTogether;
  return ToDuration(rank.told->ended()) >= ToDuration(first.told->ended()) - within;
}

// "in the order of their ends on this node: rank 1, rank 0 after 80 ms, rank 2 after 81 ms"
void AddOrder(const JobFacts& facts, const Rank& first, v1::Verdict& verdict) {
  std::vector<Rank> ended;
  for (const Rank& rank : facts.ranks()) {
    if (rank.ended_badly() && rank.node_name == first.node_name && rank.rank() != first.rank()) ended.push_back(rank);
  }
  if (ended.empty()) return;
  const auto since = [](const Rank& rank) { return ToDuration(rank.told->ended()); };
  std::stable_sort(ended.begin(), ended.end(), [&](const Rank& a, const Rank& b) { return since(a) > since(b); });
  std::string text = absl::StrCat("ends on its node: first rank ", first.rank());
  for (size_t i = 0; i < ended.size(); ++i) {
    if (i == kMaxRankLines) {
      absl::StrAppend(&text, ", and ", ended.size() - i, " more");
      break;
    }
    const absl::Duration after = since(first) - since(ended[i]);
    absl::StrAppend(&text, ", rank ", ended[i].rank(),
                    after >= absl::ZeroDuration() ? absl::StrCat(" ", Span(after), " after it") : " by its failed window");
  }
  verdict.add_evidence(std::move(text));
}

std::string HostOf(const Rank& rank) {
  const std::string& host = rank.told->stats().host_name();
  if (!host.empty()) return Shown(host);
  return rank.node_name.empty() ? "its host" : absl::StrCat("node ", Shown(rank.node_name));
}

bool EndedBefore(const Rank& a, const Rank& b) {
  if (LastFailed(a) != LastFailed(b)) return LastFailed(b);
  return ToDuration(a.told->ended()) > ToDuration(b.told->ended());
}

}  // namespace

RankSet Numbers(const std::vector<Rank>& ranks) {
  RankSet numbers;
  for (const Rank& rank : ranks) numbers.insert(rank.rank());
  return numbers;
}

std::string Who(const Rank& rank) {
  std::string text = absl::StrCat("rank ", rank.rank());
  const std::string& host = rank.told->stats().host_name();
  if (!host.empty()) absl::StrAppend(&text, " on ", Shown(host));
  if (!rank.node_name.empty() && rank.node_name != host) absl::StrAppend(&text, " (node ", Shown(rank.node_name), ")");
  if (rank.told->stats().process_id() > 0) absl::StrAppend(&text, ", pid ", rank.told->stats().process_id());
  return text;
}

void AddRankLines(const std::vector<Rank>& ranks, v1::Verdict& verdict) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMaxRankLines) return verdict.add_evidence(absl::StrCat("and ", ranks.size() - i, " more ranks"));
    verdict.add_evidence(StateLine(ranks[i]));
  }
}

Position PositionOf(const Rank& rank) {
  const v1::RankProgress& progress = rank.told->progress();
  if (!progress.counts_exact()) return {rank.window_index(), 0, 0};
  return {rank.window_index(), progress.gradient_issued_count(), progress.ours_issued_count()};
}

std::vector<Rank> WaitingTooLong(const JobFacts& facts) {
  std::vector<Rank> waiting;
  if (facts.world_size() <= 1) return waiting;
  for (const Rank& rank : facts.running()) {
    if (rank.inside_window() && rank.in_collective() && rank.idle() >= facts.hang_threshold()) waiting.push_back(rank);
  }
  return waiting;
}

void FindHang(const JobFacts& facts, Verdicts& out) {
  if (facts.world_size() <= 1) return;
  const Wait wait = FindWait(facts);
  if (wait.waiting.empty()) return;
  // Whoever ended badly is told of by FindEndedRanks, and that others wait for it.
  for (const Rank& rank : facts.ranks()) {
    if (rank.ended_badly()) return;
  }
  // Who is stopped is told of by FindStopped, with those that wait for it.
  const RankSet stopped = Numbers(StoppedRanks(facts));
  const auto told = [&](const Rank& rank) { return stopped.count(rank.rank()) > 0; };
  if (std::all_of(wait.waiting.begin(), wait.waiting.end(), told)) return;
  if (!stopped.empty() && std::all_of(wait.missing.begin(), wait.missing.end(), told)) return;
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_HUNG, v1::SEVERITY_CRITICAL, Headline(wait),
                                    wait.missing.empty() ? wait.unseen : Numbers(wait.missing));
  SetWindows(wait.front.window_index, wait.front.window_index, verdict);
  *verdict.mutable_lasting() = ToMessage(wait.lasting);
  verdict.add_evidence(absl::StrCat("arrived: ", RankList(Numbers(wait.waiting)), ", at gradient collective ",
                                    wait.front.gradient_issued_count, " of the window"));
  if (!wait.missing.empty()) {
    int32_t least = wait.front.gradient_issued_count;
    for (const Rank& rank : wait.missing)
      least = std::min(least, PositionOf(rank) < wait.front && rank.window_index() == wait.front.window_index
                                  ? PositionOf(rank).gradient_issued_count
                                  : 0);
    verdict.add_evidence(absl::StrCat("not arrived: ", RankList(Numbers(wait.missing)),
                                      "; first missing is gradient collective ",
                                      std::min(least + 1, std::max(1, wait.front.gradient_issued_count))));
    AddRankLines(wait.missing, verdict);
  }
  if (!wait.unseen.empty()) verdict.add_evidence(absl::StrCat("not seen: ", RankList(wait.unseen)));
  AddRankLines(wait.waiting, verdict);
  verdict.add_evidence(absl::StrCat("normal here: 99 % of waits are below ", Span(facts.wait_p99()), ", told after ",
                                    Span(facts.hang_threshold())));
  if (!wait.missing.empty()) AdviseOnMissing(wait.missing.front(), verdict);
  if (wait.missing.empty()) {
    verdict.add_advice(wait.unseen.empty() ? "all have arrived, so look at the network between them"
                                           : absl::StrCat("all that are seen have arrived: look at the node of ",
                                                          RankList(wait.unseen), ", and at the network to it"));
  }
  out.push_back(std::move(verdict));
}

void FindEndedRanks(const JobFacts& facts, Verdicts& out) {
  const Rank* first = nullptr;
  for (const Rank& rank : facts.ranks()) {
    if (rank.ended_badly() && (first == nullptr || EndedBefore(rank, *first))) first = &rank;
  }
  if (first == nullptr) return;
  const absl::Duration since = ToDuration(first->told->ended());
  std::vector<Rank> causes;
  for (const Rank& rank : facts.ranks()) {
    if (EndedWith(rank, *first)) causes.push_back(rank);
  }
  const RankSet numbers = Numbers(causes);
  const bool lost = first->state() == v1::STATE_LOST;
  v1::Verdict verdict =
      MakeVerdict(lost ? v1::VERDICT_KIND_RANK_LOST : v1::VERDICT_KIND_RANK_FAILED, v1::SEVERITY_CRITICAL,
                  absl::StrCat(RankList(numbers), lost ? " ended without a goodbye " : " ended with an error ", Span(since),
                               " ago, in window ", first->window_index()),
                  numbers);
  SetWindows(first->window_index(), first->window_index(), verdict);
  *verdict.mutable_lasting() = ToMessage(since);
  for (size_t i = 0; i < std::min(causes.size(), kMaxRankLines); ++i) {
    verdict.add_evidence(absl::StrCat(Who(causes[i]), ": ", Place(causes[i]), " when it ended, ",
                                      Count(causes[i].told->stats().totals().step_count(), "optimizer step"), " done"));
  }
  AddLastWindows(*first, verdict);
  AddAftermath(facts, numbers, verdict);
  AddOrder(facts, *first, verdict);
  verdict.add_advice(lost ? absl::StrCat("on ", HostOf(*first), " look for what killed rank ", first->rank(),
                                         ": the kernel's log (out of memory), the launcher's log, the exit status")
                          : absl::StrCat("the error is in the output of rank ", first->rank(), " on ", HostOf(*first),
                                         ", and says what to do"));
  verdict.add_advice("then start the job again from its last checkpoint");
  out.push_back(std::move(verdict));
}

}  // namespace gradgate::doctor
