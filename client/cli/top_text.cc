#include "client/cli/top_text.h"

#include <langinfo.h>

#include <algorithm>
#include <clocale>
#include <cmath>
#include <cwchar>

#include "absl/strings/str_cat.h"
#include "client/cli/utf8.h"

namespace gradgate::cli {
namespace {

constexpr char kFullBlock[] = "█", kEmptyBlock[] = "░", kEllipsis[] = "…";

int ColumnsOf(uint32_t code) {
  if (code < 0x80) return code >= 0x20 && code != 0x7f ? 1 : -1;
  return code == kNoCharacter ? -1 : wcwidth(static_cast<wchar_t>(code));
}

}  // namespace

Charset UseLocale() {
  std::setlocale(LC_CTYPE, "");
  return absl::string_view(nl_langinfo(CODESET)) == "UTF-8" ? Charset::kUtf8 : Charset::kAscii;
}

std::string Cells(absl::string_view text, Charset charset) {
  std::string cells;
  while (!text.empty()) {
    const Utf8Character first = FirstCharacter(text);
    const bool shown = ColumnsOf(first.code) > 0 && (charset == Charset::kUtf8 || first.code < 0x80);
    absl::StrAppend(&cells, shown ? text.substr(0, first.byte_count) : "?");
    text.remove_prefix(first.byte_count);
  }
  return cells;
}

size_t CellWidth(absl::string_view cells) {
  size_t columns = 0;
  while (!cells.empty()) {
    const Utf8Character first = FirstCharacter(cells);
    columns += static_cast<size_t>(std::max(0, ColumnsOf(first.code)));
    cells.remove_prefix(first.byte_count);
  }
  return columns;
}

std::string Clip(std::string cells, size_t columns, Charset charset) {
  if (CellWidth(cells) <= columns) return cells;
  if (columns == 0) return "";
  size_t kept = 0;
  for (size_t used = 0;;) {
    const absl::string_view rest = absl::string_view(cells).substr(kept);
    const Utf8Character first = FirstCharacter(rest);
    used += static_cast<size_t>(std::max(0, ColumnsOf(first.code)));
    if (used > columns - 1) break;
    kept += first.byte_count;
  }
  cells.resize(kept);
  return cells + (charset == Charset::kUtf8 ? kEllipsis : "~");
}

std::string Bar(double share, size_t columns, Charset charset) {
  const auto full = static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(columns)));
  std::string bar;
  for (size_t i = 0; i < columns; ++i) {
    if (charset == Charset::kUtf8) {
      bar += i < full ? kFullBlock : kEmptyBlock;
    } else {
      bar += i < full ? '#' : '.';
    }
  }
  return bar;
}

}  // namespace gradgate::cli
