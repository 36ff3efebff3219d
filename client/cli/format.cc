#include "client/cli/format.h"

#include <array>
#include <functional>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace gradgate::cli {
namespace {

std::string NameToWord(absl::string_view name, absl::string_view prefix, int value) {
  if (name.empty()) return absl::StrCat(value);
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

}  // namespace

std::string Printable(absl::string_view untrusted) {
  std::string text;
  for (size_t i = 0; i < untrusted.size(); ++i) {
    const auto byte = static_cast<unsigned char>(untrusted[i]);
    const auto next = i + 1 < untrusted.size() ? static_cast<unsigned char>(untrusted[i + 1]) : 0u;
    if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&text, "\\x%02x", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080–U+009F, control characters to some terminals
      absl::StrAppendFormat(&text, "\\x%02x", next);
      ++i;
    } else {
      text += untrusted[i];
    }
  }
  return text;
}

std::string HumanBytes(int64_t bytes) {
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  static constexpr std::array kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", decimals, value, kUnits[unit]);
}

std::string HumanDuration(absl::Duration duration) {
  if (duration < absl::ZeroDuration()) duration = absl::ZeroDuration();
  if (duration < absl::Seconds(9.95)) return absl::StrFormat("%.1fs", absl::ToDoubleSeconds(duration));
  const int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  const int64_t minutes = seconds / 60;
  if (minutes < 60) return absl::StrFormat("%dm%02ds", minutes, seconds % 60);
  const int64_t hours = minutes / 60;
  if (hours < 24) return absl::StrFormat("%dh%02dm", hours, minutes % 60);
  return absl::StrFormat("%dd%02dh", hours / 24, hours % 24);
}

std::string Seconds(const google::protobuf::Duration& duration) {
  return absl::StrFormat("%.3f", absl::ToDoubleSeconds(ToDuration(duration)));
}

std::string Milliseconds(const google::protobuf::Duration& duration) {
  return absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(ToDuration(duration)));
}

absl::Duration ToDuration(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

std::string UtcTime(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%SZ", ToTime(time), absl::UTCTimeZone());
}

std::string Ratio(int64_t dividend, int64_t divisor) {
  if (divisor == 0) return "-";
  return absl::StrFormat("%.2f", static_cast<double>(dividend) / static_cast<double>(divisor));
}

std::string Word(v1::State state) { return NameToWord(v1::State_Name(state), "STATE_", state); }
std::string Word(v1::SyncMode mode) { return NameToWord(v1::SyncMode_Name(mode), "SYNC_MODE_", mode); }
std::string Word(v1::GroupRole role) { return NameToWord(v1::GroupRole_Name(role), "GROUP_ROLE_", role); }
std::string Word(v1::CollectiveOp op) { return NameToWord(v1::CollectiveOp_Name(op), "COLLECTIVE_OP_", op); }
std::string Word(v1::WindowKind kind) { return NameToWord(v1::WindowKind_Name(kind), "WINDOW_KIND_", kind); }
std::string Word(v1::Enforcement enforcement) {
  return NameToWord(v1::Enforcement_Name(enforcement), "ENFORCEMENT_", enforcement);
}

std::string Ranks(const std::set<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (auto it = ranks.begin(); it != ranks.end();) {
    const int first = *it;
    int last = first;
    while (++it != ranks.end() && *it == last + 1) last = *it;
    if (first != *ranks.begin()) text += ",";
    absl::StrAppend(&text, first);
    if (last != first) absl::StrAppend(&text, "-", last);
  }
  return text;
}

std::string CountsByRank(const std::map<int, int64_t>& counts) {
  std::map<int64_t, std::set<int>, std::greater<int64_t>> by_count;
  for (const auto& [rank, count] : counts) {
    if (count != 0) by_count[count].insert(rank);
  }
  std::vector<std::string> parts;
  for (const auto& [count, ranks] : by_count) parts.push_back(absl::StrCat(count, " on ", Ranks(ranks)));
  return absl::StrJoin(parts, ", ");
}

}  // namespace gradgate::cli
