#include "client/cli/policy_view.h"

#include "absl/strings/str_cat.h"
#include "client/cli/format.h"
#include "client/cli/job_view.h"
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

std::string Content(const v1::Policy& policy) {
  Table table({{"policy", Align::kLeft}, {"", Align::kLeft}});
  table.AddRow({"mode", ModeText(policy)});
  table.AddRow({"bucket", BucketText(policy)});
  table.AddRow({"wire", WireText(policy)});
  table.AddRow({"reshard", ReshardText(policy)});
  table.AddRow({"enforcement", EnforcementText(policy)});
  const std::string rows = table.TakeRows();
  return table.Header() + rows;
}

std::string Version(int64_t version) { return version == 0 ? "-" : absl::StrCat(version); }

std::string RanksTable(const v1::PolicyStatus& status) {
  Table table({{"rank"},
               {"node", Align::kLeft},
               {"state", Align::kLeft},
               {"in force"},
               {"since window"},
               {"waits for ballot"},
               {"rejected"}});
  for (const v1::RankPolicy& rank : status.ranks()) {
    table.AddRow({absl::StrCat(rank.rank()), Printable(rank.node_name()), Word(rank.state()), Version(rank.adopted_version()),
                  rank.adopted_version() == 0 ? "-" : absl::StrCat(rank.adopted_window_index()), Version(rank.staged_version()),
                  Version(rank.rejected_version())});
  }
  const std::string rows = table.TakeRows();
  return table.Header() + rows;
}

std::string Inherited(const v1::ProposedPolicy& proposed) {
  if (!proposed.has_inherited_from_attempt()) return "";
  return absl::StrCat("; inherited from attempt ", proposed.inherited_from_attempt(), ", which had it in force");
}

}  // namespace

std::string PolicyLine(const v1::PolicyStatus& status) {
  if (status.proposed().version() == 0) return absl::StrCat("no policy: ", Printable(status.detail()), "\n");
  return absl::StrCat("version ", status.proposed().version(), " ", StateWord(status.state()), ": ", Printable(status.detail()),
                      "\n");
}

std::string PolicyView(const v1::PolicyStatus& status, absl::Time now) {
  std::string text = absl::StrCat(JobHeadLine(status.job(), now), PolicyLine(status));
  const v1::ProposedPolicy& proposed = status.proposed();
  if (proposed.version() != 0) {
    absl::StrAppend(&text, "by ", proposed.actor().empty() ? "nobody who said a name" : Printable(proposed.actor()), ", ",
                    HumanDuration(now - ToTime(proposed.propose_time())), " ago (", UtcTime(proposed.propose_time()), ")",
                    proposed.node_name().empty() ? "" : absl::StrCat(", at node ", Printable(proposed.node_name())),
                    ", content ", Printable(proposed.content_hash()), Inherited(proposed), "\n\n", Content(proposed.policy()));
  }
  absl::StrAppend(&text, "\n", RanksTable(status), "\nstore: ", Printable(status.store()), "\n");
  for (const v1::NodeAnswer& node : status.nodes()) {
    if (!node.answered()) {
      absl::StrAppend(&text, "! node ", Printable(node.node_name()), " at ", Printable(node.address()),
                      " did not answer: ", Printable(node.error()), "; its ranks are missing here\n");
    }
  }
  return text;
}

}  // namespace gradgate::cli
