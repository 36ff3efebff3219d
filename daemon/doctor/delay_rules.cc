// Who holds the others up, and where it loses the time.
//
// In a collective every rank waits for the last to arrive, so the rank that waits least was waited for, and by how much is the
// difference to what the others waited inside the same collective. Durations are compared, never instants.
//
// That a rank is late does not say that it is slow: behind a slow link it ends each collective later than the others, and comes
// to the next one later. Only where its own time is longer as well is it told of as slow.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/doctor/rules.h"

namespace gradgate::doctor {
namespace {

constexpr size_t kLeastWindows = 8;
constexpr absl::Duration kLeastDelay = absl::Milliseconds(2);
// Below these shares of a window's time, and of windows, it is what machines do; less is enough where the rank's own time shows
// the same.
struct Bar {
  double share;
  double often;
};
constexpr Bar kAlone = {0.10, 0.7};
constexpr Bar kShownTwice = {0.05, 0.6};
constexpr double kSlowedBy = 3;
// A link is told of as slow only where it takes a large part of most windows: schedulers of busy machines do the rest.
constexpr Bar kSlowLink = {0.20, 2.0 / 3};
constexpr absl::Duration kLeastLinkDelay = absl::Milliseconds(20);
constexpr char kLinkAdvice[] =
    "look at the links between the nodes: errors, another job on them, a port that fell back to a lower speed";

// What tells how long a rank waited in one window.
struct Signal {
  const char* name;
  std::optional<absl::Duration> (*value)(const v1::WindowEvidence&);
};

std::optional<absl::Duration> Ballot(const v1::WindowEvidence& window) {
  if (!window.events_exact() || !window.has_ballot_duration()) return std::nullopt;
  return ToDuration(window.ballot_duration());
}
std::optional<absl::Duration> Gradient(const v1::WindowEvidence& window) {
  if (!window.events_exact() || !window.has_gradient_duration()) return std::nullopt;
  return ToDuration(window.gradient_duration());
}
std::optional<absl::Duration> Exposed(const v1::WindowEvidence& window) {
  const absl::Duration waited =
      std::max(ToDuration(window.window().exposed_duration()), ToDuration(window.window().wait_duration()));
  if (waited <= absl::ZeroDuration()) return std::nullopt;
  return waited;
}

// The ballot carries next to nothing: its time is waiting. Gradients also travel; what they expose is also computing.
constexpr Signal kSignals[] = {
    {"the ballot", Ballot}, {"the longest gradient collective", Gradient}, {"synchronisation", Exposed}};

struct Delay {
  absl::Duration late;         // median over windows: how much longer the others waited
  size_t often = 0;            // windows in which that was worth telling
  size_t windows = 0;          // looked at
  absl::Duration own, others;  // medians of the waits
};

// The middle one of the others' waits; the lower of two, so that one early rank makes no other late.
absl::Duration MedianOfOthers(const std::vector<absl::Duration>& values, size_t without) {
  std::vector<absl::Duration> others;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != without) others.push_back(values[i]);
  }
  if (others.empty()) return absl::ZeroDuration();
  const auto middle = others.begin() + static_cast<ptrdiff_t>((others.size() - 1) / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

// Ranks that bring different numbers of micro-steps arrive at different times, and are told of by another rule.
bool EqualWork(const SharedWindow& window) {
  return std::all_of(window.by_rank.begin(), window.by_rank.end(), [&](const v1::WindowEvidence* one) {
    return one->window().micro_step_count() == window.by_rank.front()->window().micro_step_count();
  });
}

// By rank, as JobFacts::judged(); empty where the signal is missing in too many windows.
std::vector<Delay> DelaysBy(const JobFacts& facts, const Signal& signal, absl::Duration least) {
  const size_t ranks = facts.judged().size();
  std::vector<std::vector<absl::Duration>> late(ranks), own(ranks), others(ranks);
  std::vector<Delay> delays(ranks);
  for (const SharedWindow& window : facts.shared_windows()) {
    std::vector<absl::Duration> waits;
    for (const v1::WindowEvidence* one : window.by_rank) {
      const std::optional<absl::Duration> wait = signal.value(*one);
      if (wait && window.window_index > 0) waits.push_back(*wait);
    }
    if (waits.size() != ranks || !EqualWork(window)) continue;
    for (size_t i = 0; i < ranks; ++i) {
      own[i].push_back(waits[i]);
      others[i].push_back(MedianOfOthers(waits, i));
      late[i].push_back(others[i].back() - waits[i]);
      delays[i].often += late[i].back() >= least ? 1 : 0;
      ++delays[i].windows;
    }
  }
  if (delays.front().windows < kLeastWindows) return {};
  for (size_t i = 0; i < ranks; ++i) {
    delays[i].late = Median(std::move(late[i]));
    delays[i].own = Median(std::move(own[i]));
    delays[i].others = Median(std::move(others[i]));
  }
  return delays;
}

// What the others' windows are longer by for synchronisation: where lateness hides behind computing, nobody waits.
absl::Duration OthersExposed(const JobFacts& facts, size_t rank) {
  std::vector<absl::Duration> exposed;
  for (const SharedWindow& window : facts.shared_windows()) {
    std::vector<absl::Duration> waits;
    for (const v1::WindowEvidence* one : window.by_rank) waits.push_back(Exposed(*one).value_or(absl::ZeroDuration()));
    exposed.push_back(MedianOfOthers(waits, rank));
  }
  return Median(std::move(exposed));
}

// Median over the shared windows of one duration of each rank; unset where it is not known.
using Of = std::optional<absl::Duration> (*)(const v1::WindowEvidence&);
struct Pair {
  absl::Duration own, others;
  absl::Duration more() const { return own - others; }
};
std::optional<Pair> Compare(const JobFacts& facts, size_t rank, Of of) {
  std::vector<absl::Duration> own, others;
  for (const SharedWindow& window : facts.shared_windows()) {
    std::vector<absl::Duration> values;
    for (const v1::WindowEvidence* one : window.by_rank) {
      if (const auto value = of(*one); value && window.window_index > 0) values.push_back(*value);
    }
    if (values.size() != window.by_rank.size()) continue;
    own.push_back(values[rank]);
    others.push_back(MedianOfOthers(values, rank));
  }
  if (own.size() < kLeastWindows / 2) return std::nullopt;
  return Pair{Median(std::move(own)), Median(std::move(others))};
}

std::optional<absl::Duration> MicroStep(const v1::WindowEvidence& window) {
  if (!window.window().has_suppressed_median_duration()) return std::nullopt;
  const absl::Duration median = ToDuration(window.window().suppressed_median_duration());
  if (median <= absl::ZeroDuration()) return std::nullopt;
  return median * std::max(window.window().micro_step_count(), 1);
}
std::optional<absl::Duration> Between(const v1::WindowEvidence& window) {
  if (!window.events_exact() || !window.has_micro_step_duration()) return std::nullopt;
  return std::max(absl::ZeroDuration(), ToDuration(window.window_duration()) - ToDuration(window.micro_step_duration()) -
                                            ToDuration(window.window().wait_duration()));
}
std::optional<absl::Duration> Gap(const v1::WindowEvidence& window) {
  if (!window.has_gap_duration()) return std::nullopt;
  return ToDuration(window.gap_duration());
}

// With what its backwards wait for, where they wait.
std::optional<absl::Duration> AllMicroSteps(const v1::WindowEvidence& window) {
  if (!window.events_exact() || !window.has_micro_step_duration()) return std::nullopt;
  return ToDuration(window.micro_step_duration());
}

std::string Against(const char* what, const Pair& pair) {
  return absl::StrCat(what, ": ", Span(pair.own), " per window where the others need ", Span(pair.others));
}

// A part of a rank's own time that may be what the others wait for.
struct Part {
  v1::DelayCause cause;
  const char* what;
  std::optional<Pair> pair;
};

// Which part of the rank's own time is longer by at least half of what the others wait. Where all parts are measured and none
// is, the rank came late since its last collective had ended late: neighbours of a slow link do.
v1::DelayCause Explain(const JobFacts& facts, size_t rank, absl::Duration late, v1::Verdict& verdict) {
  std::optional<Pair> compute = Compare(facts, rank, MicroStep);
  const bool compute_known = compute.has_value();
  if (!compute_known) compute = Compare(facts, rank, AllMicroSteps);
  const Part parts[] = {
      {v1::DELAY_CAUSE_COMPUTE, "its micro-steps", compute},
      {v1::DELAY_CAUSE_BETWEEN_MICRO_STEPS, "between micro-steps", Compare(facts, rank, Between)},
      {v1::DELAY_CAUSE_BETWEEN_WINDOWS, "between windows", Compare(facts, rank, Gap)},
  };
  const Part* longest = nullptr;
  bool all_known = compute_known;
  for (const Part& part : parts) {
    all_known = all_known && part.pair;
    if (!part.pair || part.pair->more() * 2 < late) continue;
    if (longest == nullptr || part.pair->more() > longest->pair->more()) longest = &part;
  }
  if (longest != nullptr) {
    verdict.add_evidence(Against(longest->what, *longest->pair));
    return longest->cause;
  }
  for (const Part& part : parts) {
    if (part.pair) verdict.add_evidence(Against(part.what, *part.pair));
  }
  if (all_known) return v1::DELAY_CAUSE_COMMUNICATION;
  verdict.add_evidence(parts[1].pair && parts[2].pair
                           ? "every micro-step reduces, so computing and communication cannot be told apart here"
                           : "where it loses the time is not known: the parts of its windows are not measured");
  return v1::DELAY_CAUSE_UNSPECIFIED;
}

const char* CauseWord(v1::DelayCause cause) {
  switch (cause) {
    case v1::DELAY_CAUSE_COMPUTE:
      return "in compute";
    case v1::DELAY_CAUSE_BETWEEN_MICRO_STEPS:
      return "between micro-steps";
    case v1::DELAY_CAUSE_BETWEEN_WINDOWS:
      return "between windows";
    default:
      return "where is not known";
  }
}

const char* CauseAdvice(v1::DelayCause cause) {
  switch (cause) {
    case v1::DELAY_CAUSE_COMPUTE:
      return "its machine or its share of the work: clocks and temperature, other processes on its cores, longer sequences, an "
             "odd device";
    case v1::DELAY_CAUSE_BETWEEN_MICRO_STEPS:
      return "its input: data loader workers, disk or network storage of that machine; host work between micro-steps";
    case v1::DELAY_CAUSE_BETWEEN_WINDOWS:
      return "what it does after the step and the others do not: logging, writing, evaluation";
    default:
      return "compare its machine with the others': other processes, clocks, storage";
  }
}

absl::Duration TypicalWindow(const JobFacts& facts) {
  std::vector<absl::Duration> durations;
  for (const SharedWindow& window : facts.shared_windows()) {
    for (const v1::WindowEvidence* one : window.by_rank) durations.push_back(ToDuration(one->window_duration()));
  }
  return Median(std::move(durations));
}

v1::Verdict LateRank(const JobFacts& facts, size_t at, const char* signal, const Delay& delay, absl::Duration window) {
  const int32_t rank = facts.judged()[at].rank();
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_STRAGGLER, v1::SEVERITY_WARNING, "", {rank});
  SetWindows(facts.shared_windows().front().window_index, facts.shared_windows().back().window_index, verdict);
  verdict.add_evidence(absl::StrCat("inside ", signal, " the others wait ", Span(delay.others), ", rank ", rank, " ",
                                    Span(delay.own), "; so in ", delay.often, " of ", delay.windows, " windows"));
  const v1::DelayCause cause = Explain(facts, at, delay.late, verdict);
  verdict.set_cause(cause);
  verdict.add_evidence(
      absl::StrFormat("that is %.0f %% of a window of %s", 100 * absl::FDivDuration(delay.late, window), Span(window)));
  if (cause != v1::DELAY_CAUSE_COMMUNICATION) {
    verdict.set_headline(
        absl::StrCat("all wait ", Span(delay.late), " in each window for rank ", rank, ", ", CauseWord(cause)));
    verdict.add_advice(CauseAdvice(cause));
    return verdict;
  }
  // The rank itself is not slow, so it is not blamed.
  verdict.set_kind(v1::VERDICT_KIND_SLOW_COMMUNICATION);
  verdict.clear_ranks();
  verdict.set_headline(absl::StrCat("collectives end ", Span(delay.late), " later on rank ", rank, " than on the others"));
  verdict.add_evidence(
      "its own time is that of the others, so it is the link to it, or the rank that sends to it; which is not known");
  verdict.add_advice(kLinkAdvice);
  return verdict;
}

absl::Duration LeastLinkDelay(absl::Duration window) { return std::max(kLeastLinkDelay, window * kSlowLink.share); }

bool InMostWindows(size_t often, size_t windows) {
  return static_cast<double>(often) >= kSlowLink.often * static_cast<double>(windows);
}

bool LinkIsSlow(const JobFacts& facts, const Signal& signal, size_t rank, absl::Duration window) {
  const Delay delay = DelaysBy(facts, signal, LeastLinkDelay(window))[rank];
  return InMostWindows(delay.often, delay.windows);
}

}  // namespace

void FindStragglers(const JobFacts& facts, Verdicts& out) {
  if (facts.judged().size() < 2 || facts.shared_windows().size() < kLeastWindows) return;
  const absl::Duration window = TypicalWindow(facts);
  const auto least = [&](const Bar& bar) { return std::max(kLeastDelay, window * bar.share); };
  for (const Signal& signal : kSignals) {
    const std::vector<Delay> delays = DelaysBy(facts, signal, least(kShownTwice));
    if (delays.empty()) continue;
    const auto passes = [&](const Delay& delay, const Bar& bar) {
      return delay.late >= least(bar) && static_cast<double>(delay.often) >= bar.often * static_cast<double>(delay.windows);
    };
    for (size_t i = 0; i < delays.size(); ++i) {
      if (!passes(delays[i], kShownTwice) || OthersExposed(facts, i) * 2 < delays[i].late) continue;
      v1::Verdict verdict = LateRank(facts, i, signal.name, delays[i], window);
      const bool shown_twice =
          verdict.cause() != v1::DELAY_CAUSE_UNSPECIFIED && verdict.cause() != v1::DELAY_CAUSE_COMMUNICATION;
      if (verdict.kind() == v1::VERDICT_KIND_SLOW_COMMUNICATION && !LinkIsSlow(facts, signal, i, window)) continue;
      if (passes(delays[i], kAlone) || shown_twice) out.push_back(std::move(verdict));
    }
    return;  // the best signal that there is
  }
}

// The least of the ranks' times is the transfer itself, whoever came late.
void FindSlowing(const JobFacts& facts, Verdicts& out) {
  if (facts.judged().size() < 2) return;
  absl::Duration early = absl::InfiniteDuration();
  for (const Rank& rank : facts.judged()) {
    if (!rank.told->has_early_gradient_duration()) return;
    early = std::min(early, ToDuration(rank.told->early_gradient_duration()));
  }
  std::vector<absl::Duration> least;
  for (const SharedWindow& window : facts.shared_windows()) {
    absl::Duration of_window = absl::InfiniteDuration();
    for (const v1::WindowEvidence* one : window.by_rank) {
      const auto duration = Gradient(*one);
      of_window = std::min(of_window, duration.value_or(absl::ZeroDuration()));
    }
    if (of_window > absl::ZeroDuration()) least.push_back(of_window);
  }
  if (least.size() < kLeastWindows) return;
  const absl::Duration window = TypicalWindow(facts);
  const auto slowed = std::count_if(least.begin(), least.end(), [&](absl::Duration one) {
    return one >= early * kSlowedBy && one - early >= LeastLinkDelay(window);
  });
  if (!InMostWindows(static_cast<size_t>(slowed), least.size())) return;
  const absl::Duration now = Median(least);
  const auto told = std::find_if(out.begin(), out.end(),
                                 [](const v1::Verdict& v) { return v.kind() == v1::VERDICT_KIND_SLOW_COMMUNICATION; });
  const auto at = static_cast<size_t>(told - out.begin());
  if (told == out.end()) {
    v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_SLOW_COMMUNICATION, v1::SEVERITY_WARNING, "");
    SetWindows(facts.shared_windows().front().window_index, facts.shared_windows().back().window_index, verdict);
    verdict.set_cause(v1::DELAY_CAUSE_COMMUNICATION);
    verdict.add_evidence("which rank's link it is, is not known: all ranks of a collective end together");
    verdict.add_advice(kLinkAdvice);
    out.push_back(std::move(verdict));
  }
  v1::Verdict& verdict = out[at];
  verdict.set_headline(absl::StrCat("gradient collectives take ", Span(now), " where they took ", Span(early)));
  verdict.add_evidence(absl::StrCat("longest gradient collective of a window, on the rank that waits least: ", Span(now),
                                    " now, ", Span(early), " in the first windows seen; so in ", slowed, " of ", least.size(),
                                    " windows, of ", Span(window)));
}

}  // namespace gradgate::doctor
