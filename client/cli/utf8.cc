#include "client/cli/utf8.h"

namespace gradgate::cli {

Utf8Character FirstCharacter(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t byte_count = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < byte_count) return {};
  uint32_t code = first & (0x7fu >> byte_count);
  for (size_t i = 1; i < byte_count; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = byte_count == 3 ? code < 0x800 : byte_count == 4 && code < 0x10000;
  if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, byte_count};
}

}  // namespace gradgate::cli
