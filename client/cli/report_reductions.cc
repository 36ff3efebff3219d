#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/format.h"
#include "client/cli/html/chart.h"
#include "client/cli/html/escape.h"
#include "client/cli/html/table.h"
#include "client/cli/report_sections.h"

namespace gradgate::cli {
namespace {

using html::Text;

constexpr double kSame = 0.05;  // of a rate that is made of other windows

std::string Bars(const ReductionReport& report) {
  const double issued = *report.PerStep(report.issued_count), intended = *report.PerStep(report.intended_count);
  const double wasted = *report.PerStep(report.wasted_count), most = std::max(issued, intended);
  if (most <= 0) return "";
  const auto bar = [&](const char* name, const std::vector<html::Part>& parts, double value) {
    return absl::StrCat("<span>", name, "</span>", html::BarStrip(parts, most, absl::StrCat(name, " ", CountText(value))),
                        "<span class=\"n\">", CountText(value), "</span>");
  };
  std::vector<std::pair<const char*, std::string>> legend = {{"own", "issued, as intended"}};
  if (wasted > 0) legend.emplace_back("wasted", "issued beyond the intended ones");
  legend.emplace_back("intended", "intended by the policy");
  return absl::StrCat("<div class=\"rows\">", bar("issued", {{"own", issued - wasted}, {"wasted", wasted}}, issued),
                      bar("intended", {{"intended", intended}}, intended), "</div>\n", html::Legend(legend));
}

std::string Basis(const ReportAnswers& answers, const ReductionReport& report) {
  if (report.whole_run) return "over the whole run";
  const bool all = report.window_count >= answers.stats.job().window_count();
  return absl::StrCat(all ? "over all " : "over the latest ", report.window_count, " closed windows");
}

// Where the policy changed on the way, one figure is no answer to both questions.
std::string OtherBasis(const ReportAnswers& answers, const ReductionReport& report) {
  const v1::SyncTotals& totals = answers.stats.totals();
  const auto shown = report.PerStep(report.issued_count);
  std::optional<double> issued, intended;
  std::string basis;
  if (!report.whole_run) {
    issued = PerStep(totals.reduction_issued_count(), totals);
    intended = PerStep(totals.reduction_intended_count(), totals);
    basis = "Over the whole run";
  } else if (answers.windows.ok() && !answers.windows->windows().empty()) {
    const WindowGroup all = GroupWindows(*answers.windows, 1).front();
    issued = all.issued;
    intended = all.intended;
    basis = absl::StrCat("In the latest ", answers.windows->windows_size(), " windows");
  }
  if (!issued.has_value() || !shown.has_value() || std::abs(*issued - *shown) <= kSame * *shown) return "";
  return absl::StrCat("<p>", basis, " it was <strong>", CountText(issued), "</strong>, ", CountText(intended),
                      " intended.</p>\n");
}

// Where there are several, their sum alone tells little.
std::string Roles(const ReportAnswers& answers) {
  std::map<int, v1::RoleTotals> roles;
  for (const v1::RankStats& rank : answers.stats.ranks()) {
    for (const v1::RoleTotals& role : rank.roles()) {
      v1::RoleTotals& sum = roles[role.group()];
      sum.set_issued_count(sum.issued_count() + role.issued_count());
      sum.set_intended_count(sum.intended_count() + role.intended_count());
      sum.set_suppressed_count(sum.suppressed_count() + role.suppressed_count());
    }
  }
  if (roles.size() < 2) return "";
  html::Table table("By the groups that reduce, over the whole run, a step",
                    {{"group"}, {"issued", true}, {"intended", true}, {"suppressed", true}});
  const v1::SyncTotals& totals = answers.stats.totals();
  for (const auto& [role, sum] : roles) {
    table.AddRow({Text(Word(static_cast<v1::GroupRole>(role))), CountText(PerStep(sum.issued_count(), totals)),
                  CountText(PerStep(sum.intended_count(), totals)), CountText(PerStep(sum.suppressed_count(), totals))});
  }
  return table.Take();
}

std::string Tile(absl::string_view value, absl::string_view words) {
  return absl::StrCat("<li><b>", Text(value), "</b><span>", Text(words), "</span></li>\n");
}

std::string Tiles(const ReportAnswers& answers, const ReductionReport& report) {
  const v1::SyncTotals& totals = answers.stats.totals();
  const double window = absl::ToDoubleSeconds(ToDuration(totals.window_duration()));
  std::optional<double> exposed_share;
  if (window > 0) exposed_share = absl::ToDoubleSeconds(ToDuration(totals.exposed_duration())) / window;
  std::string bytes = "unknown";
  if (const auto per_step = report.PerStep(report.gradient_bytes)) bytes = HumanBytes(static_cast<int64_t>(*per_step));
  const int ranks = std::max(1, answers.stats.ranks_size());
  const int64_t bad = totals.window_mismatched_count() + totals.window_disagreed_count();
  return absl::StrCat(
      "<ul class=\"tiles\">\n", Tile(ShareText(report.WastedShare()), "of the reductions were beyond what the policy asks for"),
      Tile(ShareText(exposed_share), "of the time in windows was exposed communication"),
      Tile(bytes, "of gradients a rank put into collectives for each step"),
      Tile(absl::StrCat(totals.step_count() / ranks), "optimizer steps of each rank"),
      Tile(absl::StrCat(bad), "windows of single ranks that differ from the policy or from other ranks"), "</ul>\n");
}

}  // namespace

std::string ReductionsSection(const ReportAnswers& answers) {
  const ReductionReport report = ReductionsOf(answers);
  const auto issued = report.PerStep(report.issued_count);
  std::string text = "<section><h2 id=\"reductions\">Reductions per optimizer step</h2>\n<div class=\"hero\"><p class=\"big\">";
  if (issued.has_value()) {
    absl::StrAppend(&text, CountText(issued), " <small>reductions per optimizer step,<br><strong>",
                    CountText(report.PerStep(report.intended_count)), " intended</strong>, ", Basis(answers, report),
                    "</small></p>\n<div>", Bars(report), "</div></div>\n", OtherBasis(answers, report), Roles(answers));
  } else {
    text += "unknown <small>No optimizer step was taken yet.</small></p></div>\n";
  }
  return absl::StrCat(text, Tiles(answers, report), "</section>\n");
}

}  // namespace gradgate::cli
