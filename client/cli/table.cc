#include "client/cli/table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "client/cli/wrap.h"

namespace gradgate::cli {
namespace {

constexpr char kGap[] = "  ";
constexpr size_t kGapWidth = sizeof(kGap) - 1;

}  // namespace

Table::Table(std::vector<Column> columns, size_t width)
    : columns_(std::move(columns)), width_(width), dropped_(columns_.size(), false) {
  for (const Column& column : columns_) widths_.push_back(std::max(column.min_width, Width(column.title)));
}

void Table::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  for (size_t i = 0; i < widths_.size(); ++i) widths_[i] = std::max(widths_[i], Width(cells[i]));
  rows_.push_back(std::move(cells));
}

std::string Table::Header() {
  DropColumns();
  const std::vector<size_t> widths = ShownWidths();
  std::vector<std::string> titles, underlines;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    underlines.push_back(columns_[i].title.empty() ? "" : std::string(widths[i], '-'));
  }
  return Line(titles) + Line(underlines);
}

std::string Table::TakeRows() {
  std::string text;
  for (const auto& row : rows_) text += Line(row);
  rows_.clear();
  return text;
}

std::string Table::Note() const {
  std::string titles;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (dropped_[i] && !columns_[i].title.empty()) titles += (titles.empty() ? "" : ", ") + columns_[i].title;
  }
  return titles.empty() ? "" : "(left out: " + titles + "; a wider terminal, a pipe or --json has all)\n";
}

std::string Table::All() {
  std::string text = Header();
  text += TakeRows();
  return text + Note();
}

size_t Table::Least(size_t column) const {
  const size_t least = std::max({columns_[column].least, columns_[column].min_width, Width(columns_[column].title)});
  return columns_[column].least == 0 ? widths_[column] : std::min(least, widths_[column]);
}

void Table::DropColumns() {
  while (width_ > 0) {
    size_t needed = 0, drop = 0;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (dropped_[i]) continue;
      needed += Least(i) + (needed == 0 ? 0 : kGapWidth);
      if (columns_[i].drop > columns_[drop].drop || dropped_[drop]) drop = i;
    }
    if (needed <= width_ || columns_[drop].drop == 0) return;
    dropped_[drop] = true;
    if (drop + 1 < columns_.size() && columns_[drop + 1].title.empty()) {
      Column& heir = columns_[drop + 1];
      heir.title.swap(columns_[drop].title);
      heir.align = Align::kRight;
      widths_[drop + 1] = std::max(widths_[drop + 1], Width(heir.title));
    }
  }
}

// What the columns that cannot be broken leave is shared by the others, the first ones first.
std::vector<size_t> Table::ShownWidths() const {
  std::vector<size_t> widths = widths_;
  size_t needed = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (!dropped_[i]) needed += widths[i] + (needed == 0 ? 0 : kGapWidth);
  }
  for (size_t i = columns_.size(); width_ > 0 && i-- > 0 && needed > width_;) {
    if (dropped_[i]) continue;
    const size_t less = std::min(needed - width_, widths[i] - Least(i));
    widths[i] -= less;
    needed -= less;
  }
  return widths;
}

std::string Table::Line(const std::vector<std::string>& cells) const {
  const std::vector<size_t> widths = ShownWidths();
  std::vector<std::vector<std::string>> broken;
  size_t lines = 1;
  for (size_t i = 0; i < columns_.size(); ++i) {
    broken.push_back(Width(cells[i]) > widths[i] ? Break(cells[i], widths[i]) : std::vector<std::string>{cells[i]});
    if (!dropped_[i]) lines = std::max(lines, broken.back().size());
  }
  std::string text;
  for (size_t l = 0; l < lines; ++l) {
    std::string line;
    bool first = true;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (dropped_[i]) continue;
      if (!first) line += kGap;
      first = false;
      const std::string cell = l < broken[i].size() ? broken[i][l] : "";
      const std::string fill(widths[i] - std::min(widths[i], Width(cell)), ' ');
      line += columns_[i].align == Align::kRight ? fill + cell : cell + fill;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace gradgate::cli
