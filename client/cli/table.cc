#include "client/cli/table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace gradgate::cli {
namespace {

constexpr char kGap[] = "  ";

size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (const Column& column : columns_) widths_.push_back(std::max(column.min_width, Width(column.title)));
}

void Table::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  for (size_t i = 0; i < widths_.size(); ++i) widths_[i] = std::max(widths_[i], Width(cells[i]));
  rows_.push_back(std::move(cells));
}

std::string Table::Header() const {
  std::vector<std::string> titles, underlines;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    underlines.push_back(columns_[i].title.empty() ? "" : std::string(widths_[i], '-'));
  }
  return Line(titles) + Line(underlines);
}

std::string Table::TakeRows() {
  std::string text;
  for (const auto& row : rows_) text += Line(row);
  rows_.clear();
  return text;
}

std::string Table::Line(const std::vector<std::string>& cells) const {
  std::string line;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) line += kGap;
    const std::string fill(widths_[i] - Width(cells[i]), ' ');
    line += columns_[i].align == Align::kRight ? fill + cells[i] : cells[i] + fill;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace gradgate::cli
