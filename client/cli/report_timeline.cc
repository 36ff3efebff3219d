#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/format.h"
#include "client/cli/html/chart.h"
#include "client/cli/report_sections.h"

namespace gradgate::cli {
namespace {

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

bool SeveralNodes(const ReportAnswers& answers) {
  std::set<std::string> nodes;
  for (const v1::RankStats& rank : answers.stats.ranks()) nodes.insert(rank.node_name());
  return nodes.size() > 1;
}

}  // namespace

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

}  // namespace gradgate::cli
