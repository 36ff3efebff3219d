// Text and numbers in HTML. Pure functions; any thread.

#ifndef GRADGATE_CLIENT_CLI_HTML_ESCAPE_H_
#define GRADGATE_CLIENT_CLI_HTML_ESCAPE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gradgate::cli::html {

// Text from anywhere as text between tags or in a quoted attribute: nothing of it is markup, control characters are shown as
// \xNN, and so are those that reverse or hide text; what is not UTF-8 is U+FFFD.
std::string Text(absl::string_view untrusted);

// A name that somebody else chose, kept from changing the direction of what stands beside it.
std::string Name(absl::string_view untrusted);

// As Text, with a capital at its begin: what is a line for a terminal is a sentence here.
std::string Sentence(absl::string_view untrusted);

// A coordinate: at most two decimals, no exponent.
std::string Number(double value);

}  // namespace gradgate::cli::html

#endif  // GRADGATE_CLIENT_CLI_HTML_ESCAPE_H_
