#include "client/cli/html/chart.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/html/escape.h"

namespace gradgate::cli::html {
namespace {

constexpr double kWidth = 1000;
constexpr double kHeight = 100;
constexpr double kFlagHeight = 4;
constexpr double kGapShare = 0.12;         // of a column's place
constexpr double kLeastWidth = 0.6;        // of a span, to be seen
constexpr double kLowTop = 26, kLow = 48;  // of a span's first part

std::string Open(double height, const char* css_class, absl::string_view label) {
  return absl::StrCat("<svg class=\"", css_class, "\" viewBox=\"0 0 ", Number(kWidth), " ", Number(height),
                      "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", Text(label), "\">");
}

std::string Rect(const char* css_class, double x, double y, double width, double height) {
  return absl::StrCat("<rect class=\"", css_class, "\" x=\"", Number(x), "\" y=\"", Number(y), "\" width=\"", Number(width),
                      "\" height=\"", Number(height), "\"/>");
}

std::string Box(double x, double y, double width, double height) {
  return absl::StrCat("M", Number(x), " ", Number(y), "h", Number(width), "v", Number(height), "h", Number(-width), "z");
}

std::string Path(const char* css_class, const std::string& data) {
  return data.empty() ? "" : absl::StrCat("<path class=\"", css_class, "\" d=\"", data, "\"/>");
}

}  // namespace

std::string ColumnChart(const std::vector<ChartColumn>& columns, double most, const ChartLabels& labels) {
  std::string svg = Open(kHeight + kFlagHeight, "columns", labels.label);
  const double place = kWidth / static_cast<double>(std::max<size_t>(1, columns.size()));
  const double gap = columns.size() == 1 ? 0 : place * kGapShare;
  std::string line;
  for (size_t i = 0; i < columns.size(); ++i) {
    const ChartColumn& column = columns[i];
    const double x = place * static_cast<double>(i);
    absl::StrAppend(&svg, "<g><title>", Text(column.title), "</title>", Rect("none", x, 0, place, kHeight));
    double y = kHeight;
    for (const Part& part : column.parts) {
      const double height = std::clamp(part.value / most * kHeight, 0.0, y);
      y -= height;
      if (height > 0) svg += Rect(part.css_class, x + gap / 2, y, place - gap, height);
    }
    if (column.flagged) svg += Rect("flag", x + gap / 2, kHeight + 1, place - gap, kFlagHeight - 1);
    svg += "</g>";
    if (column.mark >= 0) {
      absl::StrAppend(&line, "M", Number(x), " ", Number(kHeight - std::min(1.0, column.mark / most) * kHeight), "h",
                      Number(place));
    }
  }
  absl::StrAppend(&svg, Path("mark", line), "</svg>");
  return absl::StrCat("<div class=\"chart\"><div class=\"y\" aria-hidden=\"true\"><span>", Text(labels.top),
                      "</span><span>0</span></div>", svg, "<div class=\"x\" aria-hidden=\"true\"><span>", Text(labels.begin),
                      "</span><span>", Text(labels.end), "</span></div></div>\n");
}

std::string BarStrip(const std::vector<Part>& parts, double most, absl::string_view label) {
  std::string svg = Open(kHeight, "strip", label);
  double x = 0;
  for (const Part& part : parts) {
    const double width = std::clamp(part.value / most * kWidth, 0.0, kWidth - x);
    if (width > 0) svg += Rect(part.css_class, x, 0, width, kHeight);
    x += width;
  }
  return svg + "</svg>";
}

std::string SpanStrip(const std::vector<Span>& spans, double length, absl::string_view label) {
  std::string low, high, flags;
  for (const Span& span : spans) {
    const auto at = [&](double seconds) { return std::clamp(seconds / length, 0.0, 1.0) * kWidth; };
    const double begin = at(span.begin), end = std::max(at(span.end), begin + kLeastWidth),
                 split = std::clamp(at(span.split), begin, end);
    if (split > begin) low += Box(begin, kLowTop, split - begin, kLow);
    if (end > split) high += Box(split, 0, end - split, kHeight);
    if (span.flagged) flags += Box(begin, kHeight + 3, end - begin, 10);
  }
  return absl::StrCat(Open(kHeight + 14, "strip", label), Path("own", low), Path("exposed", high), Path("flag", flags),
                      "</svg>");
}

std::string Legend(const std::vector<std::pair<const char*, std::string>>& entries) {
  std::string list = "<ul class=\"legend\">";
  for (const auto& [css_class, words] : entries) {
    absl::StrAppend(&list, "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\">");
    if (absl::string_view(css_class) == "mark") {
      list += "<path class=\"mark\" d=\"M0 8h16\"/>";
    } else if (absl::string_view(css_class) == "flag") {
      list += Rect("flag", 0, 11, 16, 4);
    } else {
      list += Rect(css_class, 0, 2, 16, 12);
    }
    absl::StrAppend(&list, "</svg>", Text(words), "</li>");
  }
  return list + "</ul>\n";
}

}  // namespace gradgate::cli::html
