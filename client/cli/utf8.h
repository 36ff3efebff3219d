// Untrusted UTF-8, a character at a time. Pure functions; any thread.

#ifndef GRADGATE_CLIENT_CLI_UTF8_H_
#define GRADGATE_CLIENT_CLI_UTF8_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace gradgate::cli {

inline constexpr uint32_t kNoCharacter = UINT32_MAX;

struct Utf8Character {
  uint32_t code = kNoCharacter;  // kNoCharacter: not UTF-8
  size_t byte_count = 1;         // to go on behind
};

// The first one of `text`, which is not empty. Overlong forms, surrogates and codes above U+10FFFF are not UTF-8.
Utf8Character FirstCharacter(absl::string_view text);

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_UTF8_H_
