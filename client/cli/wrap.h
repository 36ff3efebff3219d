// Breaks text into lines no wider than a terminal. Widths count code points. Pure functions; any thread.

#ifndef GRADGATE_CLIENT_CLI_WRAP_H_
#define GRADGATE_CLIENT_CLI_WRAP_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gradgate::cli {

// Columns on a terminal, if each code point takes one.
size_t Width(absl::string_view text);

// Lines of `text`, broken at spaces, which go, and behind commas; a word that is wider is broken where it must be. At least one
// line. `width`: at least 1.
std::vector<std::string> Break(absl::string_view text, size_t width);

// Breaks each line that is wider than `width` at spaces; what follows stands `hang` columns further to the right than the line
// begins. Words are never broken, since they may be addresses, nor is a command: from "gradgatectl " to a semicolon, a backtick
// or the end of its line is one word. 0: as it is.
inline constexpr size_t kHang = 2;
std::string WrapLines(absl::string_view text, size_t width, size_t hang = kHang);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_WRAP_H_
