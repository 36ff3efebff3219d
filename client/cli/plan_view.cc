#include "client/cli/plan_view.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/format.h"
#include "client/cli/node_view.h"
#include "client/cli/table.h"

namespace gradgate::cli {
namespace {

const v1::ModePlan* BestOf(const v1::Plan& plan) {
  const auto found =
      std::find_if(plan.modes().begin(), plan.modes().end(), [](const v1::ModePlan& mode) { return mode.best(); });
  return found == plan.modes().end() ? nullptr : &*found;
}

// Three digits of the smallest step, so that a column's values can be compared at a glance.
class StepSeconds {
 public:
  explicit StepSeconds(const v1::PlanSyncResponse& response) {
    double least = INFINITY;
    const auto look = [&](const v1::Plan& plan) {
      for (const v1::ModePlan& mode : plan.modes()) least = std::min(least, mode.min_step_seconds());
    };
    look(response.plan());
    for (const v1::Plan& plan : response.what_ifs()) look(plan);
    decimals_ = least > 0 && std::isfinite(least) ? std::clamp(2 - static_cast<int>(std::floor(std::log10(least))), 0, 9) : 3;
  }

  std::string operator()(double seconds) const { return absl::StrFormat("%.*f", decimals_, seconds); }

 private:
  int decimals_;
};

std::string ModeName(const v1::ModePlan& mode) {
  return absl::StrCat(Word(mode.sync_mode()), mode.reshard() == v1::RESHARD_WINDOW ? ", parameters kept" : "");
}

const char* FitWord(v1::Fit fit) { return fit == v1::FIT_YES ? "yes" : fit == v1::FIT_NO ? "NO" : "?"; }

std::string BytesOrUnknown(int64_t bytes, bool known) { return known ? HumanBytes(bytes) : "-"; }

// In the unit of --memory-gib.
std::string Memory(int64_t bytes) {
  if (bytes == 0) return "-";
  const double gib = static_cast<double>(bytes) / (1 << 30);
  return absl::StrFormat("%.*f GiB", gib >= 100 ? 0 : gib >= 1 ? 1 : 3, gib);
}

// "7e9".
std::string Count(int64_t count) {
  return absl::StrReplaceAll(absl::StrFormat("%.3g", static_cast<double>(count)), {{"e+0", "e"}, {"e+", "e"}});
}

std::string Times(double factor) { return absl::StrFormat("%.2fx", factor); }

std::string Setup(const v1::Plan& plan) {
  const v1::PlanNumbers& n = plan.numbers();
  std::string text = absl::StrCat(n.rank_count(), n.rank_count() == 1 ? " rank" : " ranks");
  if (n.node_count() > 1) absl::StrAppend(&text, " on ", n.node_count(), " nodes");
  switch (plan.sharding()) {
    case v1::SHARDING_NONE:
      text += ", each with all parameters (DDP)";
      break;
    case v1::SHARDING_FULL:
      text += ", parameters sharded over all (FSDP)";
      break;
    default:
      absl::StrAppend(&text, ", parameters sharded over ", n.shard_count(), ", replicated ",
                      n.rank_count() / std::max<int64_t>(1, n.shard_count()), " times (HSDP)");
  }
  absl::StrAppend(&text, ", N ", n.accumulate());
  if (n.has_parameter_count()) absl::StrAppend(&text, ", ", Count(n.parameter_count()), " parameters");
  return text;
}

std::string HeadLine(const v1::PlanSyncResponse& response) {
  if (!response.has_job()) return absl::StrCat("from the given numbers: ", Setup(response.plan()), "\n");
  return absl::StrCat(Printable(response.job().job_name()), "  run ", Printable(response.job().run_id()), ": ",
                      Setup(response.plan()), "\n");
}

// The ends of what is possible; empty where nothing is left open.
std::string Between(const v1::ModePlan& mode, const StepSeconds& seconds) {
  const std::string least = seconds(mode.min_step_seconds()), most = seconds(mode.max_step_seconds());
  return least == most ? "" : absl::StrCat(least, "-", most);
}

std::string ModesTable(const v1::Plan& plan, const StepSeconds& seconds, size_t width) {
  const bool open = std::any_of(plan.modes().begin(), plan.modes().end(),
                                [&](const v1::ModePlan& mode) { return !Between(mode, seconds).empty(); });
  std::vector<Table::Column> columns = {{"mode", Align::kLeft, 0, 0, 16}, {"", Align::kLeft}, {"s/step"}};
  if (open) columns.push_back({"between", Align::kRight, 0, 1});
  for (const auto& [title, drop] : {std::pair{"exposed s", 2},
                                    {"speed-up", 0},
                                    {"reductions", 5},
                                    {"rank sends inside", 6},
                                    {"node sends out", 4},
                                    {"memory", 3},
                                    {"fits", 0}}) {
    columns.push_back({title, Align::kRight, 0, drop});
  }
  Table table(std::move(columns), width);
  const bool known = plan.numbers().has_parameter_count();
  for (const v1::ModePlan& mode : plan.modes()) {
    std::vector<std::string> cells = {ModeName(mode),
                                      mode.present() ? (mode.best() ? "now, best" : "now")
                                      : mode.best()  ? "best"
                                                     : "",
                                      seconds(mode.step_seconds())};
    if (open) cells.push_back(Between(mode, seconds));
    for (std::string cell : {seconds(mode.exposed_seconds()), Times(mode.speedup()), absl::StrCat(mode.reduction_count()),
                             BytesOrUnknown(mode.intra_bytes(), known), BytesOrUnknown(mode.inter_bytes(), known),
                             Memory(mode.memory_bytes()), std::string(FitWord(mode.fit()))}) {
      cells.push_back(std::move(cell));
    }
    table.AddRow(std::move(cells));
  }
  return table.All();
}

std::string WhatIfTable(const v1::PlanSyncResponse& response, const StepSeconds& seconds, size_t width) {
  Table table({{"what if", Align::kLeft, 0, 0, 16},
               {"best mode", Align::kLeft, 0, 0, 16},
               {"s/step"},
               {"exposed s", Align::kRight, 0, 1},
               {"of now's throughput"},
               {"node sends out", Align::kRight, 0, 3},
               {"memory", Align::kRight, 0, 2},
               {"fits"}},
              width);
  const auto row = [&](const std::string& label, const v1::Plan& plan) {
    const v1::ModePlan* best = BestOf(plan);
    if (best == nullptr) return;
    const bool known = plan.numbers().has_parameter_count();
    table.AddRow({label, ModeName(*best), seconds(best->step_seconds()), seconds(best->exposed_seconds()),
                  Times(plan.relative_throughput()), BytesOrUnknown(best->inter_bytes(), known), Memory(best->memory_bytes()),
                  FitWord(best->fit())});
  };
  row("as it is", response.plan());
  for (const v1::Plan& plan : response.what_ifs()) row(Printable(plan.label()), plan);
  return table.All();
}

std::string Measurements(const v1::PlanSyncResponse& response, size_t width) {
  Table table({{"measured", Align::kLeft, 0, 0, 24}, {"s"}, {"spread"}, {"windows of ranks"}}, width);
  for (const v1::PlanMeasurement& m : response.measurements()) {
    table.AddRow({Printable(m.what()), absl::StrFormat("%.4g", m.seconds()),
                  absl::StrFormat("±%.1f %%", 100 * m.spread_share()), absl::StrCat(m.sample_count())});
  }
  return table.All();
}

}  // namespace

std::string ShellJob(const v1::PlanSyncResponse& response) {
  if (!response.has_job()) return "JOB";
  const std::string& name = response.job().job_name();
  const bool plain = !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  return plain ? name : Printable(response.job().run_id());
}

std::string PlanView(const v1::PlanSyncResponse& response, size_t width) {
  const StepSeconds seconds(response);
  std::string text = absl::StrCat(NodeProblems(response.nodes(), RanksOf(response.job()) < response.job().world_size()),
                                  HeadLine(response), "\n", ModesTable(response.plan(), seconds, width));
  if (!response.what_ifs().empty()) absl::StrAppend(&text, "\n", WhatIfTable(response, seconds, width));
  absl::StrAppend(&text, "\n", Printable(response.advice()), "\n");
  if (!response.policy().empty()) {
    absl::StrAppend(&text, "change it with: gradgatectl policy set ", ShellJob(response), " ", Printable(response.policy()),
                    "\n");
  }
  if (!response.measurements().empty()) absl::StrAppend(&text, "\n", Measurements(response, width));
  for (const std::string& note : response.notes()) absl::StrAppend(&text, "note: ", Printable(note), "\n");
  return text;
}

}  // namespace gradgate::cli
