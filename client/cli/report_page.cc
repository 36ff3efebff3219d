#include "client/cli/report_page.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/format.h"
#include "client/cli/html/escape.h"
#include "client/cli/html/style.h"
#include "client/cli/report_sections.h"

namespace gradgate::cli {
namespace {

using html::Text;

// Nothing is loaded and nothing runs; the style is in the file.
constexpr char kPolicy[] = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
constexpr size_t kMostNodesNamed = 8;

std::string StateBadge(const v1::Job& job) {
  const char* css = job.state() == v1::STATE_RUNNING ? "notice" : job.state() == v1::STATE_FINISHED ? "ok" : "critical";
  return absl::StrCat("<span class=\"badge ", css, "\">", Text(Word(job.state())), "</span>");
}

std::string Fact(absl::string_view name, absl::string_view value_html, bool wide = false) {
  return absl::StrCat(wide ? "<div class=\"two\"><dt>" : "<div><dt>", name, "</dt><dd>", value_html, "</dd></div>");
}

std::string NodesText(const v1::GetJobStatsResponse& stats) {
  std::set<std::string> names;
  for (const v1::RankStats& rank : stats.ranks()) names.insert(rank.node_name().empty() ? rank.host_name() : rank.node_name());
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() < kMostNodesNamed) shown.push_back(name.empty() ? "one without a name" : html::Name(name));
  }
  std::string text = absl::StrCat(names.size(), names.size() == 1 ? " node: " : " nodes: ", absl::StrJoin(shown, ", "));
  if (names.size() > shown.size()) absl::StrAppend(&text, " and ", names.size() - shown.size(), " more");
  return names.empty() ? "unknown" : text;
}

std::string SpanText(const v1::Job& job, absl::Time now) {
  const absl::Time start = ToTime(job.start_time()), end = job.has_end_time() ? ToTime(job.end_time()) : now;
  return absl::StrCat(UtcTime(job.start_time()), "<br>", job.has_end_time() ? UtcTime(job.end_time()) : "still running", " (",
                      HumanDuration(end - start), ")");
}

std::string ModeText(const ReportAnswers& answers) {
  const v1::Job& job = answers.stats.job();
  std::string text = absl::StrCat("<code>", Text(Word(job.sync_mode())), "</code>, ", Text(Word(job.enforcement())));
  if (job.enforcement() == v1::ENFORCEMENT_AUDIT) text += ": counted, not changed";
  return text;
}

// The doctor's worst finding; without it, what the counts alone say.
std::pair<v1::Severity, std::string> Verdict(const ReportAnswers& answers) {
  if (answers.diagnosis.ok() && answers.diagnosis->verdicts_size() > 0) {
    const v1::Verdict& worst = answers.diagnosis->verdicts(0);
    const int more = answers.diagnosis->verdicts_size() - 1;
    std::string text = html::Sentence(worst.headline());
    if (more > 0)
      absl::StrAppend(&text, " (and <a href=\"#doctor\">", more, more == 1 ? " more finding" : " more findings", "</a>)");
    return {worst.severity(), text};
  }
  return {v1::SEVERITY_UNSPECIFIED, "The doctor did not answer; the counts below are the daemon's all the same."};
}

std::string VerdictBox(const ReportAnswers& answers) {
  const auto [severity, text] = Verdict(answers);
  const char* const words = severity == v1::SEVERITY_OK         ? "Healthy"
                            : severity == v1::SEVERITY_NOTICE   ? "Notice"
                            : severity == v1::SEVERITY_WARNING  ? "Warning"
                            : severity == v1::SEVERITY_CRITICAL ? "Critical"
                                                                : "Unknown";
  const char* const mark = severity == v1::SEVERITY_OK        ? "&#10003; "
                           : severity >= v1::SEVERITY_WARNING ? "&#9888;&#xfe0e; "
                                                              : "";
  return absl::StrCat("<p class=\"verdict ", SeverityClass(severity), "\"><strong>", mark, words, ":</strong> <span>", text,
                      "</span></p>\n");
}

std::string Header(const ReportAnswers& answers) {
  const v1::Job& job = answers.stats.job();
  std::string facts = "<dl class=\"facts\">";
  facts += Fact("Ran", SpanText(job, answers.now));
  facts += Fact("Policy in force", ModeText(answers));
  facts += Fact("Micro-steps a window (N)", job.accumulate() == 0 ? "not declared" : absl::StrCat(job.accumulate()));
  facts += Fact("Ranks", absl::StrCat(answers.stats.ranks_size(), " of ", job.world_size()));
  facts += Fact("On", NodesText(answers.stats));
  facts += Fact("Run", absl::StrCat("<code>", Text(job.run_id()), "</code>, attempt ", job.attempt(), ", user ", job.user_id()),
                true);
  facts += "</dl>\n";
  std::string problems;
  for (const v1::NodeAnswer& node : answers.stats.nodes()) {
    if (node.answered()) continue;
    absl::StrAppend(&problems, "<p class=\"warning\">Node ", html::Name(node.node_name()), " did not answer (",
                    Text(node.error()), "): its ranks are missing in this report.</p>\n");
  }
  return absl::StrCat("<header><p class=\"brand\">gradgate report</p><h1>", html::Name(job.job_name()), " ", StateBadge(job),
                      "</h1>\n", VerdictBox(answers), problems, facts, "</header>\n");
}

std::string Footer(const ReportAnswers& answers, absl::string_view version) {
  return absl::StrCat(
      "<footer><p><strong>How to read it.</strong> A <em>window</em> is the micro-steps between two optimizer steps. A "
      "<em>reduction</em> makes its "
      "gradients equal across a group; one a window is enough. <em>Exposed</em> is the time that reductions added to a window; "
      "what computing hides is "
      "not in it. <em>Own</em> is the rest of the window: forward, backward, input. A rank with much time of its own lets the "
      "others wait, and their waiting "
      "is in their exposed time.</p>\n<p>Made ",
      absl::FormatTime("%Y-%m-%d %H:%M:%SZ", answers.now, absl::UTCTimeZone()), " by gradgatectl ", Text(version),
      " from what gradgated counted. This file loads nothing and runs no scripts.</p></footer>\n");
}

}  // namespace

std::string ReportPage(const ReportAnswers& answers, absl::string_view version) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"",
      kPolicy,
      "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light dark\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n<title>",
      Text(answers.stats.job().job_name()), " - gradgate report</title>\n<style>", html::kStyle,
      "</style>\n</head>\n<body>\n<div class=\"wrap\">\n", Header(answers), "<main>\n", ReductionsSection(answers),
      WindowsSection(answers), TimelineSection(answers), RanksSection(answers), DoctorSection(answers), PlanSection(answers),
      BytesSection(answers), PolicySection(answers), UnknownSection(answers), "</main>\n", Footer(answers, version),
      "</div>\n</body>\n</html>\n");
}

}  // namespace gradgate::cli
