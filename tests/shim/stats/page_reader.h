// tests/shim/stats
// A reader of the ring and of window records as the page's header prescribes it.

#ifndef GRADGATE_TESTS_SHIM_STATS_PAGE_READER_H_
#define GRADGATE_TESTS_SHIM_STATS_PAGE_READER_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>

#include "proto/shm/stats_page.h"

namespace gradgate::test {

// The sequence and the words of one slot, consistent; nothing if it is torn or was never written.
template <size_t kWords>
struct SlotCopy {
  uint64_t index;
  uint64_t words[kWords];
};

template <size_t kWords, typename WordAt>
std::optional<SlotCopy<kWords>> CopySlot(const page::U64& sequence, WordAt word_at) {
  for (uint32_t retry = 0; retry < page::kReadRetries; ++retry) {
    const uint64_t before = sequence.load(std::memory_order_acquire);
    if (before == 0 || before % 2 != 0) continue;
    SlotCopy<kWords> copy{before / 2 - 1, {}};
    for (size_t i = 0; i < kWords; ++i) copy.words[i] = word_at(i).load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (sequence.load(std::memory_order_relaxed) == before) return copy;
  }
  return std::nullopt;
}

inline std::optional<page::Event> ReadEvent(const page::StatsPage& page, uint64_t index) {
  const page::EventSlot& slot = page.events[index % page::kEventSlots];
  const page::U64* words[] = {&slot.time_ns, &slot.what, &slot.value};
  const auto copy = CopySlot<3>(slot.sequence, [&](size_t i) -> const page::U64& { return *words[i]; });
  if (!copy) return std::nullopt;
  const uint64_t what = copy->words[1];
  return page::Event{copy->index,
                     copy->words[0],
                     static_cast<EventKind>(what & 0xff),
                     static_cast<GroupRole>(what >> 8 & 0xf),
                     static_cast<CollectiveOp>(what >> 12 & 0xf),
                     static_cast<TrafficClass>(what >> 16 & 3),
                     static_cast<uint32_t>(what >> 32),
                     copy->words[2]};
}

// By closing order.
inline std::optional<page::WindowRecord> ReadWindow(const page::StatsPage& page, uint64_t index) {
  const page::WindowSlot& slot = page.windows[index % page::kWindowSlots];
  const auto copy = CopySlot<page::kWindowWords>(slot.sequence, [&](size_t i) -> const page::U64& { return slot.words[i]; });
  if (!copy || copy->index != index) return std::nullopt;
  page::WindowRecord record;
  std::memcpy(&record, copy->words, sizeof(record));
  return record;
}

}  // namespace gradgate::test

#endif  // GRADGATE_TESTS_SHIM_STATS_PAGE_READER_H_
