#include "daemon/doctor/words.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/shm/types.h"

namespace gradgate::doctor {
namespace {

constexpr int kMaxRuns = 8;

}  // namespace

std::string RankList(const RankSet& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  int runs = 0;
  for (auto at = ranks.begin(); at != ranks.end();) {
    if (++runs > kMaxRuns) return absl::StrCat(text, " and ", std::distance(at, ranks.end()), " more");
    const int64_t first = *at;
    int64_t last = first;
    while (++at != ranks.end() && *at == last + 1) ++last;
    absl::StrAppend(&text, runs == 1 ? " " : ", ", first);
    if (last > first) absl::StrAppend(&text, last == first + 1 ? ", " : "-", last);
  }
  return text;
}

std::string Count(int64_t count, const char* noun) { return absl::StrCat(count, " ", noun, count == 1 ? "" : "s"); }

std::string WindowSpan(int64_t first, int64_t last) {
  return first == last ? absl::StrCat("window ", first) : absl::StrCat("windows ", first, " to ", last);
}

std::string Span(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 0.001) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  if (seconds < 60) return absl::StrFormat("%.3g s", seconds);
  const int64_t whole = absl::ToInt64Seconds(duration);
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d min", whole / 3600, whole / 60 % 60);
}

std::string Bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  return absl::StrFormat("%.3g %s", bytes, kUnits[unit]);
}

std::string Number(double value) {
  std::string text = absl::StrFormat("%.2f", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string Word(v1::CollectiveOp op) { return std::string(Name(static_cast<CollectiveOp>(static_cast<int>(op) - 1))); }
std::string Word(v1::GroupRole role) { return std::string(Name(static_cast<GroupRole>(static_cast<int>(role) - 1))); }
std::string Word(v1::SyncMode mode) { return std::string(Name(static_cast<SyncMode>(static_cast<int>(mode)))); }
std::string Word(v1::Enforcement enforcement) {
  return std::string(Name(static_cast<Enforcement>(static_cast<int>(enforcement))));
}

std::string Shown(const std::string& untrusted, size_t max_bytes) {
  std::string text;
  for (const char c : untrusted) {
    const auto byte = static_cast<unsigned char>(c);
    if (text.size() >= max_bytes) return absl::StrCat(text, "...");
    text += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return text;
}

}  // namespace gradgate::doctor
