#include "client/cli/html/table.h"

#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gradgate::cli::html {

Table::Table(std::string caption, std::vector<Column> columns) : caption_(std::move(caption)), columns_(std::move(columns)) {}

void Table::AddRow(const std::vector<std::string>& cells, absl::string_view css_class) {
  assert(cells.size() == columns_.size());
  absl::StrAppend(&rows_, css_class.empty() ? "<tr>" : absl::StrCat("<tr class=\"", css_class, "\">"));
  for (size_t i = 0; i < cells.size(); ++i) {
    const char* const css = columns_[i].number ? " class=\"n\"" : "";
    if (i == 0) {
      absl::StrAppend(&rows_, "<th scope=\"row\"", css, ">", cells[i], "</th>");
    } else {
      absl::StrAppend(&rows_, "<td", css, ">", cells[i], "</td>");
    }
  }
  rows_ += "</tr>\n";
}

std::string Table::Take() const {
  std::string head;
  for (const Column& column : columns_) {
    absl::StrAppend(&head, "<th scope=\"col\"", column.number ? " class=\"n\">" : ">", column.title, "</th>");
  }
  return absl::StrCat("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", caption_, "\"><table><caption>",
                      caption_, "</caption><thead><tr>", head, "</tr></thead><tbody>\n", rows_, "</tbody></table></div>\n");
}

std::string Details(absl::string_view summary, absl::string_view inner) {
  return absl::StrCat("<details><summary>", summary, "</summary>\n", inner, "</details>\n");
}

}  // namespace gradgate::cli::html
