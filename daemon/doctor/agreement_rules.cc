// Ranks against each other: where they are, what they brought, how they were set up.

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/doctor/rules.h"
#include "proto/shm/types.h"

namespace gradgate::doctor {
namespace {

// Between the readings of two ranks' counters: on one node, and of nodes that answered one question.
constexpr absl::Duration kReadApart = absl::Milliseconds(20);
constexpr absl::Duration kAnsweredApart = absl::Seconds(3);

// Ranks by a value that should be one.
using ByValue = std::map<std::string, RankSet>;

// "0.1.0 on ranks 0-2, 0.2.0 on rank 3"
std::string Text(const ByValue& values) {
  return absl::StrJoin(values, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.first, " on ", RankList(entry.second));
  });
}

// The ranks that are not with the most; all where no value has most.
RankSet OddOnes(const ByValue& values) {
  size_t most = 0;
  int with_most = 0;
  for (const auto& [value, ranks] : values) {
    if (ranks.size() > most) with_most = 0;
    most = std::max(most, ranks.size());
    with_most += ranks.size() == most ? 1 : 0;
  }
  RankSet odd;
  for (const auto& [value, ranks] : values) {
    if (with_most > 1 || ranks.size() < most) odd.insert(ranks.begin(), ranks.end());
  }
  return odd;
}

ByValue MicroSteps(const JobFacts& facts, const SharedWindow& window) {
  ByValue values;
  for (size_t i = 0; i < window.by_rank.size(); ++i) {
    values[absl::StrCat(window.by_rank[i]->window().micro_step_count())].insert(facts.judged()[i].rank());
  }
  return values;
}

// Windows in which ranks brought different numbers of micro-steps.
struct Uneven {
  int64_t count = 0;
  int64_t told = 0;     // of those, windows in which the ballot called it a disagreement
  int64_t unvoted = 0;  // of those, windows without a ballot
  int64_t first = 0, last = 0;
  ByValue latest;
  std::map<int32_t, int64_t> odd;  // how often each rank was the odd one
};

Uneven FindUneven(const JobFacts& facts) {
  Uneven uneven;
  for (const SharedWindow& window : facts.shared_windows()) {
    ByValue values = MicroSteps(facts, window);
    if (values.size() < 2) continue;
    if (uneven.count++ == 0) uneven.first = window.window_index;
    uneven.last = window.window_index;
    bool told = false, voted = false;
    for (const v1::WindowEvidence* one : window.by_rank) {
      told = told || one->window().disagreed();
      voted = voted || one->window().max_micro_step_count() > 0;
    }
    uneven.told += told ? 1 : 0;
    uneven.unvoted += voted ? 0 : 1;
    for (const int32_t rank : OddOnes(values)) ++uneven.odd[rank];
    uneven.latest = std::move(values);
  }
  return uneven;
}

// Of ranks that may bring what they have, a few differ at each window's end; one that does in nearly all was set up otherwise.
void FindUnevenWindows(const JobFacts& facts, Verdicts& out) {
  const Uneven uneven = FindUneven(facts);
  const auto looked_at = static_cast<int64_t>(facts.shared_windows().size());
  const bool unvoted = uneven.unvoted >= 2 && uneven.unvoted * 10 >= looked_at;
  const bool always = uneven.count >= 4 && uneven.count * 10 >= looked_at * 8;
  if (uneven.told == 0 && !unvoted && !always) return;
  RankSet odd;
  for (const auto& [rank, count] : uneven.odd) {
    if (count * 2 >= uneven.count) odd.insert(rank);
  }
  const bool declared = uneven.told == 0 && !unvoted;
  v1::Verdict verdict = MakeVerdict(
      v1::VERDICT_KIND_RANKS_APART, declared ? v1::SEVERITY_NOTICE : v1::SEVERITY_WARNING,
      absl::StrCat(RankList(odd), odd.size() == 1 ? " brings" : " bring", " another number of micro-steps than the others"),
      odd);
  SetWindows(uneven.first, uneven.last, verdict);
  verdict.add_evidence(absl::StrCat("window ", uneven.last, ": micro-steps ", Text(uneven.latest)));
  verdict.add_evidence(absl::StrCat(uneven.count, " of the last ", looked_at, " windows that all ranks closed are like that"));
  verdict.add_evidence(declared ? "windows are declared variable, so gradients are exact all the same"
                                : "windows are declared equal; the reduced gradients weigh ranks differently");
  verdict.add_advice(
      "is N, the batch size or the data's share another one on that rank? If it is meant: windows=\"variable\" and items=");
  out.push_back(std::move(verdict));
}

absl::Duration TypicalWindow(const JobFacts& facts) {
  std::vector<absl::Duration> durations;
  for (const SharedWindow& window : facts.shared_windows()) {
    for (const v1::WindowEvidence* one : window.by_rank) durations.push_back(ToDuration(one->window_duration()));
  }
  return std::max(Median(std::move(durations)), absl::Microseconds(10));
}

void FindWindowsApart(const JobFacts& facts, Verdicts& out) {
  if (facts.running().size() < 2 || facts.shared_windows().empty()) return;
  const auto less = [](const Rank& a, const Rank& b) { return a.window_index() < b.window_index(); };
  const auto [behind, ahead] = std::minmax_element(facts.running().begin(), facts.running().end(), less);
  const absl::Duration apart = facts.evidence().nodes.size() > 1 ? kAnsweredApart : kReadApart;
  const auto allowed = 1 + static_cast<int64_t>(absl::FDivDuration(apart, TypicalWindow(facts))) + 1;
  if (ahead->window_index() - behind->window_index() <= allowed) return;
  ByValue values;
  for (const Rank& rank : facts.running()) values[absl::StrCat("window ", rank.window_index())].insert(rank.rank());
  const RankSet odd = OddOnes(values);
  v1::Verdict verdict = MakeVerdict(
      v1::VERDICT_KIND_RANKS_APART, v1::SEVERITY_CRITICAL,
      absl::StrCat(RankList(odd), " and the others are ", ahead->window_index() - behind->window_index(), " windows apart"),
      odd);
  SetWindows(behind->window_index(), ahead->window_index(), verdict);
  verdict.add_evidence(Text(values));
  verdict.add_evidence("ranks that reduce with each other are never more than a window apart");
  verdict.add_advice("are these ranks in one process group? One of them trains alone, or skips windows");
  out.push_back(std::move(verdict));
}

const char* Reason(int32_t rejection) {
  switch (static_cast<PolicyRejection>(rejection)) {
    case PolicyRejection::kNone:
      break;
    case PolicyRejection::kNoReplicas:
      return "window_replica needs groups that shard and groups that replicate";
    case PolicyRejection::kNoBuckets:
      return "it has no buckets whose size could be set while it runs";
    case PolicyRejection::kHookHeld:
      return "the trainer's own communication hook decides what travels";
    case PolicyRejection::kNoWireType:
      return "this wire type does not exist there";
    case PolicyRejection::kNothingGathered:
      return "no parameters are gathered that could be kept";
    case PolicyRejection::kInvalid:
      return "its values are not valid, or not known to that shim";
    case PolicyRejection::kLeftAlone:
      return "gradgate is off there, or leaves this job alone";
    case PolicyRejection::kFixed:
      return "it cannot change while this kind of attachment runs";
  }
  return "no reason is known";
}

void FindRejected(const JobFacts& facts, Verdicts& out) {
  RankSet ranks;
  const Rank* last = nullptr;
  for (const Rank& rank : facts.judged()) {
    const int64_t rejected = rank.told->policy_rejected_version();
    if (rejected <= rank.told->stats().policy_version() || rejected < rank.told->policy_staged_version()) continue;
    ranks.insert(rank.rank());
    if (last == nullptr || last->told->policy_rejected_version() < rejected) last = &rank;
  }
  if (last == nullptr) return;
  v1::Verdict verdict = MakeVerdict(
      v1::VERDICT_KIND_POLICY_NOT_ADOPTED, v1::SEVERITY_WARNING,
      absl::StrCat("policy ", last->told->policy_rejected_version(), " is not in force: rejected by ", RankList(ranks)), ranks);
  verdict.add_evidence(absl::StrCat("rank ", last->rank(), ": ", Reason(last->told->policy_rejection())));
  verdict.add_advice("set a policy that all ranks can carry out; until then the last one stays in force everywhere");
  out.push_back(std::move(verdict));
}

}  // namespace

void FindApart(const JobFacts& facts, Verdicts& out) {
  FindUnevenWindows(facts, out);
  FindWindowsApart(facts, out);
}

void FindDisagreed(const JobFacts& facts, Verdicts& out) {
  RankSet ranks;
  std::set<int64_t> windows;
  for (const Rank& rank : facts.ranks()) {
    for (const v1::WindowEvidence& window : rank.told->windows()) {
      const v1::RankWindow& record = window.window();
      if (!record.disagreed() || record.min_micro_step_count() != record.max_micro_step_count()) continue;
      ranks.insert(rank.rank());
      windows.insert(window.window_index());
    }
  }
  if (ranks.empty()) return;
  v1::Verdict verdict = MakeVerdict(
      v1::VERDICT_KIND_RANKS_DISAGREED, v1::SEVERITY_CRITICAL,
      absl::StrCat("the ballot of ", Count(static_cast<int64_t>(windows.size()), "window"), " showed ranks that differ"),
      ranks);
  SetWindows(*windows.begin(), *windows.rbegin(), verdict);
  verdict.add_evidence(absl::StrCat(WindowSpan(*windows.begin(), *windows.rbegin()),
                                    ": equal micro-steps, but another mode, policy, or hash of what should be equal (parity)"));
  verdict.add_advice("the warning in each rank's output names the odd ranks and the value; strict=True stops at the first");
  out.push_back(std::move(verdict));
}

void FindDiffering(const JobFacts& facts, Verdicts& out) {
  using Value = std::function<std::string(const Rank&)>;
  const std::pair<const char*, Value> kValues[] = {
      {"shim version", [](const Rank& rank) { return Shown(rank.told->stats().shim_version()); }},
      {"world size", [](const Rank& rank) { return absl::StrCat(rank.told->world_size()); }},
      {"enforcement", [](const Rank& rank) { return Word(rank.told->enforcement()); }},
      {"declared N", [](const Rank& rank) { return absl::StrCat(rank.told->accumulate()); }},
      {"configuration hash", [](const Rank& rank) { return absl::StrCat(absl::Hex(rank.told->config_hash())); }},
  };
  std::vector<std::string> lines;
  RankSet odd;
  const auto compare = [&](const char* what, const ByValue& values) {
    if (values.size() < 2) return;
    lines.push_back(absl::StrCat(what, ": ", Text(values)));
    const RankSet these = OddOnes(values);
    odd.insert(these.begin(), these.end());
  };
  for (const auto& [what, value] : kValues) {
    ByValue values;
    for (const Rank& rank : facts.judged()) values[value(rank)].insert(rank.rank());
    compare(what, values);
  }
  // In the same window: two readings of one counter are of two instants.
  if (!facts.shared_windows().empty()) {
    const SharedWindow& window = facts.shared_windows().back();
    ByValue modes, policies;
    for (size_t i = 0; i < window.by_rank.size(); ++i) {
      modes[Word(window.by_rank[i]->window().sync_mode())].insert(facts.judged()[i].rank());
      policies[absl::StrCat(window.by_rank[i]->window().policy_version())].insert(facts.judged()[i].rank());
    }
    compare(absl::StrCat("mode in window ", window.window_index).c_str(), modes);
    compare(absl::StrCat("policy in window ", window.window_index).c_str(), policies);
  }
  if (lines.empty()) return;
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_RANKS_DIFFER, v1::SEVERITY_WARNING,
                                    absl::StrCat("ranks are not set up alike: ", RankList(odd)), odd);
  for (std::string& line : lines) verdict.add_evidence(std::move(line));
  verdict.add_advice("start all ranks from one environment: same package, same GRADGATE, same arguments");
  out.push_back(std::move(verdict));
}

void FindPolicy(const JobFacts& facts, Verdicts& out) {
  FindRejected(facts, out);
  int64_t newest = 0;
  ByValue staged;
  RankSet without;
  for (const Rank& rank : facts.running()) newest = std::max(newest, rank.told->policy_staged_version());
  if (newest == 0) return;
  for (const Rank& rank : facts.running()) {
    const int64_t version = rank.told->policy_staged_version();
    const bool there = version == newest || rank.told->stats().policy_version() >= newest;
    if (rank.told->policy_rejected_version() == newest) return;  // told above
    if (!there) without.insert(rank.rank());
    if (version == 0 && !there) {
      staged["none"].insert(rank.rank());
    } else {
      staged[absl::StrCat(there && version == 0 ? newest : version)].insert(rank.rank());
    }
  }
  if (without.empty()) return;
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_POLICY_NOT_ADOPTED, v1::SEVERITY_NOTICE,
                                    absl::StrCat("policy ", newest, " waits for ", RankList(without), ", which ",
                                                 without.size() == 1 ? "has" : "have", " not staged it"),
                                    without);
  verdict.add_evidence(absl::StrCat("staged: ", Text(staged)));
  verdict.add_advice(
      "ranks stage a policy at their next window; if this stays, the daemon of their node does not reach the store");
  out.push_back(std::move(verdict));
}

}  // namespace gradgate::doctor
