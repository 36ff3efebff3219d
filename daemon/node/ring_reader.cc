// The two rings of a stats page. The seqlock is specified in proto/shm/stats_page.h.

#include <atomic>
#include <cstring>

#include "daemon/node/page_reader.h"

namespace gradgate {
namespace {

// No ring gets this far; larger values are garbage and would overflow a sequence.
constexpr uint64_t kMaxIndex = uint64_t{1} << 62;

enum class SlotState { kRead, kPending, kOverwritten };

// Copies the payload of the slot that holds entry `index`.
template <size_t kWords>
SlotState ReadSlot(const page::U64& sequence, const page::U64* words, uint64_t index, uint64_t (&out)[kWords]) {
  const uint64_t done = 2 * index + 2;
  for (uint32_t attempt = 0; attempt < page::kReadRetries; ++attempt) {
    const uint64_t before = sequence.load(std::memory_order_acquire);
    if (before > done) return SlotState::kOverwritten;
    if (before != done) continue;
    for (size_t i = 0; i < kWords; ++i) out[i] = words[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (sequence.load(std::memory_order_relaxed) == before) return SlotState::kRead;
  }
  return sequence.load(std::memory_order_relaxed) > done ? SlotState::kOverwritten : SlotState::kPending;
}

// Moves the cursor over what a full ring has certainly lost; returns how many that were.
uint64_t SkipLost(RingCursor& cursor, uint64_t end, uint64_t slots) {
  const uint64_t oldest = end > slots ? end - slots : 0;
  if (oldest <= cursor.next) return 0;
  const uint64_t lost = oldest - cursor.next;
  cursor = RingCursor{oldest, false};
  return lost;
}

bool IsValid(const page::WindowRecord& record, uint64_t index) {
  return record.window_index == index && record.kind >= static_cast<uint8_t>(WindowKind::kFull) &&
         record.kind <= static_cast<uint8_t>(WindowKind::kEmpty) && record.mode <= static_cast<uint8_t>(SyncMode::kAuto) &&
         (record.flags & ~page::kWindowFlagsMask) == 0 && record.begin_ns <= record.end_ns;
}

bool Unpack(uint64_t index, const uint64_t (&words)[3], page::Event& event) {
  const uint64_t what = words[1];
  const uint64_t kind = what & 0xff, role = what >> 8 & 0xf, op = what >> 12 & 0xf, traffic = what >> 16 & 0x3;
  if (kind == 0 || kind >= kEventKindCount || role >= kGroupRoleCount || op >= kCollectiveOpCount ||
      traffic >= kTrafficClassCount) {
    return false;
  }
  event = page::Event{index,
                      words[0],
                      static_cast<EventKind>(kind),
                      static_cast<GroupRole>(role),
                      static_cast<CollectiveOp>(op),
                      static_cast<TrafficClass>(traffic),
                      static_cast<uint32_t>(what >> 32),
                      words[2]};
  return true;
}

}  // namespace

WindowReport ReadWindows(const page::StatsPage& page_untrusted, RingCursor& cursor, Pass pass,
                         absl::FunctionRef<void(const page::WindowRecord&)> deliver) {
  WindowReport report;
  const uint64_t end = page_untrusted.ring.window_next.load(std::memory_order_acquire);
  if (end > kMaxIndex || end < cursor.next) return report;
  report.missed += SkipLost(cursor, end, page::kWindowSlots);
  for (; cursor.next < end; ++cursor.next) {
    const page::WindowSlot& slot = page_untrusted.windows[cursor.next % page::kWindowSlots];
    uint64_t words[page::kWindowWords];
    switch (ReadSlot(slot.sequence, slot.words, cursor.next, words)) {
      case SlotState::kRead: {
        page::WindowRecord record;
        std::memcpy(&record, words, sizeof(record));
        if (IsValid(record, cursor.next)) {
          ++report.delivered;
          deliver(record);
        } else {
          ++report.invalid;
        }
        break;
      }
      case SlotState::kOverwritten:
        ++report.missed;
        break;
      case SlotState::kPending:
        if (pass != Pass::kFinal && cursor.next + 1 == end) return report;
        ++report.torn;
        break;
    }
  }
  return report;
}

EventReport ReadEvents(const page::StatsPage& page_untrusted, RingCursor& cursor, Pass pass,
                       absl::FunctionRef<void(const page::Event&)> deliver) {
  EventReport report;
  const uint64_t end = page_untrusted.ring.event_next.load(std::memory_order_acquire);
  if (end > kMaxIndex || end < cursor.next) return report;
  report.overwritten += SkipLost(cursor, end, page::kEventSlots);
  while (cursor.next < end) {
    const page::EventSlot& slot = page_untrusted.events[cursor.next % page::kEventSlots];
    const page::U64* payload = &slot.time_ns;
    uint64_t words[3];
    page::Event event;
    switch (ReadSlot(slot.sequence, payload, cursor.next, words)) {
      case SlotState::kRead:
        if (Unpack(cursor.next, words, event)) {
          ++report.delivered;
          deliver(event);
        } else {
          ++report.invalid;
        }
        break;
      case SlotState::kOverwritten:
        ++report.overwritten;
        break;
      case SlotState::kPending:
        if (pass == Pass::kQuery) return report;
        if (pass == Pass::kTick && !cursor.waiting) {
          cursor.waiting = true;
          return report;
        }
        ++report.dropped;
        break;
    }
    cursor = RingCursor{cursor.next + 1, false};
  }
  return report;
}

}  // namespace gradgate
