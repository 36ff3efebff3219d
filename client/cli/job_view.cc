#include "client/cli/job_view.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/format.h"
#include "client/cli/node_view.h"
#include "client/cli/problems.h"
#include "client/cli/table.h"

namespace gradgate::cli {
namespace {

constexpr size_t kWholeRunIdWidth = 110;  // of a line, from which on there is room for it
constexpr size_t kShortRunIdDigits = 8;   // enough to name it by
constexpr char kNoJob[] =
    "no job yet: a trainer appears once it attaches; it must run on this node and find this daemon's directory, "
    "by GRADGATE_DIR where gradgated has --dir\n";

std::string DurationOf(const v1::Job& job, absl::Time now) {
  return HumanDuration((job.has_end_time() ? ToTime(job.end_time()) : now) - ToTime(job.start_time()));
}

std::string Accumulate(const v1::Job& job) { return job.accumulate() == 0 ? "-" : absl::StrCat(job.accumulate()); }

// "dp 1.00", for each role that has any: in HSDP their sum alone tells little.
std::string ReductionsByRole(const v1::GetJobStatsResponse& response) {
  std::map<int, int64_t> issued;
  for (const v1::RankStats& rank : response.ranks()) {
    for (const v1::RoleTotals& role : rank.roles()) issued[role.group()] += role.issued_count();
  }
  std::string text;
  for (const auto& [role, count] : issued) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", Word(static_cast<v1::GroupRole>(role)), " ",
                    Ratio(count, response.totals().step_count()));
  }
  return text;
}

std::string ExposedShare(const v1::SyncTotals& totals) {
  const absl::Duration window = ToDuration(totals.window_duration());
  if (window <= absl::ZeroDuration()) return "";
  return absl::StrFormat("%.1f %% of %s in windows", 100 * absl::FDivDuration(ToDuration(totals.exposed_duration()), window),
                         HumanDuration(window));
}

std::string TotalsTable(const v1::GetJobStatsResponse& response, size_t width) {
  const v1::SyncTotals& totals = response.totals();
  Table table({{absl::StrCat("over ", response.ranks_size(), response.ranks_size() == 1 ? " rank" : " ranks"), Align::kLeft},
               {"total"},
               {"", Align::kLeft, 0, 0, 12}},
              width);
  const auto row = [&](const char* name, std::string value, std::string note = "") {
    table.AddRow({name, std::move(value), std::move(note)});
  };
  const auto count = [&](const char* name, int64_t value) { row(name, absl::StrCat(value)); };
  row("reductions per optimizer step", Ratio(totals.reduction_issued_count(), totals.step_count()), ReductionsByRole(response));
  count("optimizer steps", totals.step_count());
  count("reductions intended", totals.reduction_intended_count());
  count("reductions issued", totals.reduction_issued_count());
  count("reductions suppressed", totals.reduction_suppressed_count());
  count("reductions late", totals.reduction_late_count());
  count("reductions forced by the framework", totals.reduction_declared_extra_count());
  count("mismatched windows", totals.window_mismatched_count());
  row("exposed seconds", Seconds(totals.exposed_duration()), ExposedShare(totals));
  row("wait seconds", Seconds(totals.wait_duration()));
  count("gradient collectives", totals.gradient_collective_count());
  row("gradient bytes", absl::StrCat(totals.gradient_bytes()), HumanBytes(totals.gradient_bytes()));
  count("micro-steps", totals.micro_step_count());
  count("windows full", totals.window_full_count());
  count("windows partial", totals.window_partial_count());
  count("windows empty", totals.window_empty_count());
  count("windows late", totals.window_late_count());
  count("windows without a step", totals.window_unstepped_count());
  count("ballots", totals.ballot_count());
  if (totals.item_count() != 0) count("items", totals.item_count());
  row("events read", absl::StrCat(totals.event_read_count()), absl::StrCat(totals.event_missed_count(), " missed"));
  count("reconnects", totals.reconnect_count());
  return table.All();
}

// The node has a column of its own where there are several.
std::string RanksTable(const v1::GetJobStatsResponse& response, absl::Time now, size_t width) {
  const bool several = response.nodes_size() > 1;
  std::vector<Table::Column> columns({{"rank"},
                                      {"state", Align::kLeft},
                                      {"window"},
                                      {"micro-step", Align::kRight, 0, 6},
                                      {"steps"},
                                      {"red/step"},
                                      {"intended", Align::kRight, 0, 7},
                                      {"issued", Align::kRight, 0, 7},
                                      {"suppressed", Align::kRight, 0, 8},
                                      {"late"},
                                      {"mismatched"},
                                      {"exposed s", Align::kRight, 0, 1},
                                      {"wait s", Align::kRight, 0, 2},
                                      {"bytes", Align::kRight, 0, 11},
                                      {"", Align::kLeft, 0, 6},
                                      {"last event", Align::kRight, 0, 3},
                                      {"slot", Align::kRight, 0, 10},
                                      {"pid", Align::kRight, 0, 9},
                                      {"host", Align::kLeft, 0, several ? 9 : 4, 8}});
  if (several) columns.push_back({"node", Align::kLeft, 0, 0, 8});
  Table table(std::move(columns), width);
  for (const v1::RankStats& rank : response.ranks()) {
    const v1::SyncTotals& totals = rank.totals();
    std::vector<std::string> cells(
        {absl::StrCat(rank.rank()), Word(rank.state()), absl::StrCat(rank.window_index()), absl::StrCat(rank.micro_step()),
         absl::StrCat(totals.step_count()), Ratio(totals.reduction_issued_count(), totals.step_count()),
         absl::StrCat(totals.reduction_intended_count()), absl::StrCat(totals.reduction_issued_count()),
         absl::StrCat(totals.reduction_suppressed_count()), absl::StrCat(totals.reduction_late_count()),
         absl::StrCat(totals.window_mismatched_count()), Seconds(totals.exposed_duration()), Seconds(totals.wait_duration()),
         absl::StrCat(totals.gradient_bytes()), HumanBytes(totals.gradient_bytes()),
         rank.has_last_event_time() ? HumanDuration(now - ToTime(rank.last_event_time())) + " ago" : "-",
         absl::StrCat(rank.slot()), absl::StrCat(rank.process_id()), Printable(rank.host_name())});
    if (several) cells.push_back(Printable(rank.node_name()));
    table.AddRow(std::move(cells));
  }
  return table.All();
}

std::string CollectivesTable(const v1::GetJobStatsResponse& response, size_t width) {
  Table table({{"group", Align::kLeft},
               {"op", Align::kLeft},
               {"gradient"},
               {"ours"},
               {"other"},
               {"completed"},
               {"failed"},
               {"unknown", Align::kRight, 0, 1},
               {"gradient bytes", Align::kRight, 0, 4},
               {"", Align::kLeft},
               {"ours bytes", Align::kRight, 0, 2},
               {"other bytes", Align::kRight, 0, 3}},
              width);
  for (const v1::CollectiveStats& collective : response.collectives()) {
    table.AddRow({Word(collective.group()), Word(collective.op()), absl::StrCat(collective.gradient_issued_count()),
                  absl::StrCat(collective.ours_issued_count()), absl::StrCat(collective.other_issued_count()),
                  absl::StrCat(collective.completed_count()), absl::StrCat(collective.failed_count()),
                  absl::StrCat(collective.unknown_count()), absl::StrCat(collective.gradient_bytes()),
                  HumanBytes(collective.gradient_bytes()), absl::StrCat(collective.ours_bytes()),
                  absl::StrCat(collective.other_bytes())});
  }
  return table.All();
}

}  // namespace

std::string JobHeadLine(const v1::Job& job, absl::Time now) {
  return absl::StrCat(Printable(job.job_name()), "  ", Word(job.state()), "  run ", Printable(job.run_id()), "  attempt ",
                      job.attempt(), "  mode ", Word(job.sync_mode()), " (", Word(job.enforcement()), ")  N ", Accumulate(job),
                      "  ranks ", RanksOf(job), " of ", job.world_size(), "  windows ", job.window_count(), "  for ",
                      DurationOf(job, now), "\n");
}

std::string JobsView(const v1::ListJobsResponse& response, absl::Time now, size_t width) {
  bool ranks_missing = false;
  for (const v1::Job& job : response.jobs()) ranks_missing = ranks_missing || RanksOf(job) < job.world_size();
  std::string problems = NodeProblems(response.nodes(), ranks_missing);
  Table table({{"job", Align::kLeft, 0, 0, 16},
               {"state", Align::kLeft},
               {"ranks"},
               {"lost", Align::kRight, 0, 7},
               {"failed", Align::kRight, 0, 7},
               {"sync mode", Align::kLeft},
               {"enforcement", Align::kLeft, 0, 1},
               {"N"},
               {"windows", Align::kRight, 0, 3},
               {"duration", Align::kRight, 0, 2},
               {"started", Align::kLeft, 0, 5},
               {"uid", Align::kRight, 0, 4},
               {"attempt", Align::kRight, 0, 6},
               {"run", Align::kLeft}},
              width);
  const auto run_id = [&](const v1::Job& job) {
    const std::string id = Printable(job.run_id());
    return width == 0 || width >= kWholeRunIdWidth ? id : id.substr(0, kShortRunIdDigits);
  };
  for (const v1::Job& job : response.jobs()) {
    if (job.lost_rank_count() + job.failed_rank_count() > 0) {
      absl::StrAppend(&problems, "! job ", Printable(job.job_name()), " run ", Printable(job.run_id()), ": ",
                      job.lost_rank_count(), " lost, ", job.failed_rank_count(), " failed of ", RanksOf(job), " ranks here\n");
    }
    table.AddRow({Printable(job.job_name()), Word(job.state()), absl::StrCat(RanksOf(job), "/", job.world_size()),
                  absl::StrCat(job.lost_rank_count()), absl::StrCat(job.failed_rank_count()), Word(job.sync_mode()),
                  Word(job.enforcement()), Accumulate(job), absl::StrCat(job.window_count()), DurationOf(job, now),
                  UtcTime(job.start_time()), absl::StrCat(job.user_id()), absl::StrCat(job.attempt()), run_id(job)});
  }
  if (response.jobs().empty()) return problems + kNoJob;
  return problems + table.All();
}

std::string StatusView(const v1::GetJobStatsResponse& response, absl::Time now, size_t width) {
  const bool ranks_missing = RanksOf(response.job()) < response.job().world_size();
  return absl::StrCat(JobHeadLine(response.job(), now), NodeProblems(response.nodes(), ranks_missing), JobProblems(response),
                      "\n", TotalsTable(response, width), "\n", RanksTable(response, now, width), "\n",
                      CollectivesTable(response, width));
}

}  // namespace gradgate::cli
