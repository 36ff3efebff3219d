#include "client/cli/node_view.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/format.h"
#include "client/cli/table.h"

namespace gradgate::cli {
namespace {

std::string NameOf(const v1::NodeAnswer& node) {
  const std::string name =
      node.node_name().empty() ? "node without a name" : absl::StrCat("node ", Printable(node.node_name()));
  return node.address().empty() ? name : absl::StrCat(name, " at ", Printable(node.address()));
}

std::string AnswerTime(const v1::NodeAnswer& node) {
  if (!node.answered()) return "no answer";
  if (!node.has_answer_duration()) return "asked";
  return absl::StrFormat("%.1f ms", absl::ToDoubleMilliseconds(ToDuration(node.answer_duration())));
}

// "digits 2/8 running, other 1/1 lost".
std::string JobsOf(const v1::Node& node) {
  constexpr int kShown = 4;
  std::vector<v1::Job> all(node.jobs().begin(), node.jobs().end());
  std::stable_partition(all.begin(), all.end(), [](const v1::Job& job) { return job.state() == v1::STATE_RUNNING; });
  std::vector<std::string> jobs;
  for (int i = 0; i < std::min(node.jobs_size(), kShown); ++i) {
    const v1::Job& job = all[static_cast<size_t>(i)];
    jobs.push_back(absl::StrCat(Printable(job.job_name()), " ", RanksOf(job), "/", job.world_size(), " ", Word(job.state())));
  }
  if (node.jobs_size() > kShown) jobs.push_back(absl::StrCat(node.jobs_size() - kShown, " more"));
  return jobs.empty() ? "-" : absl::StrJoin(jobs, ", ");
}

std::string StoreLine(const v1::ListNodesResponse& response) {
  if (response.store().empty()) return "store: none\n";
  return absl::StrCat("store: ", Printable(response.store()),
                      response.store_shared() ? "" : ", of this daemon alone; a common one is given by gradgated --store",
                      "\n");
}

// "! node b at 10.0.0.2:9766 did not answer within 2s".
std::string Silent(const v1::NodeAnswer& node) { return absl::StrCat("! ", NameOf(node), " ", Printable(node.error())); }

// `alone`: no other was asked.
std::string Problem(const v1::NodeAnswer& node, bool alone, bool ranks_missing) {
  if (!node.answered()) return absl::StrCat(Silent(node), ": its ranks are missing here\n");
  if (node.note().empty() || (alone && !ranks_missing)) return "";
  return alone ? absl::StrCat("! ranks of other nodes are missing here: ", Printable(node.note()), "\n")
               : absl::StrCat("! ", NameOf(node), ": ", Printable(node.note()), "\n");
}

}  // namespace

int RanksOf(const v1::Job& job) {
  return job.running_rank_count() + job.finished_rank_count() + job.lost_rank_count() + job.failed_rank_count();
}

std::string NodeProblems(const google::protobuf::RepeatedPtrField<v1::NodeAnswer>& nodes, bool ranks_missing) {
  std::string lines;
  for (const v1::NodeAnswer& node : nodes) absl::StrAppend(&lines, Problem(node, nodes.size() == 1, ranks_missing));
  return lines;
}

std::string NodeNews::Next(const google::protobuf::RepeatedPtrField<v1::NodeAnswer>& nodes) {
  const auto find = [](const auto& all, const v1::NodeAnswer& node) {
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.node_name() == node.node_name(); });
    return at == all.end() ? nullptr : &*at;
  };
  std::string lines;
  for (const v1::NodeAnswer& node : nodes) {
    const v1::NodeAnswer* const before = find(former_, node);
    if (before != nullptr && before->answered() == node.answered() && before->note() == node.note()) continue;
    if (before != nullptr && !before->answered() && node.answered()) absl::StrAppend(&lines, NameOf(node), " answers again\n");
    absl::StrAppend(&lines, Problem(node, nodes.size() == 1, true));
  }
  for (const v1::NodeAnswer& node : former_) {
    if (find(nodes, node) == nullptr)
      absl::StrAppend(&lines, "! ", NameOf(node), " has left the store: it is no longer asked\n");
  }
  former_.assign(nodes.begin(), nodes.end());
  return lines;
}

std::string NodesView(const v1::ListNodesResponse& response, absl::Time now, size_t width) {
  std::string problems;
  if (!response.store_trouble().empty()) absl::StrAppend(&problems, "! store: ", Printable(response.store_trouble()), "\n");
  Table table({{"node", Align::kLeft, 0, 0, 8},
               {"address", Align::kLeft, 0, 3},
               {"answered in"},
               {"version", Align::kLeft, 0, 1},
               {"up", Align::kRight, 0, 2},
               {"jobs: ranks there, of all", Align::kLeft, 0, 0, 25}},
              width);
  for (const v1::Node& node : response.nodes()) {
    const v1::NodeAnswer& answer = node.answer();
    if (!answer.answered()) absl::StrAppend(&problems, Silent(answer), "\n");
    const bool up = answer.answered() && node.has_start_time();
    table.AddRow({answer.node_name().empty() ? "-" : Printable(answer.node_name()),
                  answer.address().empty() ? "-" : Printable(answer.address()), AnswerTime(answer),
                  node.version().empty() ? "-" : Printable(node.version()),
                  up ? HumanDuration(now - ToTime(node.start_time())) : "-", answer.answered() ? JobsOf(node) : "?"});
  }
  return absl::StrCat(problems, table.All(), StoreLine(response));
}

}  // namespace gradgate::cli
