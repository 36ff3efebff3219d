// Stats pages for the fuzzer to damage: valid at first, each with another history, mended after every input.
//
// Thread class: one thread.

#ifndef GRADGATE_TESTS_FUZZ_PAGES_H_
#define GRADGATE_TESTS_FUZZ_PAGES_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "proto/shm/stats_page.h"
#include "tests/daemon/fake_page.h"
#include "tests/fuzz/input.h"

namespace gradgate::fuzz {

class Pages {
 public:
  // 0: rank 0 of "job", five windows. 1: rank 1 of it, both rings wrapped. 2: another job, nothing done yet. 3: as 0, the same
  // rank of the same run.
  static constexpr size_t kCount = 4;
  static constexpr size_t kWords = sizeof(page::StatsPage) / 8;

  Pages();

  testing::FakePage& fake(size_t page) { return *slots_[page].fake; }
  page::StatsPage& at(size_t page) { return fake(page).page(); }

  // One change that a hostile trainer could make, or one that a good one does.
  void Damage(size_t page, Input& in);

  // All pages as they were at first.
  void Mend();

 private:
  static constexpr size_t kChunk = 4096;
  static constexpr size_t kChunks = (sizeof(page::StatsPage) + kChunk - 1) / kChunk;

  struct Slot {
    std::unique_ptr<testing::FakePage> fake;
    std::vector<char> saved;
    std::bitset<kChunks> touched;
  };

  void Touch(size_t page, const void* at, size_t bytes);
  void Store(size_t page, size_t word, uint64_t value);
  uint64_t Load(size_t page, size_t word);
  void CloseWindow(size_t page, Input& in);
  void AddEvent(size_t page, Input& in);

  Slot slots_[kCount];
};

// What Damage() reads, for seeds.
namespace damage {
inline constexpr unsigned kWord = 0;    // u16 word, u64 value
inline constexpr unsigned kByte = 1;    // u32 offset, u8 value
inline constexpr unsigned kAdd = 2;     // u16 word, i8 difference
inline constexpr unsigned kHot = 3;     // u8 field, u8 special value
inline constexpr unsigned kBlock = 4;   // u16 word, u8 count, values
inline constexpr unsigned kWindow = 5;  // u8 bytes to change, pairs of offset and value
inline constexpr unsigned kEvent = 6;   // u64 what, u64 value
inline constexpr unsigned kTear = 7;    // u8: window counted or not, or event
inline constexpr unsigned kCount = 8;
}  // namespace damage

}  // namespace gradgate::fuzz

#endif  // GRADGATE_TESTS_FUZZ_PAGES_H_
