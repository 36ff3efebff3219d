// A table in HTML, which scrolls in its own box where a screen is narrower. One thread per object.

#ifndef GRADGATE_CLIENT_CLI_HTML_TABLE_H_
#define GRADGATE_CLIENT_CLI_HTML_TABLE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gradgate::cli::html {

class Table {
 public:
  struct Column {
    std::string title;  // HTML, as are all cells
    bool number = false;
  };

  // `caption`: what it shows, for people and screen readers; plain words, without markup.
  Table(std::string caption, std::vector<Column> columns);

  // As many cells as there are columns; the first one names the row. `css_class`: of the row, may be empty.
  void AddRow(const std::vector<std::string>& cells, absl::string_view css_class = "");

  bool empty() const { return rows_.empty(); }
  std::string Take() const;

 private:
  const std::string caption_;
  const std::vector<Column> columns_;
  std::string rows_;
};

// `inner` behind a line that opens it.
std::string Details(absl::string_view summary, absl::string_view inner);

}  // namespace gradgate::cli::html

#endif  // GRADGATE_CLIENT_CLI_HTML_TABLE_H_
