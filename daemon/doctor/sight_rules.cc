// What could not be looked at.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/doctor/rules.h"

namespace gradgate::doctor {
namespace {

// Ranks of a job that has just started come one after another.
constexpr absl::Duration kGathering = absl::Seconds(30);
// A daemon's own words for why its store cannot be reached, with the address and since when.
constexpr size_t kMaxTrouble = 400;

// The latest window that all ranks have closed by the word of those seen: its ballot counts everybody. None: -1.
int64_t LastBallot(const JobFacts& facts) {
  int64_t last = -1;
  for (const Rank& rank : facts.ranks()) {
    for (const v1::WindowEvidence& window : rank.told->windows()) {
      if (window.window().max_micro_step_count() > 0) last = std::max(last, window.window_index());
    }
  }
  return last;
}

// Ranks that have closed a window have all met.
bool HaveMet(const JobFacts& facts) {
  return std::any_of(facts.ranks().begin(), facts.ranks().end(), [](const Rank& rank) { return rank.window_index() > 0; });
}

}  // namespace

RankSet UnseenRanks(const JobFacts& facts) {
  constexpr int64_t kMaxNamed = 1 << 16;
  const RankSet there = Numbers(facts.ranks());
  RankSet unseen;
  for (int32_t rank = 0; rank < std::min(facts.world_size(), kMaxNamed); ++rank) {
    if (there.count(rank) == 0) unseen.insert(rank);
  }
  return unseen;
}

void FindUnseen(const JobFacts& facts, Verdicts& out) {
  const auto seen = static_cast<int64_t>(facts.ranks().size());
  if (seen == 0 || seen >= facts.world_size() || (facts.age() < kGathering && !HaveMet(facts))) return;
  const RankSet there = Numbers(facts.ranks()), missing = UnseenRanks(facts);
  const bool asked = facts.evidence().other_nodes_asked;
  v1::Verdict verdict = MakeVerdict(v1::VERDICT_KIND_RANKS_UNSEEN, asked ? v1::SEVERITY_WARNING : v1::SEVERITY_NOTICE,
                                    absl::StrCat(seen, " of ", facts.world_size(), " ranks are seen ",
                                                 asked ? "by any daemon" : "by this daemon", ", not ", RankList(missing)),
                                    missing);
  const bool runs = !facts.running().empty();
  verdict.add_evidence(absl::StrCat("seen: ", RankList(there),
                                    runs ? absl::StrCat("; the job runs for ", Span(facts.age())) : "; none of them runs"));
  if (const int64_t last = LastBallot(facts); last >= 0) {
    verdict.add_evidence(absl::StrCat("the others ", runs ? "live: they " : "", "voted in the ballot of window ", last));
  }
  if (!runs) verdict.add_evidence("a daemon that was started again no longer knows ranks that ended before");
  verdict.add_advice(
      asked ? "on the nodes of those ranks: is gradgated up, with the same store, and does the trainer load gradgate?"
            : "only one node was asked: give all daemons one --store to see the whole job, or ask the others too");
  out.push_back(std::move(verdict));
}

void FindSilent(const JobFacts& facts, Verdicts& out) {
  for (const v1::NodeAnswer& answer : facts.evidence().answers) {
    if (answer.answered()) continue;
    v1::Verdict verdict = MakeVerdict(
        v1::VERDICT_KIND_NODE_SILENT, v1::SEVERITY_WARNING,
        absl::StrCat("node ", Shown(answer.node_name()), " did not answer; its ranks are not in what is said here"));
    verdict.add_evidence(absl::StrCat("asked at ", Shown(answer.address()), ": ", Shown(answer.error())));
    verdict.add_advice("is gradgated up there, and can this node reach it? Training does not depend on it");
    out.push_back(std::move(verdict));
  }
}

void FindStore(const JobFacts& facts, Verdicts& out) {
  for (const v1::NodeEvidence& node : facts.evidence().nodes) {
    if (node.store_error().empty()) continue;
    v1::Verdict verdict =
        MakeVerdict(v1::VERDICT_KIND_STORE_UNREACHABLE, v1::SEVERITY_WARNING,
                    absl::StrCat(node.node_name().empty() ? "this daemon" : absl::StrCat("node ", Shown(node.node_name())),
                                 " cannot reach its policy store"));
    if (node.has_store_unreachable_duration()) {
      *verdict.mutable_lasting() = node.store_unreachable_duration();
      verdict.add_evidence(absl::StrCat("for ", Span(ToDuration(node.store_unreachable_duration()))));
    }
    verdict.add_evidence(Shown(node.store_error(), kMaxTrouble));
    verdict.add_advice("the last policy stays in force and jobs go on; policies cannot be changed until the store is back");
    out.push_back(std::move(verdict));
  }
}

void FindMissed(const JobFacts& facts, Verdicts& out) {
  RankSet ranks;
  int64_t events = 0, windows = 0, errors = 0;
  for (const Rank& rank : facts.ranks()) {
    const v1::RankEvidence& told = *rank.told;
    if (told.event_missed_count() + told.window_missed_count() + told.page_error_count() <= 0) continue;
    ranks.insert(rank.rank());
    events += told.event_missed_count();
    windows += told.window_missed_count();
    errors += told.page_error_count();
  }
  if (ranks.empty()) return;
  v1::Verdict verdict =
      MakeVerdict(v1::VERDICT_KIND_RECORDS_MISSED, v1::SEVERITY_NOTICE,
                  absl::StrCat("not all records of ", RankList(ranks), " could be read; counts are true all the same"), ranks);
  verdict.add_evidence(absl::StrCat(Count(events, "event"), " and ", Count(windows, "window record"), " overwritten unread, ",
                                    Count(errors, "record"), " torn or invalid"));
  verdict.add_advice(
      errors > 0
          ? "torn records are normal after a kill; others mean a damaged page: is that trainer's shim this daemon's version?"
          : "windows of less than a millisecond: give gradgated a shorter --poll_interval, or more of a core");
  out.push_back(std::move(verdict));
}

}  // namespace gradgate::doctor
