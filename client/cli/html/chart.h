// Charts as SVG that is stretched to the width of the page, with their labels beside them in HTML, so that letters are never
// stretched nor too small for a telephone. No scripts. Pure functions; any thread.
//
// `label` and `title` are plain text that is escaped here; `css_class` names one of the fills of style.h.

#ifndef GRADGATE_CLIENT_CLI_HTML_CHART_H_
#define GRADGATE_CLIENT_CLI_HTML_CHART_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gradgate::cli::html {

struct Part {
  const char* css_class;
  double value;
};

// One column of a chart: its parts, the lowest first, and what it says when it is pointed at.
struct ChartColumn {
  std::vector<Part> parts;
  double mark = -1;  // where a line crosses it; negative: nowhere
  bool flagged = false;
  std::string title;
};

struct ChartLabels {
  std::string label;  // the whole chart in a sentence, for those who do not see it
  std::string top;    // of the highest value
  std::string begin, end;
};

// `most`: the highest value; positive.
std::string ColumnChart(const std::vector<ChartColumn>& columns, double most, const ChartLabels& labels);

// One bar of parts beside each other; `most` is its full width.
std::string BarStrip(const std::vector<Part>& parts, double most, absl::string_view label);

// A window of a rank on a line of time, in seconds from its left end.
struct Span {
  double begin, split, end;  // what is behind `split` is drawn higher
  bool flagged = false;
};

// `length`: seconds of the whole line; positive.
std::string SpanStrip(const std::vector<Span>& spans, double length, absl::string_view label);

// What the fills mean: a swatch and words each.
std::string Legend(const std::vector<std::pair<const char*, std::string>>& entries);

}  // namespace gradgate::cli::html

#endif  // GRADGATE_CLIENT_CLI_HTML_CHART_H_
