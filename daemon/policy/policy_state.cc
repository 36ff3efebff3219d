#include "daemon/policy/policy_state.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/policy/policy_content.h"

namespace gradgate {
namespace {

constexpr size_t kRanksNamed = 16;

std::string Ranks(const std::vector<int32_t>& ranks) {
  const size_t shown = std::min(ranks.size(), kRanksNamed);
  std::string text =
      absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks.begin(), ranks.begin() + shown, ", "));
  if (shown < ranks.size()) absl::StrAppend(&text, " and ", ranks.size() - shown, " more");
  return text;
}

// Ranks of the job that live, by what they do with `version`.
struct Places {
  std::vector<int32_t> adopted, staged, unread;
  std::map<v1::PolicyRejection, std::vector<int32_t>> rejected;
  int64_t adopted_window = 0;
  int32_t live_count = 0;
  int32_t unseen_count = 0;  // of the world, ended or on nodes that do not answer
};

Places Sort(const v1::PolicyStatus& status) {
  Places places;
  const int64_t version = status.proposed().version();
  const bool ended = std::none_of(status.ranks().begin(), status.ranks().end(),
                                  [](const v1::RankPolicy& rank) { return rank.state() == v1::STATE_RUNNING; });
  for (const v1::RankPolicy& rank : status.ranks()) {
    if (rank.state() != v1::STATE_RUNNING && !ended) continue;
    ++places.live_count;
    if (rank.adopted_version() == version) {
      places.adopted.push_back(rank.rank());
      places.adopted_window = std::max(places.adopted_window, rank.adopted_window_index());
    } else if (rank.rejected_version() == version) {
      places.rejected[rank.rejection()].push_back(rank.rank());
    } else {
      (rank.staged_version() == version ? places.staged : places.unread).push_back(rank.rank());
    }
  }
  places.unseen_count = status.job().world_size() - static_cast<int32_t>(status.ranks_size());
  return places;
}

std::string Silent(const v1::PolicyStatus& status) {
  std::vector<std::string> names;
  for (const v1::NodeAnswer& node : status.nodes()) {
    if (!node.answered()) names.push_back(absl::StrCat(node.node_name(), " (", node.error(), ")"));
  }
  return names.empty() ? "" : absl::StrCat("; no answer from ", absl::StrJoin(names, ", "));
}

std::string Unseen(const v1::PolicyStatus& status, const Places& places) {
  if (places.unseen_count <= 0) return Silent(status);
  return absl::StrCat("; ", places.unseen_count, " of ", status.job().world_size(), " ranks are not seen from here",
                      Silent(status));
}

}  // namespace

v1::RankPolicy ToRankPolicy(const RankView& rank, const std::string& node_name) {
  const auto positive = [](uint64_t value) { return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)); };
  const TotalsValues& values = rank.counters.totals;
  v1::RankPolicy out;
  out.set_rank(static_cast<int32_t>(rank.identity.rank));
  out.set_node_name(node_name);
  out.set_adopted_version(positive(values.policy_version));
  out.set_adopted_window_index(positive(values.policy_adopted_window));
  out.set_staged_version(positive(values.policy_staged_version));
  out.set_rejected_version(positive(values.policy_rejected_version));
  out.set_rejection(static_cast<v1::PolicyRejection>(std::min<uint64_t>(values.policy_rejection, kPolicyRejectionCount)));
  out.set_state(static_cast<v1::State>(static_cast<int>(rank.state) + 1));
  return out;
}

void Judge(v1::PolicyStatus* status) {
  status->clear_detail();
  status->clear_adopted_window_index();
  if (status->proposed().version() == 0) {
    status->set_state(v1::POLICY_STATE_UNSPECIFIED);
    const auto holds = std::find_if(status->ranks().begin(), status->ranks().end(),
                                    [](const v1::RankPolicy& rank) { return rank.adopted_version() != 0; });
    status->set_detail(holds == status->ranks().end()
                           ? "no policy was proposed: ranks do what their trainers were given"
                           : absl::StrCat("ranks have version ", holds->adopted_version(),
                                          " in force, which the store does not have: it was emptied"));
    return;
  }
  const Places places = Sort(*status);
  if (!places.rejected.empty()) {
    status->set_state(v1::POLICY_STATE_REJECTED);
    std::vector<std::string> reasons;
    for (const auto& [reason, ranks] : places.rejected) reasons.push_back(absl::StrCat(Ranks(ranks), ": ", Explain(reason)));
    status->set_detail(absl::StrCat("rejected by ", absl::StrJoin(reasons, "; ")));
    return;
  }
  const bool whole = places.unseen_count <= 0 && places.live_count > 0;
  if (whole && places.unread.empty() && places.staged.empty()) {
    status->set_state(v1::POLICY_STATE_ADOPTED);
    status->set_adopted_window_index(places.adopted_window);
    status->set_detail(absl::StrCat("in force on all ranks from window ", places.adopted_window, " on"));
  } else if (whole && places.unread.empty()) {
    status->set_state(v1::POLICY_STATE_STAGED);
    status->set_detail("every rank has it; the next ballot of the job decides");
  } else if (places.live_count == 0) {
    status->set_state(v1::POLICY_STATE_PROPOSED);
    status->set_detail(absl::StrCat("no rank of the job runs", Unseen(*status, places)));
  } else {
    status->set_state(v1::POLICY_STATE_PROPOSED);
    status->set_detail(places.unread.empty()
                           ? absl::StrCat("the ranks seen have it", Unseen(*status, places))
                           : absl::StrCat(Ranks(places.unread), " ", places.unread.size() == 1 ? "has" : "have",
                                          " not read it yet: that is done at the end of a window", Unseen(*status, places)));
  }
}

}  // namespace gradgate
