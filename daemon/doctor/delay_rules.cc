// Who holds the others up, and where it loses the time.
//
// In a collective every rank waits for the last to arrive, so the rank that waits least was waited for, and by how much is the
// difference to what the others waited inside the same collective. Durations are compared, never instants.

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

std::string Against(const char* what, const Pair& pair) {
  return absl::StrCat(what, ": ", Span(pair.own), " per window where the others need ", Span(pair.others));
}

// Which part of the rank's own time is longer by at least half of what the others wait.
v1::DelayCause Explain(const JobFacts& facts, size_t rank, absl::Duration late, v1::Verdict& verdict) {
  const struct {
    v1::DelayCause cause;
    const char* what;
    Of of;
  } kParts[] = {{v1::DELAY_CAUSE_COMPUTE, "its micro-steps", MicroStep},
                {v1::DELAY_CAUSE_BETWEEN_MICRO_STEPS, "between micro-steps", Between},
                {v1::DELAY_CAUSE_BETWEEN_WINDOWS, "between windows", Gap}};
  v1::DelayCause cause = v1::DELAY_CAUSE_UNSPECIFIED;
  absl::Duration most;
  int known = 0;
  for (const auto& part : kParts) {
    const std::optional<Pair> pair = Compare(facts, rank, part.of);
    if (!pair) continue;
    ++known;
    if (pair->more() * 2 < late || pair->more() <= most) continue;
    most = pair->more();
    cause = part.cause;
    verdict.add_evidence(Against(part.what, *pair));
  }
  const bool outside_known = Compare(facts, rank, Between) && Compare(facts, rank, Gap);
  if (cause == v1::DELAY_CAUSE_UNSPECIFIED && outside_known && !Compare(facts, rank, MicroStep)) {
    verdict.add_evidence("neither between its micro-steps nor between windows is it slower, so it is inside micro-steps");
    return v1::DELAY_CAUSE_COMPUTE;
  }
  if (cause == v1::DELAY_CAUSE_UNSPECIFIED) {
    verdict.add_evidence(known == 0 ? "where it loses the time is not known: the parts of its windows are not measured"
                                    : "where it loses the time is not known: no part of its windows is longer by as much");
  }
  return cause;
}

const char* CauseWord(v1::DelayCause cause) {
  switch (cause) {
    case v1::DELAY_CAUSE_COMPUTE:
      return "in compute";
    case v1::DELAY_CAUSE_BETWEEN_MICRO_STEPS:
      return "between micro-steps";
    case v1::DELAY_CAUSE_BETWEEN_WINDOWS:
      return "between windows";
    case v1::DELAY_CAUSE_COMMUNICATION:
      return "in communication";
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

v1::Verdict Straggler(const JobFacts& facts, size_t at, const char* signal, const Delay& delay, absl::Duration window) {
  const int32_t rank = facts.judged()[at].rank();
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_STRAGGLER, v1::SEVERITY_WARNING, "", {rank});
  SetWindows(facts.shared_windows().front().window_index, facts.shared_windows().back().window_index, verdict);
  verdict.add_evidence(absl::StrCat("inside ", signal, " the others wait ", Span(delay.others), ", rank ", rank, " ",
                                    Span(delay.own), "; so in ", delay.often, " of ", delay.windows, " windows"));
  const v1::DelayCause cause = Explain(facts, at, delay.late, verdict);
  verdict.set_cause(cause);
  verdict.set_headline(absl::StrCat("all wait ", Span(delay.late), " in each window for rank ", rank, ", ", CauseWord(cause)));
  verdict.add_evidence(
      absl::StrFormat("that is %.0f %% of a window of %s", 100 * absl::FDivDuration(delay.late, window), Span(window)));
  verdict.add_advice(CauseAdvice(cause));
  return verdict;
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
      if (!passes(delays[i], kShownTwice)) continue;
      v1::Verdict verdict = Straggler(facts, i, signal.name, delays[i], window);
      if (passes(delays[i], kAlone) || verdict.cause() != v1::DELAY_CAUSE_UNSPECIFIED) out.push_back(std::move(verdict));
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
  const absl::Duration now = Median(std::move(least));
  const absl::Duration window = TypicalWindow(facts);
  if (now < early * kSlowedBy || now - early < std::max(absl::Milliseconds(10), window * kAlone.share)) return;
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_COMMUNICATION_SLOWED, v1::SEVERITY_WARNING,
                                    absl::StrCat("gradient collectives take ", Span(now), " where they took ", Span(early)));
  SetWindows(facts.shared_windows().front().window_index, facts.shared_windows().back().window_index, verdict);
  verdict.set_cause(v1::DELAY_CAUSE_COMMUNICATION);
  verdict.add_evidence(absl::StrCat("longest gradient collective of a window, on the rank that waits least: ", Span(now),
                                    " now, ", Span(early), " in the first windows seen; a window takes ", Span(window)));
  verdict.add_evidence("which rank's link it is, is not known: all ranks of a collective end together");
  verdict.add_advice(
      "look at the links between the nodes: errors, another job on them, a port that fell back to a lower speed");
  out.push_back(std::move(verdict));
}

}  // namespace gradgate::doctor
