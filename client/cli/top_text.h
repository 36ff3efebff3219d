// Text as cells of a terminal: nothing that a trainer or another daemon wrote reaches it but as printable characters of known
// width. Pure but for wcwidth, which takes the process's locale; any thread once that is set.

#ifndef GRADGATE_CLIENT_CLI_TOP_TEXT_H_
#define GRADGATE_CLIENT_CLI_TOP_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace gradgate::cli {

enum class Charset { kAscii, kUtf8 };

// Sets the process's locale for characters from the environment, and tells what it has. Before other threads are there.
Charset UseLocale();

// `text` with a "?" for each character that is no printable one of `charset`: control characters, invalid UTF-8, marks without
// a width, which includes those that reverse text.
std::string Cells(absl::string_view text, Charset charset);

// Columns that it takes. `cells`: made by Cells.
size_t CellWidth(absl::string_view cells);

// Cut to `columns`; where something is cut, the last column says so.
std::string Clip(std::string cells, size_t columns, Charset charset);

// A bar of `columns` cells, `share` of them full; a share outside 0 to 1 is the nearer end.
std::string Bar(double share, size_t columns, Charset charset);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_TEXT_H_
