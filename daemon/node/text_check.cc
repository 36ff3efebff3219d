#include "daemon/node/text_check.h"

#include <cstddef>
#include <cstdint>

namespace gradgate {
namespace {

// Bytes in the sequence that `lead` begins, 0 if none can begin with it.
size_t SequenceLength(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

bool IsAllowed(uint32_t code, size_t length) {
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10ffff) return false;
  if (code >= 0xd800 && code < 0xe000) return false;      // surrogates
  if (code == 0x2028 || code == 0x2029) return false;     // line and paragraph separator
  if (code >= 0x202a && code <= 0x202e) return false;     // would reorder what follows on a terminal
  if (code >= 0x2066 && code <= 0x2069) return false;     // likewise
  return code >= 0x20 && !(code >= 0x7f && code < 0xa0);  // control characters
}

}  // namespace

bool IsPrintableUtf8(absl::string_view text_untrusted) {
  for (size_t at = 0; at < text_untrusted.size();) {
    const auto lead = static_cast<uint8_t>(text_untrusted[at]);
    const size_t length = SequenceLength(lead);
    if (length == 0 || length > text_untrusted.size() - at) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t i = 1; i < length; ++i) {
      const auto next = static_cast<uint8_t>(text_untrusted[at + i]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fu);
    }
    if (!IsAllowed(code, length)) return false;
    at += length;
  }
  return true;
}

}  // namespace gradgate
