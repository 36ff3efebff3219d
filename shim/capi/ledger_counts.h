// What a ledger sees of the framework's collectives, counted where they are issued, on whatever thread: in the page's cells,
// and here for the phase and the window they belong to.
//
// A phase is what lies between two calls of BeginPhase: a micro-step, a late reduction, or what is outside both. The first
// gradient collective of a role in a phase begins one reduction of that role. Which of them the policy wants is a property of
// the phase, set before the framework can issue anything.
//
// Thread class: Issued, Done, gradient_collectives, trainer_collectives: any, wait-free; each number is exact, and belongs to
// the phase in which the framework issues, since the loop ends a phase only when its backward has returned. The rest: loop's
// thread.

#ifndef GRADGATE_SHIM_CAPI_LEDGER_COUNTS_H_
#define GRADGATE_SHIM_CAPI_LEDGER_COUNTS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "proto/shm/types.h"
#include "shim/stats/recorder.h"

namespace gradgate {

enum class Outcome : uint8_t { kOk = 0, kFailed = 1, kUnknown = 2 };
enum class Phase : uint8_t { kOutside = 0, kMicroStep = 1, kLate = 2 };

constexpr uint32_t RoleBit(GroupRole role) { return 1u << static_cast<uint32_t>(role); }

class LedgerCounts {
 public:
  // `recorder` is borrowed.
  explicit LedgerCounts(Recorder* recorder) : recorder_(recorder) {}

  // Returns the time of issue.
  int64_t Issued(GroupRole role, CollectiveOp op, TrafficClass traffic, uint64_t bytes, uint32_t tensors);
  void Done(GroupRole role, CollectiveOp op, TrafficClass traffic, int64_t issue_ns, Outcome outcome);
  // Since the last micro-step or late reduction began.
  uint32_t gradient_collectives(GroupRole role) const {
    return phase_collectives_[static_cast<uint32_t>(role)].load(std::memory_order_relaxed);
  }

  // As gradient_collectives; with the trainer's other ones.
  uint32_t trainer_collectives(GroupRole role) const {
    const auto index = static_cast<uint32_t>(role);
    return phase_collectives_[index].load(std::memory_order_relaxed) + phase_others_[index].load(std::memory_order_relaxed);
  }

  // `wanted`: bits of the roles that the policy wants reduced; `micro_step`: for events.
  void BeginPhase(Phase phase, uint32_t wanted, uint32_t micro_step);
  Phase phase() const { return static_cast<Phase>(phase_.load(std::memory_order_relaxed) >> 4 & 3); }
  uint32_t wanted() const { return phase_.load(std::memory_order_relaxed) & 15; }
  // Bits of the roles that have been reduced in this phase.
  uint32_t reduced() const { return reduced_.load(std::memory_order_relaxed); }
  int64_t last_issue_ns() const { return last_issue_ns_.load(std::memory_order_relaxed); }
  int64_t last_done_ns() const { return last_done_ns_.load(std::memory_order_relaxed); }

  struct Window {
    std::array<uint32_t, kGroupRoleCount> issued{};  // reductions, late ones included
    std::array<uint32_t, kGroupRoleCount> late{};
    uint32_t intended_collectives = 0;
    uint32_t issued_collectives = 0;
    uint32_t completed_collectives = 0;  // of those issued in this window
    uint32_t failed_collectives = 0;
    uint64_t gradient_bytes = 0;
  };
  // What was counted since the last call; later completions of those collectives belong to no window.
  Window TakeWindow(int64_t now_ns);

 private:
  using Count = std::atomic<uint32_t>;

  void BeginReduction(uint32_t role, bool late);

  Recorder* const recorder_;
  // Wanted roles (bits 0–3), Phase (4–5), micro-step (32–63): one word, so that a collective sees one phase.
  std::atomic<uint64_t> phase_{0};
  Count reduced_{0};
  std::array<Count, kGroupRoleCount> phase_collectives_{};  // of gradients
  std::array<Count, kGroupRoleCount> phase_others_{};
  std::array<Count, kGroupRoleCount> issued_{};
  std::array<Count, kGroupRoleCount> late_{};
  Count intended_collectives_{0};
  Count issued_collectives_{0};
  Count completed_collectives_{0};
  Count failed_collectives_{0};
  std::atomic<uint64_t> gradient_bytes_{0};
  std::atomic<int64_t> window_begin_ns_{0};
  std::atomic<int64_t> last_issue_ns_{0};
  std::atomic<int64_t> last_done_ns_{0};
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_LEDGER_COUNTS_H_
