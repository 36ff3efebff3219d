#include "shim/reduce/arrival_board.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include "shim/core/ballot.h"
#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr int64_t kMs = 1'000'000;

// "window round text"; text is empty while the rank lives.
struct Note {
  uint64_t window = 0;
  uint64_t round = 0;
  std::string left;
};

Note Parse(const std::string& value) {
  Note note;
  const char* const end = value.data() + value.size();
  const auto window = std::from_chars(value.data(), end, note.window);
  if (window.ec != std::errc{} || window.ptr == end) return {};
  const auto round = std::from_chars(window.ptr + 1, end, note.round);
  if (round.ptr < end && *round.ptr == ' ') note.left = std::string(round.ptr + 1, end);
  return note;
}

}  // namespace

ArrivalBoard::ArrivalBoard(Store* store, std::string prefix, uint32_t rank, uint32_t world_size)
    : store_(store), prefix_(std::move(prefix)), rank_(rank), world_size_(world_size) {}

void ArrivalBoard::Arrived(uint64_t window, uint64_t round, int64_t timeout_ns) {
  // A store that is gone only costs the others our name.
  (void)store_->Set(Key(rank_), std::to_string(window) + " " + std::to_string(round), timeout_ns);
}

void ArrivalBoard::Left(uint64_t window, const std::string& why, int64_t timeout_ns) {
  (void)store_->Set(Key(rank_), std::to_string(window) + " 0 " + why, timeout_ns);
}

std::string ArrivalBoard::DescribeMissing(uint64_t window, uint64_t round, int64_t budget_ns) {
  const int64_t end_ns = MonotonicNs() + budget_ns;
  std::vector<std::string> seen(world_size_);
  std::set<uint32_t> missing;
  for (uint32_t rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_) missing.insert(rank);
  }
  // Ranks that still may arrive are asked again until the time is over; one that left will not come.
  while (true) {
    bool waiting = false;
    for (auto it = missing.begin(); it != missing.end();) {
      const uint32_t rank = *it++;
      const int64_t left_ns = end_ns - MonotonicNs();
      std::string value;
      if (!store_->Get(Key(rank), std::clamp<int64_t>(left_ns, kMs, 5 * kMs), &value).ok()) {
        waiting = true;
        continue;
      }
      const Note note = Parse(value);
      if (!note.left.empty()) {
        seen[rank] = "left in window " + std::to_string(note.window) + ": " + note.left;
      } else if (std::pair(note.window, note.round) >= std::pair(window, round)) {
        missing.erase(rank);
      } else {
        seen[rank] = "last seen waiting in window " + std::to_string(note.window);
        waiting = true;
      }
    }
    if (missing.empty()) return "";
    if (!waiting || MonotonicNs() >= end_ns) break;
    // A rank that has written an older note answers at once, so Get alone would spin.
    const timespec pause{0, 2 * kMs};
    nanosleep(&pause, nullptr);
  }
  std::string text = "ranks " + FormatRanks({missing.begin(), missing.end()}) + " did not come";
  const char* separator = " (";
  for (uint32_t rank : missing) {
    if (seen[rank].empty()) continue;
    text += separator + std::string("rank ") + std::to_string(rank) + ": " + seen[rank];
    separator = "; ";
  }
  if (separator[0] == ';') text += ")";
  return text;
}

}  // namespace gradgate
