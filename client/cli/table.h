// Aligned plain-text tables for people: a title line, an underline, rows; numbers to the right.
//
// Widths grow with what was added and never shrink, so that rows can be taken as they come. Widths count code points.
// One thread.

#ifndef GRADGATE_CLIENT_CLI_TABLE_H_
#define GRADGATE_CLIENT_CLI_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace gradgate::cli {

enum class Align { kLeft, kRight };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kRight;
    size_t min_width = 0;  // for rows that come later
  };

  explicit Table(std::vector<Column> columns);

  // As many cells as there are columns. They are shown as they are: text that came from outside goes through Printable first.
  void AddRow(std::vector<std::string> cells);

  // Titles and underline, as wide as the rows added so far.
  std::string Header() const;

  // The rows added since the last call.
  std::string TakeRows();

 private:
  std::string Line(const std::vector<std::string>& cells) const;

  std::vector<Column> columns_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TABLE_H_
