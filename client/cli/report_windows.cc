#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/format.h"
#include "client/cli/html/chart.h"
#include "client/cli/html/escape.h"
#include "client/cli/html/table.h"
#include "client/cli/report_sections.h"

namespace gradgate::cli {
namespace {

using html::Text;

std::string Indexes(int64_t first, int64_t last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

std::string GroupName(const WindowGroup& group) {
  return absl::StrCat(group.first_index == group.last_index ? "window " : "windows ",
                      Indexes(group.first_index, group.last_index));
}

html::ChartLabels Labels(const std::vector<WindowGroup>& groups, std::string label, std::string top) {
  return {std::move(label), std::move(top), absl::StrCat("window ", groups.front().first_index),
          absl::StrCat("window ", groups.back().last_index)};
}

std::string ReductionChart(const std::vector<WindowGroup>& groups) {
  double most = 1;
  bool wasted = false, flagged = false;
  std::vector<html::ChartColumn> columns;
  for (const WindowGroup& group : groups) {
    most = std::max({most, group.issued, group.intended});
    html::ChartColumn& column = columns.emplace_back();
    column.parts = {{"own", group.issued - group.extra}, {"wasted", group.extra}};
    column.mark = group.intended;
    column.flagged = group.flagged_count > 0;
    wasted = wasted || group.extra > 0;
    flagged = flagged || column.flagged;
    column.title =
        absl::StrCat(GroupName(group), ": ", CountText(group.issued), " issued, ", CountText(group.intended), " intended");
  }
  std::vector<std::pair<const char*, std::string>> legend = {{"own", "issued, as intended"}, {"mark", "intended"}};
  if (wasted) legend.emplace_back("wasted", "issued beyond");
  if (flagged) legend.emplace_back("flag", "below: a rank was late, failed, or differs from the policy or the others");
  const std::string label =
      absl::StrCat("Reductions of each window. In the first ones ", CountText(groups.front().issued), " issued and ",
                   CountText(groups.front().intended), " intended, in the last ones ", CountText(groups.back().issued), " and ",
                   CountText(groups.back().intended), ". The table below has all.");
  return html::ColumnChart(columns, most * 1.04, Labels(groups, label, CountText(most))) + html::Legend(legend);
}

std::string TimeChart(const std::vector<WindowGroup>& groups) {
  double most = 0;
  std::vector<html::ChartColumn> columns;
  for (const WindowGroup& group : groups) {
    html::ChartColumn& column = columns.emplace_back();
    if (group.timed_count == 0) {
      column.title = GroupName(group) + ": times unknown";
      continue;
    }
    most = std::max(most, group.seconds.all());
    column.parts = {{"own", group.seconds.own}, {"exposed", group.seconds.exposed}};
    column.title = absl::StrCat(GroupName(group), ": ", TimeText(group.seconds.own), " own, ", TimeText(group.seconds.exposed),
                                " exposed");
  }
  if (most <= 0) return "<p class=\"unknown\">The times of these windows are unknown.</p>\n";
  const std::string label = absl::StrCat("Time of a mean window of one rank, up to ", TimeText(most),
                                         ", own below and exposed communication above. The table below has all.");
  return html::ColumnChart(columns, most * 1.04, Labels(groups, label, TimeText(most))) +
         html::Legend({{"exposed", "exposed communication (above)"}, {"own", "the rank's own: computing, input (below)"}});
}

std::string GroupTable(const std::vector<WindowGroup>& groups) {
  html::Table table("Each column of the two charts: means over single ranks", {{"windows"},
                                                                               {"issued", true},
                                                                               {"intended", true},
                                                                               {"own", true},
                                                                               {"exposed", true},
                                                                               {"exposed share", true},
                                                                               {"flagged", true}});
  for (const WindowGroup& group : groups) {
    std::optional<double> own, exposed, share;
    if (group.timed_count > 0) {
      own = group.seconds.own;
      exposed = group.seconds.exposed;
      if (group.seconds.all() > 0) share = group.seconds.exposed / group.seconds.all();
    }
    table.AddRow({Indexes(group.first_index, group.last_index), CountText(group.issued), CountText(group.intended),
                  TimeText(own), TimeText(exposed), ShareText(share), absl::StrCat(group.flagged_count, " of ", group.count)});
  }
  return html::Details("The same as a table", table.Take());
}

// Of all that is drawn: seconds from the first begin.
struct Line {
  absl::Time begin = absl::InfiniteFuture(), end = absl::InfinitePast();
  int first = 0;  // of the answer's windows

  double At(const google::protobuf::Timestamp& time) const { return absl::ToDoubleSeconds(ToTime(time) - begin); }
  double length() const { return absl::ToDoubleSeconds(end - begin); }
};

Line LineOf(const v1::ListWindowsResponse& windows) {
  Line line;
  line.first = std::max(0, windows.windows_size() - static_cast<int>(kMostWindowsOnLine));
  for (int i = line.first; i < windows.windows_size(); ++i) {
    for (const v1::RankWindow& rank : windows.windows(i).ranks()) {
      if (!SecondsOf(rank).has_value()) continue;
      line.begin = std::min(line.begin, ToTime(rank.begin_time()));
      line.end = std::max(line.end, ToTime(rank.end_time()));
    }
  }
  return line;
}

std::map<int, std::vector<html::Span>> SpansByRank(const v1::ListWindowsResponse& windows, const Line& line) {
  std::map<int, std::vector<html::Span>> spans;
  for (int i = line.first; i < windows.windows_size(); ++i) {
    for (const v1::RankWindow& rank : windows.windows(i).ranks()) {
      const auto seconds = SecondsOf(rank);
      if (!seconds.has_value()) continue;
      const double end = line.At(rank.end_time());
      spans[rank.rank()].push_back(
          {line.At(rank.begin_time()), end - seconds->exposed, end, rank.mismatched() || rank.failed() || rank.disagreed()});
    }
  }
  return spans;
}

std::string MeanText(const std::vector<html::Span>& spans) {
  if (spans.empty()) return "unknown";
  double sum = 0;
  for (const html::Span& span : spans) sum += span.end - span.begin;
  return "mean " + TimeText(sum / static_cast<double>(spans.size()));
}

std::string Cut(size_t left_out) {
  return absl::StrCat("<span class=\"cut\">", left_out, " ranks between them are not drawn; below are the ", kBestRanksDrawn,
                      " with the least time of their own</span>");
}

bool SeveralNodes(const ReportAnswers& answers) {
  std::set<std::string> nodes;
  for (const v1::RankStats& rank : answers.stats.ranks()) nodes.insert(rank.node_name());
  return nodes.size() > 1;
}

}  // namespace

std::string TimeText(std::optional<double> seconds) {
  if (!seconds.has_value()) return "unknown";
  const double value = *seconds;
  const auto with_unit = [](double number, const char* unit) {
    return absl::StrFormat("%.*f %s", number < 9.995 ? 2 : number < 99.95 ? 1 : 0, number, unit);
  };
  if (value <= 0) return "0 s";
  if (value < 0.9995e-3) return with_unit(value * 1e6, "µs");
  return value < 0.9995 ? with_unit(value * 1e3, "ms") : with_unit(value, "s");
}

std::string ShareText(std::optional<double> share) {
  if (!share.has_value()) return "unknown";
  const double percent = 100 * *share;
  if (percent > 0 && percent < 0.05) return "below 0.1 %";
  return percent == 0 || percent >= 9.95 ? absl::StrFormat("%.0f %%", percent) : absl::StrFormat("%.1f %%", percent);
}

std::string CountText(std::optional<double> count) {
  if (!count.has_value()) return "unknown";
  return std::abs(*count * 10 - std::round(*count * 10)) < 0.05 ? absl::StrFormat("%.1f", *count)
                                                                : absl::StrFormat("%.2f", *count);
}

RankChoice ChooseRanks(const ReportAnswers& answers) {
  RankChoice choice;
  choice.ranks = WorstFirst(RankReports(answers));
  choice.worst = choice.ranks.size();
  if (choice.ranks.size() <= kMostRanksDrawn) return choice;
  choice.worst = kMostRanksDrawn - kBestRanksDrawn;
  choice.left_out = choice.ranks.size() - kMostRanksDrawn;
  const auto cut = choice.ranks.begin() + static_cast<std::ptrdiff_t>(choice.worst);
  choice.ranks.erase(cut, cut + static_cast<std::ptrdiff_t>(choice.left_out));
  return choice;
}

std::string WindowsSection(const ReportAnswers& answers) {
  std::string text = "<section><h2 id=\"windows\">Over the latest windows</h2>\n";
  if (!answers.windows.ok()) {
    return absl::StrCat(text, "<p class=\"unknown\">Unknown: ", Text(answers.windows.status().message()), "</p></section>\n");
  }
  if (answers.windows->windows().empty()) {
    return text +
           "<p class=\"unknown\">No closed window is kept: none was closed yet, or the daemon keeps none of this job any more. "
           "The counts above are of the whole run all the same.</p></section>\n";
  }
  const std::vector<WindowGroup> groups = GroupWindows(*answers.windows, kMostColumns);
  const int64_t count = answers.windows->windows_size(), all = answers.stats.job().window_count();
  absl::StrAppend(&text, "<p class=\"quiet\">", count, count == 1 ? " window" : " windows", " of ", std::max(count, all),
                  groups.size() < static_cast<size_t>(count) ? ", some in each column" : ", a column each", ".</p>\n");
  return absl::StrCat(text, "<h3>Reductions of a window, against the intended ones</h3>\n", ReductionChart(groups),
                      "<h3>Time of a window: own and exposed</h3>\n", TimeChart(groups), GroupTable(groups), "</section>\n");
}

std::string TimelineSection(const ReportAnswers& answers) {
  std::string text = "<section><h2 id=\"timeline\">Timeline of windows, by rank</h2>\n";
  if (!answers.windows.ok() || answers.windows->windows().empty()) {
    return text + "<p class=\"unknown\">Unknown: no window is kept that could be drawn.</p></section>\n";
  }
  const v1::ListWindowsResponse& windows = *answers.windows;
  const Line line = LineOf(windows);
  if (!(line.length() > 0)) return text + "<p class=\"unknown\">The times of these windows are unknown.</p></section>\n";
  const std::map<int, std::vector<html::Span>> spans = SpansByRank(windows, line);
  const RankChoice choice = ChooseRanks(answers);
  std::vector<int> ranks;
  for (const RankReport& rank : choice.ranks) ranks.push_back(rank.stats->rank());
  std::sort(ranks.begin(), ranks.end());
  const int drawn = windows.windows_size() - line.first;
  absl::StrAppend(
      &text, "<p class=\"quiet\">The latest ", drawn == 1 ? "window" : absl::StrCat(drawn, " windows"), ", ",
      TimeText(line.length()), " in all. Gaps are what happens between windows: optimizer, logging, checkpoints, evaluation.",
      SeveralNodes(answers) ? " Each node's times are by its own clock: compare lengths across nodes, not edges." : "",
      choice.left_out > 0
          ? absl::StrCat(" Of ", answers.stats.ranks_size(), " ranks the ", kMostRanksDrawn, " that are worst or best.")
          : "",
      "</p>\n<div class=\"rows\">");
  bool flagged = false;
  for (const int rank : ranks) {
    const auto found = spans.find(rank);
    const std::vector<html::Span> of_rank = found == spans.end() ? std::vector<html::Span>{} : found->second;
    for (const html::Span& span : of_rank) flagged = flagged || span.flagged;
    absl::StrAppend(
        &text, "<span>rank ", rank, "</span>",
        html::SpanStrip(of_rank, line.length(),
                        absl::StrCat("rank ", rank, ": ", of_rank.size(), " windows over ", TimeText(line.length()))),
        "<span class=\"n\">", MeanText(of_rank), "</span>");
  }
  absl::StrAppend(&text, "<div class=\"x\" aria-hidden=\"true\"><span>0</span><span>", TimeText(line.length()),
                  "</span></div></div>\n");
  std::vector<std::pair<const char*, std::string>> legend = {
      {"own", "own (low)"}, {"exposed", "exposed communication (high), drawn at the window's end"}};
  if (flagged) legend.emplace_back("flag", "below: differs or failed");
  return absl::StrCat(text, html::Legend(legend), "</section>\n");
}

std::string RanksSection(const ReportAnswers& answers) {
  const RankChoice choice = ChooseRanks(answers);
  const std::vector<RankReport> all = RankReports(answers);
  std::string text =
      "<section><h2 id=\"ranks\">Ranks and stragglers</h2>\n<p class=\"quiet\">The mean window of each rank, the worst first: "
      "ended badly, named by the doctor, longest time of its own, which the others wait for.</p>\n";
  double most = 0;
  std::vector<double> own, exposed;
  for (const RankReport& rank : all) {
    if (!rank.seconds.has_value()) continue;
    most = std::max(most, rank.seconds->all());
    own.push_back(rank.seconds->own);
    exposed.push_back(rank.seconds->exposed);
  }
  if (most > 0) text += "<div class=\"rows\">";
  html::Table table("Ranks, the worst first", {{"rank"},
                                               {"state"},
                                               {"named by the doctor"},
                                               {"own", true},
                                               {"exposed", true},
                                               {"waits", true},
                                               {"over"},
                                               {"reductions a step", true},
                                               {"late windows", true},
                                               {"node"}});
  for (size_t i = 0; i < choice.ranks.size(); ++i) {
    const RankReport& rank = choice.ranks[i];
    const v1::RankStats& stats = *rank.stats;
    std::string named;
    for (const std::string& verdict : rank.verdicts) absl::StrAppend(&named, named.empty() ? "" : ", ", verdict);
    const bool bad = stats.state() == v1::STATE_LOST || stats.state() == v1::STATE_FAILED;
    if (most > 0) {
      if (i == choice.worst && choice.left_out > 0) text += Cut(choice.left_out);
      const WindowSeconds seconds = rank.seconds.value_or(WindowSeconds{});
      const std::string numbers = rank.seconds.has_value()
                                      ? absl::StrCat(TimeText(seconds.own), " own, ", TimeText(seconds.exposed), " exposed")
                                      : "unknown";
      absl::StrAppend(&text, "<span>rank ", stats.rank(), "</span>",
                      html::BarStrip({{"own", seconds.own}, {"exposed", seconds.exposed}}, most,
                                     absl::StrCat("rank ", stats.rank(), ": ", numbers)),
                      "<span class=\"n\">", numbers,
                      bad ? absl::StrCat(" <span class=\"badge critical\">", Text(Word(stats.state())), "</span>") : "",
                      named.empty() ? "" : absl::StrCat(" <span class=\"badge warning\">", Text(named), "</span>"), "</span>");
    }
    std::optional<double> own_s, exposed_s, wait_s;
    if (rank.seconds.has_value()) {
      own_s = rank.seconds->own;
      exposed_s = rank.seconds->exposed;
      wait_s = rank.seconds->wait;
    }
    table.AddRow({absl::StrCat(stats.rank()), Text(Word(stats.state())), named.empty() ? "-" : Text(named), TimeText(own_s),
                  TimeText(exposed_s), TimeText(wait_s),
                  absl::StrCat(rank.window_count, rank.whole_run ? " windows, the whole run" : " windows"),
                  CountText(PerStep(stats.totals().reduction_issued_count(), stats.totals())),
                  absl::StrCat(stats.totals().window_late_count()),
                  html::Name(stats.node_name().empty() ? stats.host_name() : stats.node_name())});
  }
  if (most > 0) {
    absl::StrAppend(&text, "</div>\n", html::Legend({{"own", "own"}, {"exposed", "exposed communication"}}));
  } else {
    text += "<p class=\"unknown\">The times of all ranks are unknown: no window was closed yet.</p>\n";
  }
  if (const auto spread = SpreadOf(own); spread.has_value() && own.size() > 1) {
    const Spread of_exposed = *SpreadOf(exposed);
    html::Table spreads(absl::StrCat("Spread over ", own.size(), " ranks"),
                        {{"of a window"}, {"least", true}, {"median", true}, {"9 of 10 below", true}, {"most", true}});
    spreads.AddRow({"own", TimeText(spread->least), TimeText(spread->median), TimeText(spread->p90), TimeText(spread->most)});
    spreads.AddRow({"exposed", TimeText(of_exposed.least), TimeText(of_exposed.median), TimeText(of_exposed.p90),
                    TimeText(of_exposed.most)});
    text += spreads.Take();
  }
  const std::string all_or = choice.left_out == 0
                                 ? "All ranks as a table"
                                 : absl::StrCat("These ", choice.ranks.size(), " of ", all.size(), " ranks as a table");
  return absl::StrCat(text, html::Details(all_or, table.Take()), "</section>\n");
}

}  // namespace gradgate::cli
