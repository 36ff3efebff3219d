#include "daemon/node/counters.h"

#include <array>
#include <bit>

#include "absl/strings/str_format.h"

namespace gradgate {
namespace {

constexpr size_t kWords = sizeof(Counters) / 8;
using Words = std::array<uint64_t, kWords>;

// Which words are counters.
constexpr std::array<bool, kWords> MakeGrowing() {
  std::array<bool, kWords> growing{};
  growing.fill(true);
  const auto not_a_counter = [&growing](size_t offset, size_t bytes = 8) {
    for (size_t i = offset / 8; i < (offset + bytes) / 8; ++i) growing[i] = false;
  };
  not_a_counter(offsetof(TotalsValues, window_index));
  not_a_counter(offsetof(TotalsValues, micro_step));
  not_a_counter(offsetof(TotalsValues, last_event_ns));
  not_a_counter(offsetof(TotalsValues, sync_mode));
  not_a_counter(offsetof(TotalsValues, policy_version));
  not_a_counter(offsetof(TotalsValues, closed));
  not_a_counter(offsetof(TotalsValues, policy_staged_version), 4 * sizeof(uint64_t));
  for (size_t role = 0; role < kGroupRoleCount; ++role) {
    not_a_counter(offsetof(Counters, roles) + role * sizeof(RoleValues) + offsetof(RoleValues, reserved),
                  sizeof(RoleValues::reserved));
  }
  for (size_t cell = 0; cell < kGroupRoleCount * kCollectiveOpCount; ++cell) {
    const size_t base = offsetof(Counters, cells) + cell * sizeof(CellValues);
    not_a_counter(base + offsetof(CellValues, last_issue_ns));
    not_a_counter(base + offsetof(CellValues, last_complete_ns));
    not_a_counter(base + offsetof(CellValues, reserved));
  }
  not_a_counter(offsetof(Counters, ring) + offsetof(RingValues, reserved), sizeof(RingValues::reserved));
  return growing;
}
constexpr std::array<bool, kWords> kGrowing = MakeGrowing();

}  // namespace

absl::Status CheckGrowth(const Counters& before, const Counters& after) {
  const Words old_words = std::bit_cast<Words>(before);
  const Words new_words = std::bit_cast<Words>(after);
  for (size_t i = 0; i < kWords; ++i) {
    if (kGrowing[i] && new_words[i] < old_words[i]) {
      return absl::DataLossError(absl::StrFormat("counter at page offset %d ran backwards, from %d to %d",
                                                 kCounterOffset + i * 8, old_words[i], new_words[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const Counters& counters) {
  const Words words = std::bit_cast<Words>(counters);
  for (size_t i = 0; i < kWords; ++i) {
    if (kGrowing[i] && words[i] > static_cast<uint64_t>(INT64_MAX)) {
      return absl::OutOfRangeError(
          absl::StrFormat("counter at page offset %d is %d, more than any count can be", kCounterOffset + i * 8, words[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace gradgate
