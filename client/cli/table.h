// Aligned plain-text tables for people: a title line, an underline, rows; numbers to the right.
//
// Widths grow with what was added and never shrink, so that rows can be taken as they come. Widths count code points.
// A table that may not be wider than `width` first breaks the cells of columns that may be narrower over several lines, then
// leaves out columns, the ones with the largest `drop` first; which, is settled by the first Header(). One thread.

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
    int drop = 0;          // larger: left out sooner; 0: never
    size_t least = 0;      // its cells may be broken to this width; 0: never
    // A column without a title takes the place, and the title, of one before it that is left out.
  };

  // `width`: of a line; 0: any.
  explicit Table(std::vector<Column> columns, size_t width = 0);

  // As many cells as there are columns. They are shown as they are: text that came from outside goes through Printable first.
  void AddRow(std::vector<std::string> cells);

  // Titles and underline, as wide as the rows added so far.
  std::string Header();

  // The rows added since the last call.
  std::string TakeRows();

  // A line that says which columns Header left out; empty if none.
  std::string Note() const;

  // Header, rows, and a line about what was left out.
  std::string All();

 private:
  size_t Least(size_t column) const;
  std::vector<size_t> ShownWidths() const;
  void DropColumns();
  std::string Line(const std::vector<std::string>& cells) const;

  std::vector<Column> columns_;
  const size_t width_;
  std::vector<size_t> widths_;  // of what was added
  std::vector<bool> dropped_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TABLE_H_
