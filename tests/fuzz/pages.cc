#include "tests/fuzz/pages.h"

#include <algorithm>
#include <cstring>

namespace gradgate::fuzz {
namespace {

using testing::FakeIdentity;
using testing::FakePage;

constexpr uint64_t kSpecial[] = {0,
                                 1,
                                 2,
                                 255,
                                 256,
                                 257,
                                 4095,
                                 4096,
                                 4097,
                                 INT32_MAX,
                                 INT32_MAX + uint64_t{1},
                                 UINT32_MAX,
                                 INT64_MAX,
                                 INT64_MAX + uint64_t{1},
                                 UINT64_MAX,
                                 UINT64_MAX - 1,
                                 uint64_t{1} << 62,
                                 (uint64_t{1} << 62) + 1,
                                 (uint64_t{1} << 62) - 1};

#define WORD(field) (offsetof(page::StatsPage, field) / 8)
constexpr size_t kHotWords[] = {WORD(header.magic),
                                WORD(header.major),
                                WORD(header.page_bytes),
                                WORD(header.layout_hash),
                                WORD(header.window_slot_bytes),
                                WORD(header.event_slot_bytes),
                                WORD(identity.job_name),
                                WORD(identity.run_id),
                                WORD(identity.host_name),
                                WORD(identity.attempt),
                                WORD(identity.world_size),
                                WORD(identity.process_id),
                                WORD(identity.wall_time_ns),
                                WORD(identity.monotonic_ns),
                                WORD(identity.accumulate),
                                WORD(identity.config_hash),
                                WORD(totals.window_index),
                                WORD(totals.micro_step),
                                WORD(totals.micro_step_count),
                                WORD(totals.last_event_ns),
                                WORD(totals.sync_mode),
                                WORD(totals.policy_version),
                                WORD(totals.closed),
                                WORD(totals.window_full_count),
                                WORD(totals.window_partial_count),
                                WORD(totals.window_empty_count),
                                WORD(totals.item_count),
                                WORD(totals.exposed_ns),
                                WORD(totals.window_ns),
                                WORD(roles[0].issued_count),
                                WORD(cells[0][0].issued_count),
                                WORD(cells[3][10].last_complete_ns),
                                WORD(ring.event_next),
                                WORD(ring.window_next),
                                WORD(windows[0].sequence),
                                WORD(windows[0].words),
                                WORD(windows[255].sequence),
                                WORD(events[0].sequence),
                                WORD(events[0].what),
                                WORD(events[4095].sequence)};
#undef WORD

void Fill(FakePage& fake, int windows, int events) {
  page::StatsPage& page = fake.page();
  for (int i = 0; i < windows; ++i) fake.CloseWindow();
  for (int i = 0; i < events; ++i) {
    fake.AddEvent(i % 2 == 0 ? EventKind::kCollectiveDone : EventKind::kMicroStepBegin, 1000u * static_cast<unsigned>(i));
  }
  page.totals.micro_step_count.store(4u * static_cast<unsigned>(windows));
  page.totals.step_count.store(static_cast<unsigned>(windows));
  page.totals.last_event_ns.store(5'000'000'000);
  page.roles[0].intended_count.store(static_cast<unsigned>(windows));
  page.roles[0].issued_count.store(static_cast<unsigned>(windows));
  page.cells[0][0].issued_count[0].store(2u * static_cast<unsigned>(windows));
  page.cells[0][0].bytes[0].store(1000u * static_cast<unsigned>(windows));
  page.cells[0][0].completed_count.store(2u * static_cast<unsigned>(windows));
}

}  // namespace

Pages::Pages() {
  const FakeIdentity identities[kCount] = {
      {.rank = 0}, {.rank = 1}, {.job_name = "other", .run_id_bytes = std::string(16, 'o')}, {.rank = 0}};
  for (size_t i = 0; i < kCount; ++i) slots_[i].fake = std::make_unique<FakePage>(identities[i]);
  Fill(fake(0), 5, 20);
  Fill(fake(1), page::kWindowSlots + 3, page::kEventSlots + 5);
  Fill(fake(3), 2, 2);
  for (Slot& slot : slots_) {
    const auto* bytes = reinterpret_cast<const char*>(&slot.fake->page());
    slot.saved.assign(bytes, bytes + sizeof(page::StatsPage));
  }
}

void Pages::Touch(size_t page, const void* at, size_t bytes) {
  const auto offset =
      static_cast<size_t>(static_cast<const char*>(at) - reinterpret_cast<const char*>(&slots_[page].fake->page()));
  for (size_t chunk = offset / kChunk; chunk <= (offset + bytes - 1) / kChunk; ++chunk) slots_[page].touched.set(chunk);
}

void Pages::Mend() {
  for (Slot& slot : slots_) {
    if (slot.touched.none()) continue;
    auto* bytes = reinterpret_cast<char*>(&slot.fake->page());
    for (size_t chunk = 0; chunk < kChunks; ++chunk) {
      if (!slot.touched.test(chunk)) continue;
      const size_t begin = chunk * kChunk;
      std::memcpy(bytes + begin, slot.saved.data() + begin, std::min(kChunk, slot.saved.size() - begin));
    }
    slot.touched.reset();
  }
}

void Pages::Store(size_t page, size_t word, uint64_t value) {
  auto* words = reinterpret_cast<uint64_t*>(&at(page));
  Touch(page, words + word, 8);
  __atomic_store_n(words + word, value, __ATOMIC_RELAXED);
}

uint64_t Pages::Load(size_t page, size_t word) {
  return __atomic_load_n(reinterpret_cast<uint64_t*>(&at(page)) + word, __ATOMIC_RELAXED);
}

// As a trainer would, but for the bytes of the record that the input changes.
void Pages::CloseWindow(size_t page, Input& in) {
  page::StatsPage& target = at(page);
  const uint64_t index = target.ring.window_next.load();
  page::WindowRecord record = FakePage::MakeRecord(index);
  auto* bytes = reinterpret_cast<uint8_t*>(&record);
  for (size_t i = in.Below(8); i > 0; --i) {
    const size_t offset = in.Below(sizeof(record));
    bytes[offset] = in.Byte();
  }
  Touch(page, &target.windows[index % page::kWindowSlots], sizeof(page::WindowSlot));
  Touch(page, &target.totals, sizeof(target.totals));
  Touch(page, &target.ring, sizeof(target.ring));
  fake(page).CloseWindow(record);
}

void Pages::AddEvent(size_t page, Input& in) {
  page::StatsPage& target = at(page);
  const uint64_t index = target.ring.event_next.load();
  page::EventSlot& slot = target.events[index % page::kEventSlots];
  Touch(page, &slot, sizeof(slot));
  Touch(page, &target.ring, sizeof(target.ring));
  fake(page).AddEvent(EventKind::kCollectiveDone);
  slot.what.store(in.Number<uint64_t>());
  slot.value.store(in.Number<uint64_t>());
}

void Pages::Damage(size_t page, Input& in) {
  page::StatsPage& target = at(page);
  switch (in.Below(damage::kCount)) {
    case damage::kWord: {
      const size_t word = in.Number<uint16_t>() % kWords;
      return Store(page, word, in.Number<uint64_t>());
    }
    case damage::kByte: {
      const size_t offset = in.Number<uint32_t>() % sizeof(page::StatsPage);
      const size_t shift = offset % 8 * 8;
      const uint64_t rest = Load(page, offset / 8) & ~(uint64_t{0xff} << shift);
      return Store(page, offset / 8, rest | uint64_t{in.Byte()} << shift);
    }
    case damage::kAdd: {
      const size_t word = in.Number<uint16_t>() % kWords;
      return Store(page, word, Load(page, word) + static_cast<uint64_t>(int64_t{in.Number<int8_t>()}));
    }
    case damage::kHot: {
      const size_t word = kHotWords[in.Below(std::size(kHotWords))];
      return Store(page, word, kSpecial[in.Below(std::size(kSpecial))]);
    }
    case damage::kBlock: {
      const size_t word = in.Number<uint16_t>() % kWords;
      const size_t count = std::min(in.Below(64), kWords - word);
      for (size_t i = 0; i < count; ++i) Store(page, word + i, in.Number<uint64_t>());
      return;
    }
    case damage::kWindow:
      return CloseWindow(page, in);
    case damage::kEvent:
      return AddEvent(page, in);
    case damage::kTear: {
      Touch(page, &target.windows[target.ring.window_next.load() % page::kWindowSlots], sizeof(page::WindowSlot));
      Touch(page, &target.ring, sizeof(target.ring));
      const size_t which = in.Below(3);
      if (which < 2) return fake(page).TearWindow(which == 0);
      return fake(page).ReserveEvent();
    }
  }
}

}  // namespace gradgate::fuzz
