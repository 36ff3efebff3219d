#include "client/cli/policy_view.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cli/format.h"
#include "client/cli/job_view.h"
#include "client/cli/node_view.h"
#include "client/cli/policy_options.h"
#include "client/cli/table.h"

namespace gradgate::cli {
namespace {

std::string StateWord(v1::PolicyState state) {
  switch (state) {
    case v1::POLICY_STATE_UNSPECIFIED:
      return "none";
    case v1::POLICY_STATE_PROPOSED:
      return "proposed";
    case v1::POLICY_STATE_STAGED:
      return "staged";
    case v1::POLICY_STATE_ADOPTED:
      return "adopted";
    case v1::POLICY_STATE_REJECTED:
      return "rejected";
    default:
      return absl::StrCat(static_cast<int>(state));
  }
}

// What a policy leaves open is shown with what that is in this job.
std::string ModeInForce(const v1::Policy& policy, const v1::Job& job) {
  const std::string text = ModeText(policy);
  return policy.sync_mode() == v1::SYNC_MODE_UNSPECIFIED && job.sync_mode() != v1::SYNC_MODE_UNSPECIFIED
             ? absl::StrCat(text, ": ", Word(job.sync_mode()))
             : text;
}

std::string EnforcementInForce(const v1::Policy& policy, const v1::Job& job) {
  const std::string text = EnforcementText(policy);
  return policy.enforcement() == v1::ENFORCEMENT_UNSPECIFIED && job.enforcement() != v1::ENFORCEMENT_UNSPECIFIED
             ? absl::StrCat(text, ": ", Word(job.enforcement()))
             : text;
}

// The policy in force, and beside it the proposed one where that is another.
std::string Content(const v1::PolicyStatus& status, size_t width) {
  const bool adopted = status.state() == v1::POLICY_STATE_ADOPTED;
  const v1::Policy& proposed = status.proposed().policy();
  const v1::Policy& force = adopted ? proposed : status.proposed().former_policy();
  const bool two = !adopted;
  std::vector<Table::Column> columns = {{"policy", Align::kLeft}, {"in force", Align::kLeft}};
  if (two) columns.push_back({StateWord(status.state()), Align::kLeft});
  Table table(std::move(columns), width);
  const auto row = [&](const char* name, std::string now, std::string then) {
    std::vector<std::string> cells = {name, std::move(now)};
    if (two) cells.push_back(std::move(then));
    table.AddRow(std::move(cells));
  };
  row("mode", ModeInForce(force, status.job()), ModeText(proposed));
  row("bucket", BucketText(force), BucketText(proposed));
  row("wire", WireText(force), WireText(proposed));
  row("reshard", ReshardText(force), ReshardText(proposed));
  row("enforcement", EnforcementInForce(force, status.job()), EnforcementText(proposed));
  return table.All();
}

std::string Inherited(const v1::ProposedPolicy& proposed) {
  if (!proposed.has_inherited_from_attempt()) return "";
  return absl::StrCat("; inherited from attempt ", proposed.inherited_from_attempt(), ", which had it in force");
}

std::string Proposer(const v1::ProposedPolicy& proposed, absl::Time now) {
  return absl::StrCat("by ", proposed.actor().empty() ? "nobody who said a name" : Printable(proposed.actor()), ", ",
                      HumanDuration(now - ToTime(proposed.propose_time())), " ago (", UtcTime(proposed.propose_time()), ")",
                      proposed.node_name().empty() ? "" : absl::StrCat(", at node ", Printable(proposed.node_name())),
                      ", content ", Printable(proposed.content_hash()), Inherited(proposed), "\n");
}

// "no buckets".
std::string RejectionWord(v1::PolicyRejection rejection) {
  const std::string& name = v1::PolicyRejection_Name(rejection);
  if (rejection == v1::POLICY_REJECTION_UNSPECIFIED || name.empty()) return "it does not say why";
  return absl::StrReplaceAll(absl::AsciiStrToLower(absl::StripPrefix(name, "POLICY_REJECTION_")), {{"_", " "}});
}

// Of versions before the proposed one: what is said of that stands elsewhere.
std::string LastRejection(const v1::PolicyStatus& status) {
  int64_t last = 0;
  for (const v1::RankPolicy& rank : status.ranks()) {
    if (rank.rejected_version() != status.proposed().version()) last = std::max(last, rank.rejected_version());
  }
  if (last == 0 || status.state() == v1::POLICY_STATE_REJECTED) return "";
  std::map<v1::PolicyRejection, std::set<int>> ranks;
  for (const v1::RankPolicy& rank : status.ranks()) {
    if (rank.rejected_version() == last) ranks[rank.rejection()].insert(rank.rank());
  }
  std::vector<std::string> parts;
  for (const auto& [why, which] : ranks) parts.push_back(absl::StrCat(Ranks(which), ": ", RejectionWord(why)));
  return absl::StrCat("last rejection: version ", last, " by ", absl::StrJoin(parts, "; "), "\n");
}

std::string Version(int64_t version) { return version == 0 ? "-" : absl::StrCat(version); }

std::string RanksTable(const v1::PolicyStatus& status, size_t width) {
  Table table({{"rank"},
               {"node", Align::kLeft, 0, 0, 8},
               {"state", Align::kLeft},
               {"in force"},
               {"since window"},
               {"waits for ballot", Align::kRight, 0, 2},
               {"rejected", Align::kRight, 0, 1}},
              width);
  for (const v1::RankPolicy& rank : status.ranks()) {
    table.AddRow({absl::StrCat(rank.rank()), Printable(rank.node_name()), Word(rank.state()), Version(rank.adopted_version()),
                  rank.adopted_version() == 0 ? "-" : absl::StrCat(rank.adopted_window_index()), Version(rank.staged_version()),
                  Version(rank.rejected_version())});
  }
  return table.All();
}

}  // namespace

std::string PolicyInForce(const v1::PolicyStatus& status) {
  std::map<std::pair<int64_t, int64_t>, std::set<int>, std::greater<>> ranks;  // the newest first
  for (const v1::RankPolicy& rank : status.ranks()) {
    const int64_t since = rank.adopted_version() == 0 ? 0 : rank.adopted_window_index();
    ranks[{rank.adopted_version(), since}].insert(rank.rank());
  }
  std::vector<std::string> parts;
  for (const auto& [what, which] : ranks) {
    const std::string where = ranks.size() == 1 ? "all ranks" : Ranks(which);
    parts.push_back(what.first == 0 ? absl::StrCat("what the trainers were given, on ", where)
                                    : absl::StrCat("version ", what.first, " since window ", what.second, " on ", where));
  }
  return absl::StrCat("in force: ", parts.empty() ? "not known, no rank is seen from here" : absl::StrJoin(parts, "; "), "\n");
}

std::string PolicyLine(const v1::PolicyStatus& status) {
  if (status.proposed().version() == 0) return absl::StrCat("no policy: ", Printable(status.detail()), "\n");
  const std::string state = StateWord(status.state()), detail = Printable(status.detail());
  const bool twice = absl::StartsWith(detail, state + " ");  // "rejected by rank 1: …"
  return absl::StrCat("version ", status.proposed().version(), " ", twice ? "" : state + ": ", detail, "\n");
}

std::string PolicyView(const v1::PolicyStatus& status, absl::Time now, size_t width) {
  const std::string nodes = NodeProblems(status.nodes(), RanksOf(status.job()) < status.job().world_size());
  const bool known = status.proposed().version() != 0;
  return absl::StrCat(JobHeadLine(status.job(), now), nodes, PolicyInForce(status), PolicyLine(status),
                      known ? Proposer(status.proposed(), now) : "", LastRejection(status), known ? "\n" : "",
                      known ? Content(status, width) : "", "\n", RanksTable(status, width),
                      "\nstore: ", Printable(status.store()), "\n");
}

}  // namespace gradgate::cli
