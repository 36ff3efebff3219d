// How a report looks: light and dark by what the reader's system prefers, on paper, on a telephone.
//
// Fills after Okabe and Ito, darker or lighter than theirs where 3:1 against the page needs it; the two that stand beside each
// other differ in lightness, too. Text has at least 4.5:1.

#ifndef GRADGATE_CLIENT_CLI_HTML_STYLE_H_
#define GRADGATE_CLIENT_CLI_HTML_STYLE_H_

namespace gradgate::cli::html {

extern const char kStyle[];

}  // namespace gradgate::cli::html

#endif  // GRADGATE_CLIENT_CLI_HTML_STYLE_H_
