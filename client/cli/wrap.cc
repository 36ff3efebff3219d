#include "client/cli/wrap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gradgate::cli {
namespace {

constexpr absl::string_view kCommand = "gradgatectl ";
constexpr absl::string_view kCommandEnds = ";`";

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Bytes of the first `width` code points, or all.
size_t Prefix(absl::string_view text, size_t width) {
  size_t at = 0;
  while (at < text.size() && (width > 0 || Continues(text[at]))) {
    if (!Continues(text[at])) --width;
    ++at;
  }
  return at;
}

absl::string_view TrimRight(absl::string_view text) { return text.substr(0, text.find_last_not_of(' ') + 1); }
absl::string_view TrimLeft(absl::string_view text) { return text.substr(std::min(text.find_first_not_of(' '), text.size())); }

bool InCommand(absl::string_view text, size_t at) {
  const size_t begin = text.rfind(kCommand, at);
  return begin != absl::string_view::npos && text.find_first_of(kCommandEnds, begin) > at;  // npos: to the end of the line
}

// The last space up to `room` at which the line may be broken, else the first one behind it; npos: none.
size_t BreakAt(absl::string_view text, size_t room) {
  for (size_t at = text.rfind(' ', room); at != absl::string_view::npos && at > 0; at = text.rfind(' ', at - 1)) {
    if (!InCommand(text, at)) return at;
  }
  size_t at = text.find(' ', room);
  while (at != absl::string_view::npos && InCommand(text, at)) at = text.find(' ', at + 1);
  return at;
}

std::string WrapLine(absl::string_view line, size_t width, size_t hang) {
  const size_t begin = line.size() - TrimLeft(line).size();
  std::string text, margin(line.substr(0, begin));
  absl::string_view rest = line.substr(begin);
  while (margin.size() + Width(rest) > width) {
    const size_t at = BreakAt(rest, Prefix(rest, width > margin.size() ? width - margin.size() : 0));
    if (at == absl::string_view::npos) break;
    absl::StrAppend(&text, margin, TrimRight(rest.substr(0, at)), "\n");
    rest = TrimLeft(rest.substr(at));
    margin.assign(begin + hang, ' ');
  }
  return absl::StrCat(text, margin, rest);
}

}  // namespace

size_t Width(absl::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), Continues));
}

std::vector<std::string> Break(absl::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (Width(text) > width) {
    const size_t room = Prefix(text, width);
    const size_t space = text.rfind(' ', room), comma = room == 0 ? absl::string_view::npos : text.rfind(',', room - 1);
    size_t at = room;
    if (space != absl::string_view::npos && space > 0) at = space;
    if (comma != absl::string_view::npos && (at == room || comma + 1 > at)) at = comma + 1;
    lines.emplace_back(TrimRight(text.substr(0, at)));
    text = TrimLeft(text.substr(at));
  }
  if (!text.empty() || lines.empty()) lines.emplace_back(text);
  return lines;
}

std::string WrapLines(absl::string_view text, size_t width, size_t hang) {
  if (width == 0) return std::string(text);
  std::string wrapped;
  const bool ends = absl::ConsumeSuffix(&text, "\n");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) absl::StrAppend(&wrapped, WrapLine(line, width, hang), "\n");
  if (!ends) wrapped.pop_back();
  return wrapped;
}

}  // namespace gradgate::cli
