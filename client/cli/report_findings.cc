#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cli/doctor_view.h"
#include "client/cli/format.h"
#include "client/cli/html/chart.h"
#include "client/cli/html/escape.h"
#include "client/cli/html/table.h"
#include "client/cli/plan_view.h"
#include "client/cli/policy_view.h"
#include "client/cli/report_sections.h"

namespace gradgate::cli {
namespace {

using html::Text;

constexpr int kMostVerdicts = 40;
constexpr int kMostLines = 60;  // of evidence or advice

std::string Section(absl::string_view id, absl::string_view title, absl::string_view inner) {
  return absl::StrCat("<section><h2 id=\"", id, "\">", title, "</h2>\n", inner, "</section>\n");
}

std::string Unknown(const absl::Status& status) {
  return absl::StrCat("<p class=\"unknown\">Unknown: ", Text(status.message()), "</p>\n");
}

template <typename Texts>
std::string List(absl::string_view title, const Texts& texts) {
  if (texts.empty()) return "";
  std::string list = absl::StrCat("<p class=\"quiet\">", title, "</p><ul>");
  for (int i = 0; i < std::min(kMostLines, texts.size()); ++i) absl::StrAppend(&list, "<li>", Text(texts[i]), "</li>");
  if (texts.size() > kMostLines) absl::StrAppend(&list, "<li>and ", texts.size() - kMostLines, " more</li>");
  return list + "</ul>\n";
}

std::string Finding(const v1::Verdict& verdict) {
  const char* const css = SeverityClass(verdict.severity());
  return absl::StrCat("<article class=\"finding ", css, "\"><h3><span class=\"badge ", css, "\">",
                      SeverityWord(verdict.severity()), "</span> ", html::Sentence(verdict.headline()),
                      "</h3>\n<p class=\"quiet\"><code>", Text(VerdictWord(verdict.kind())), "</code></p>\n",
                      List("Why", verdict.evidence()), List("What to do", verdict.advice()), "</article>\n");
}

std::string ModeWords(const v1::ModePlan& mode) {
  return absl::StrCat("<code>", Text(Word(mode.sync_mode())), "</code>",
                      mode.reshard() == v1::RESHARD_WINDOW ? ", parameters kept" : "");
}

std::string PlanTags(const v1::ModePlan& mode) {
  return absl::StrCat(mode.present() ? " <span class=\"badge notice\">now</span>" : "",
                      mode.best() ? " <span class=\"badge ok\">best</span>" : "");
}

std::string ModesChart(const v1::Plan& plan) {
  double most = 0;
  for (const v1::ModePlan& mode : plan.modes()) most = std::max(most, mode.step_seconds());
  if (most <= 0) return "";
  std::string rows = "<div class=\"rows\">";
  for (const v1::ModePlan& mode : plan.modes()) {
    const std::string numbers = absl::StrCat(TimeText(mode.step_seconds()), " a step");
    absl::StrAppend(&rows, "<span>", ModeWords(mode), PlanTags(mode), "</span>",
                    html::BarStrip({{"own", mode.step_seconds() - mode.exposed_seconds()}, {"exposed", mode.exposed_seconds()}},
                                   most, absl::StrCat(Word(mode.sync_mode()), ": ", numbers)),
                    "<span class=\"n\">", numbers, "</span>");
  }
  return rows + "</div>\n" + html::Legend({{"own", "computing and the rest"}, {"exposed", "exposed communication"}});
}

std::string ModesTable(const v1::Plan& plan) {
  html::Table table("Each sync mode, predicted", {{"mode"},
                                                  {"a step", true},
                                                  {"at least", true},
                                                  {"at most", true},
                                                  {"exposed", true},
                                                  {"speed-up", true},
                                                  {"reductions", true},
                                                  {"memory", true},
                                                  {"fits"}});
  for (const v1::ModePlan& mode : plan.modes()) {
    const char* const fits = mode.fit() == v1::FIT_YES ? "yes" : mode.fit() == v1::FIT_NO ? "no" : "unknown";
    table.AddRow(
        {ModeWords(mode) + PlanTags(mode), TimeText(mode.step_seconds()), TimeText(mode.min_step_seconds()),
         TimeText(mode.max_step_seconds()), TimeText(mode.exposed_seconds()), absl::StrFormat("%.2f&times;", mode.speedup()),
         absl::StrCat(mode.reduction_count()), mode.memory_bytes() == 0 ? "unknown" : HumanBytes(mode.memory_bytes()), fits},
        mode.best() ? "best" : "");
  }
  return table.Take();
}

}  // namespace

const char* SeverityClass(v1::Severity severity) {
  switch (severity) {
    case v1::SEVERITY_OK:
      return "ok";
    case v1::SEVERITY_WARNING:
      return "warning";
    case v1::SEVERITY_CRITICAL:
      return "critical";
    default:
      return "notice";
  }
}

std::string DoctorSection(const ReportAnswers& answers) {
  std::string inner;
  if (!answers.diagnosis.ok()) return Section("doctor", "What the doctor found", Unknown(answers.diagnosis.status()));
  const auto& verdicts = answers.diagnosis->verdicts();
  for (int i = 0; i < std::min(kMostVerdicts, verdicts.size()); ++i) inner += Finding(verdicts[i]);
  if (verdicts.size() > kMostVerdicts)
    absl::StrAppend(&inner, "<p>And ", verdicts.size() - kMostVerdicts, " more: gradgatectl doctor lists them.</p>\n");
  return Section("doctor", "What the doctor found", inner);
}

std::string PlanSection(const ReportAnswers& answers) {
  const char* const title = "What the planner would change";
  if (!answers.plan.ok()) return Section("plan", title, Unknown(answers.plan.status()));
  const v1::PlanSyncResponse& plan = *answers.plan;
  std::string inner = absl::StrCat("<p>", html::Sentence(plan.advice()), "</p>\n");
  if (!plan.policy().empty()) {
    absl::StrAppend(&inner, "<pre><code>gradgatectl policy set ", Text(ShellJob(plan)), " ", Text(plan.policy()),
                    "</code></pre>\n");
  }
  absl::StrAppend(&inner, ModesChart(plan.plan()), html::Details("The same as a table", ModesTable(plan.plan())));
  html::Table measured("What that was made from",
                       {{"measured"}, {"median", true}, {"spread", true}, {"windows of single ranks", true}});
  for (const v1::PlanMeasurement& m : plan.measurements()) {
    measured.AddRow({Text(m.what()), TimeText(m.seconds()), absl::StrCat("&plusmn;", ShareText(m.spread_share())),
                     absl::StrCat(m.sample_count())});
  }
  std::string made = measured.empty() ? "" : measured.Take();
  made += List("Assumed, or not to be measured in the present mode", plan.notes());
  if (!made.empty()) inner += html::Details("What it was made from", made);
  return Section("plan", title, inner);
}

std::string BytesSection(const ReportAnswers& answers) {
  html::Table table("Collectives of all ranks, over the whole run", {{"group"},
                                                                     {"operation"},
                                                                     {"gradient", true},
                                                                     {"gradient bytes", true},
                                                                     {"intended", true},
                                                                     {"gradgate's own", true},
                                                                     {"other", true},
                                                                     {"other bytes", true},
                                                                     {"failed", true},
                                                                     {"end unknown", true}});
  for (const v1::CollectiveStats& c : answers.stats.collectives()) {
    table.AddRow({Text(Word(c.group())), "<code>" + Text(Word(c.op())) + "</code>", absl::StrCat(c.gradient_issued_count()),
                  HumanBytes(c.gradient_bytes()), absl::StrCat(c.intended_count()),
                  absl::StrCat(c.ours_issued_count(), " (", HumanBytes(c.ours_bytes()), ")"),
                  absl::StrCat(c.other_issued_count()), HumanBytes(c.other_bytes()), absl::StrCat(c.failed_count()),
                  absl::StrCat(c.unknown_count())});
  }
  const std::string inner = table.empty() ? "<p class=\"unknown\">No collective was seen yet.</p>\n" : table.Take();
  return Section("bytes", "Collectives and bytes", inner);
}

std::string PolicySection(const ReportAnswers& answers) {
  if (!answers.policy.ok()) return Section("policy", "Policy", Unknown(answers.policy.status()));
  const v1::PolicyStatus& status = answers.policy->status();
  std::string inner = absl::StrCat("<p>", html::Sentence(absl::StripSuffix(PolicyInForce(status), "\n")), ".</p>\n");
  if (status.proposed().version() == 0) {
    inner += "<p>No other policy was proposed.</p>\n";
  } else {
    absl::StrAppend(&inner, "<p>Latest proposal: ", Text(absl::StripSuffix(PolicyLine(status), "\n")), "; by ",
                    status.proposed().actor().empty() ? "nobody who said a name" : html::Name(status.proposed().actor()),
                    ".</p>\n");
  }
  return Section("policy", "Policy", inner);
}

std::string UnknownSection(const ReportAnswers& answers) {
  std::vector<std::string> lines;
  const v1::Job& job = answers.stats.job();
  const int missing = job.world_size() - answers.stats.ranks_size();
  if (missing > 0)
    lines.push_back(absl::StrCat(missing, " of ", job.world_size(), missing == 1 ? " ranks is" : " ranks are",
                                 " not in any answer: all figures are of the others."));
  if (answers.windows.ok() && answers.windows->windows_size() > 0 && answers.windows->windows_size() < job.window_count()) {
    lines.push_back(absl::StrCat(
        "Of ", job.window_count(), " windows the latest ", answers.windows->windows_size(),
        " are drawn: older ones were not asked for, or the daemon keeps them no more. Counts are of the whole run."));
  }
  const v1::SyncTotals& totals = answers.stats.totals();
  if (totals.window_missed_count() > 0)
    lines.push_back(
        absl::StrCat(totals.window_missed_count(),
                     " window records were overwritten before the daemon read them: they are counted, and not drawn."));
  if (totals.event_missed_count() > 0)
    lines.push_back(
        absl::StrCat(totals.event_missed_count(),
                     " events were overwritten before the daemon read them: how long their collectives took is unknown."));
  int64_t unknown = 0;
  for (const v1::CollectiveStats& c : answers.stats.collectives()) unknown += c.unknown_count();
  if (unknown > 0) lines.push_back(absl::StrCat("Of ", unknown, " collectives the end cannot be observed."));
  for (const v1::NodeAnswer& node : answers.stats.nodes()) {
    const bool alone = answers.stats.nodes_size() == 1 && missing <= 0;  // then there is no other
    if (!node.note().empty() && !alone)
      lines.push_back(absl::StrCat(node.node_name().empty() ? "the daemon" : node.node_name(), ": ", node.note()));
  }
  if (lines.empty()) return Section("unknown", "What is not known", "<p>Nothing is known to be missing.</p>\n");
  std::string list = "<ul>";
  for (size_t i = 0; i < std::min<size_t>(kMostLines, lines.size()); ++i)
    absl::StrAppend(&list, "<li>", Text(lines[i]), "</li>");
  return Section("unknown", "What is not known", list + "</ul>\n");
}

}  // namespace gradgate::cli
