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

constexpr char kGaveUp[] = "gave up";

// "window round text"; text is empty while the rank waits.
struct Note {
  uint64_t window = 0;
  uint64_t round = 0;
  std::string text;
};

Note Parse(const std::string& value) {
  Note note;
  const char* const end = value.data() + value.size();
  const auto window = std::from_chars(value.data(), end, note.window);
  if (window.ec != std::errc{} || window.ptr == end) return {};
  const auto round = std::from_chars(window.ptr + 1, end, note.round);
  if (round.ptr < end && *round.ptr == ' ') note.text = std::string(round.ptr + 1, end);
  return note;
}

std::string Describe(const std::set<uint32_t>& missing, const std::set<uint32_t>& silent,
                     const std::vector<std::string>& seen) {
  std::string text;
  if (!missing.empty()) {
    text = "ranks " + FormatRanks({missing.begin(), missing.end()}) + " did not come";
    const char* separator = " (";
    for (uint32_t rank : missing) {
      if (seen[rank].empty()) continue;
      text += separator + std::string("rank ") + std::to_string(rank) + ": " + seen[rank];
      separator = "; ";
    }
    if (separator[0] == ';') text += ")";
  }
  if (!silent.empty()) {
    text += (text.empty() ? "ranks " : "; ranks ") + FormatRanks({silent.begin(), silent.end()}) + " came and then fell silent";
  }
  return text;
}

}  // namespace

ArrivalBoard::ArrivalBoard(Store* store, std::string prefix, uint32_t rank, uint32_t world_size)
    : store_(store), prefix_(std::move(prefix)), rank_(rank), world_size_(world_size) {}

void ArrivalBoard::Arrived(uint64_t window, uint64_t round, int64_t timeout_ns) {
  // A store that is gone only costs the others our name.
  (void)store_->Set(Key(rank_), std::to_string(window) + " " + std::to_string(round), timeout_ns);
}

void ArrivalBoard::GaveUp(uint64_t window, uint64_t round, int64_t timeout_ns) {
  (void)store_->Set(Key(rank_), std::to_string(window) + " " + std::to_string(round) + " " + kGaveUp, timeout_ns);
}

void ArrivalBoard::Left(uint64_t window, const std::string& why, int64_t timeout_ns) {
  (void)store_->Set(Key(rank_), std::to_string(window) + " 0 " + why, timeout_ns);
}

std::string ArrivalBoard::DescribeMissing(uint64_t window, uint64_t round, int64_t budget_ns) {
  const int64_t end_ns = MonotonicNs() + budget_ns;
  std::vector<std::string> seen(world_size_);
  std::set<uint32_t> missing, silent;
  for (uint32_t rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_) missing.insert(rank);
  }
  // Ranks that may still give up are asked again until the time is over; one that left will not.
  for (bool waiting = true; waiting;) {
    waiting = false;
    std::set<uint32_t> open = missing;
    open.insert(silent.begin(), silent.end());
    for (const uint32_t rank : open) {
      std::string value;
      const bool there = store_->Get(Key(rank), std::clamp<int64_t>(end_ns - MonotonicNs(), kMs, 5 * kMs), &value).ok();
      const Note note = there ? Parse(value) : Note{};
      const bool arrived = there && std::pair(note.window, note.round) >= std::pair(window, round);
      if (note.text == kGaveUp) {
        missing.erase(rank);
        silent.erase(rank);
      } else if (!note.text.empty()) {
        seen[rank] = "left in window " + std::to_string(note.window) + ": " + note.text;
      } else {
        waiting = true;
        if (there) seen[rank] = "last seen waiting in window " + std::to_string(note.window);
        if (arrived && missing.erase(rank)) silent.insert(rank);
      }
    }
    waiting = waiting && MonotonicNs() < end_ns;
    // A rank that has written an older note answers at once, so Get alone would spin.
    const timespec pause{0, 2 * kMs};
    if (waiting) nanosleep(&pause, nullptr);
  }
  return Describe(missing, silent, seen);
}

}  // namespace gradgate
