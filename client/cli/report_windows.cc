#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
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

}  // namespace

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

}  // namespace gradgate::cli
