// Whether untrusted text may be shown to people and written into labels. A pure function over bytes.

#ifndef GRADGATE_DAEMON_NODE_TEXT_CHECK_H_
#define GRADGATE_DAEMON_NODE_TEXT_CHECK_H_

#include "absl/strings/string_view.h"

namespace gradgate {

// True for well-formed UTF-8 (shortest form, no surrogates, up to U+10FFFF) without control characters (C1 included) and
// without those that break a line or reorder text. Empty is fine.
bool IsPrintableUtf8(absl::string_view text_untrusted);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_TEXT_CHECK_H_
