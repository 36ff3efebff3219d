#include "client/cli/top_keys.h"

#include <optional>

namespace gradgate::cli {
namespace {

constexpr char kEscape = '\x1b';
constexpr size_t kLongestSequence = 16;  // what is longer was no key

std::optional<TopKeyPress> OfCharacter(char c) {
  switch (c) {
    case 'q':
    case 'Q':
    case '\x03':  // Ctrl-C and Ctrl-D, where the terminal makes no signal of them
    case '\x04':
      return TopKeyPress::kQuit;
    case 'k':
      return TopKeyPress::kUp;
    case 'j':
      return TopKeyPress::kDown;
    case ' ':
      return TopKeyPress::kPageDown;
    case 'b':
      return TopKeyPress::kPageUp;
    case 's':
      return TopKeyPress::kSort;
    case 'p':
      return TopKeyPress::kPause;
    default:
      return std::nullopt;
  }
}

// `sequence`: without the escape.
std::optional<TopKeyPress> OfSequence(absl::string_view sequence) {
  if (sequence == "[A" || sequence == "OA") return TopKeyPress::kUp;
  if (sequence == "[B" || sequence == "OB") return TopKeyPress::kDown;
  if (sequence == "[5~") return TopKeyPress::kPageUp;
  if (sequence == "[6~") return TopKeyPress::kPageDown;
  return std::nullopt;
}

// "[", then parameters up to a byte from 0x40 on; "O" and one byte; any other single byte.
bool Ends(absl::string_view sequence) {
  if (sequence.size() < 2) return !sequence.empty() && sequence[0] != '[' && sequence[0] != 'O';
  return sequence[0] == 'O' || sequence.back() >= 0x40;
}

}  // namespace

std::vector<TopKeyPress> TopKeys::Take(absl::string_view bytes) {
  std::vector<TopKeyPress> keys;
  for (const char c : bytes) {
    std::optional<TopKeyPress> key;
    if (c == kEscape) {
      sequence_ = c;
    } else if (!sequence_.empty()) {
      sequence_ += c;
      const absl::string_view body = absl::string_view(sequence_).substr(1);
      if (Ends(body)) {
        key = OfSequence(body);
        sequence_.clear();
      } else if (body.size() > kLongestSequence) {
        sequence_.clear();
      }
    } else {
      key = OfCharacter(c);
    }
    if (key.has_value()) keys.push_back(*key);
  }
  return keys;
}

}  // namespace gradgate::cli
