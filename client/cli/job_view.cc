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

std::string TotalsTable(const v1::GetJobStatsResponse& response) {
  const v1::SyncTotals& totals = response.totals();
  Table table({{absl::StrCat("over ", response.ranks_size(), response.ranks_size() == 1 ? " rank" : " ranks"), Align::kLeft},
               {"total"},
               {"", Align::kLeft}});
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
  const std::string rows = table.TakeRows();
  return table.Header() + rows;
}

// The node has a column of its own where there are several.
std::string RanksTable(const v1::GetJobStatsResponse& response, absl::Time now) {
  const bool several = response.nodes_size() > 1;
  std::vector<Table::Column> columns({{"rank"},
                                      {"state", Align::kLeft},
                                      {"window"},
                                      {"micro-step"},
                                      {"steps"},
                                      {"red/step"},
                                      {"intended"},
                                      {"issued"},
                                      {"suppressed"},
                                      {"late"},
                                      {"mismatched"},
                                      {"exposed s"},
                                      {"wait s"},
                                      {"bytes"},
                                      {"", Align::kLeft},
                                      {"last event"},
                                      {"slot"},
                                      {"pid"},
                                      {"host", Align::kLeft}});
  if (several) columns.push_back({"node", Align::kLeft});
  Table table(std::move(columns));
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
  const std::string rows = table.TakeRows();
  return table.Header() + rows;
}

std::string CollectivesTable(const v1::GetJobStatsResponse& response) {
  Table table({{"group", Align::kLeft},
               {"op", Align::kLeft},
               {"gradient"},
               {"ours"},
               {"other"},
               {"completed"},
               {"failed"},
               {"unknown"},
               {"gradient bytes"},
               {"", Align::kLeft},
               {"ours bytes"},
               {"other bytes"}});
  for (const v1::CollectiveStats& collective : response.collectives()) {
    table.AddRow({Word(collective.group()), Word(collective.op()), absl::StrCat(collective.gradient_issued_count()),
                  absl::StrCat(collective.ours_issued_count()), absl::StrCat(collective.other_issued_count()),
                  absl::StrCat(collective.completed_count()), absl::StrCat(collective.failed_count()),
                  absl::StrCat(collective.unknown_count()), absl::StrCat(collective.gradient_bytes()),
                  HumanBytes(collective.gradient_bytes()), absl::StrCat(collective.ours_bytes()),
                  absl::StrCat(collective.other_bytes())});
  }
  const std::string rows = table.TakeRows();
  return table.Header() + rows;
}

}  // namespace

std::string JobHeadLine(const v1::Job& job, absl::Time now) {
  return absl::StrCat(Printable(job.job_name()), "  ", Word(job.state()), "  run ", Printable(job.run_id()), "  attempt ",
                      job.attempt(), "  mode ", Word(job.sync_mode()), " (", Word(job.enforcement()), ")  N ", Accumulate(job),
                      "  ranks ", RanksOf(job), " of ", job.world_size(), "  windows ", job.window_count(), "  for ",
                      DurationOf(job, now), "\n");
}

std::string JobsView(const v1::ListJobsResponse& response, absl::Time now) {
  bool ranks_missing = false;
  for (const v1::Job& job : response.jobs()) ranks_missing = ranks_missing || RanksOf(job) < job.world_size();
  std::string problems = NodeProblems(response.nodes(), ranks_missing);
  Table table({{"job", Align::kLeft},
               {"state", Align::kLeft},
               {"ranks"},
               {"lost"},
               {"failed"},
               {"mode", Align::kLeft},
               {"policy", Align::kLeft},
               {"N"},
               {"windows"},
               {"duration"},
               {"started", Align::kLeft},
               {"uid"},
               {"attempt"},
               {"run", Align::kLeft}});
  for (const v1::Job& job : response.jobs()) {
    if (job.lost_rank_count() + job.failed_rank_count() > 0) {
      absl::StrAppend(&problems, "! job ", Printable(job.job_name()), " run ", Printable(job.run_id()), ": ",
                      job.lost_rank_count(), " lost, ", job.failed_rank_count(), " failed of ", RanksOf(job), " ranks here\n");
    }
    table.AddRow({Printable(job.job_name()), Word(job.state()), absl::StrCat(RanksOf(job), "/", job.world_size()),
                  absl::StrCat(job.lost_rank_count()), absl::StrCat(job.failed_rank_count()), Word(job.sync_mode()),
                  Word(job.enforcement()), Accumulate(job), absl::StrCat(job.window_count()), DurationOf(job, now),
                  UtcTime(job.start_time()), absl::StrCat(job.user_id()), absl::StrCat(job.attempt()),
                  Printable(job.run_id())});
  }
  if (response.jobs().empty()) return problems + "no job yet\n";
  const std::string rows = table.TakeRows();
  return problems + table.Header() + rows;
}

std::string StatusView(const v1::GetJobStatsResponse& response, absl::Time now) {
  const bool ranks_missing = RanksOf(response.job()) < response.job().world_size();
  return absl::StrCat(JobHeadLine(response.job(), now), NodeProblems(response.nodes(), ranks_missing), JobProblems(response),
                      "\n", TotalsTable(response), "\n", RanksTable(response, now), "\n", CollectivesTable(response));
}

}  // namespace gradgate::cli
