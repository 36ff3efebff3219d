#include "client/cli/html/escape.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/utf8.h"

namespace gradgate::cli::html {
namespace {

// Controls, and what is not seen but changes what is: zero width, direction, line separators, byte order mark, tags.
bool IsHidden(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0xad || code == 0x61c || (code >= 0x200b && code <= 0x200f) ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
         (code >= 0xfff9 && code <= 0xfffb) || (code >= 0xe0000 && code <= 0xe0fff);
}

}  // namespace

std::string Text(absl::string_view untrusted) {
  std::string text;
  while (!untrusted.empty()) {
    const Utf8Character first = FirstCharacter(untrusted);
    const absl::string_view bytes = untrusted.substr(0, first.byte_count);
    untrusted.remove_prefix(first.byte_count);
    if (first.code == kNoCharacter) {
      text += "\xef\xbf\xbd";
    } else if (IsHidden(first.code)) {
      absl::StrAppendFormat(&text, "\\x%02x", first.code);
    } else if (bytes == "&") {
      text += "&amp;";
    } else if (bytes == "<") {
      text += "&lt;";
    } else if (bytes == ">") {
      text += "&gt;";
    } else if (bytes == "\"") {
      text += "&quot;";
    } else if (bytes == "'") {
      text += "&#39;";
    } else {
      absl::StrAppend(&text, bytes);
    }
  }
  return text;
}

std::string Name(absl::string_view untrusted) { return absl::StrCat("<bdi>", Text(untrusted), "</bdi>"); }

std::string Sentence(absl::string_view untrusted) {
  std::string text = Text(untrusted);
  if (!text.empty()) text[0] = absl::ascii_toupper(static_cast<unsigned char>(text[0]));
  return text;
}

std::string Number(double value) {
  if (!std::isfinite(value)) return "0";
  std::string text = absl::StrFormat("%.2f", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

}  // namespace gradgate::cli::html
