#include "shim/capi/ledger_counts.h"

#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

void LedgerCounts::BeginReduction(uint32_t role, bool late) {
  page::RoleTotals& totals = recorder_->page().roles[role];
  Recorder::AddShared(totals.issued_count, 1);
  issued_[role].fetch_add(1, kRelaxed);
  if (!late) return;
  Recorder::AddShared(totals.late_count, 1);
  late_[role].fetch_add(1, kRelaxed);
}

int64_t LedgerCounts::Issued(GroupRole role, CollectiveOp op, TrafficClass traffic, uint64_t bytes, uint32_t tensors) {
  const uint64_t phase = phase_.load(kRelaxed);
  const int64_t now_ns = MonotonicNs();
  bool intended = false;
  if (traffic == TrafficClass::kGradient) {
    const auto index = static_cast<uint32_t>(role);
    intended = (phase & RoleBit(role)) != 0;
    if ((reduced_.fetch_or(RoleBit(role), kRelaxed) & RoleBit(role)) == 0) {
      BeginReduction(index, static_cast<Phase>(phase >> 4 & 3) == Phase::kLate);
    }
    phase_collectives_[index].fetch_add(1, kRelaxed);
    issued_collectives_.fetch_add(1, kRelaxed);
    if (intended) intended_collectives_.fetch_add(1, kRelaxed);
    gradient_bytes_.fetch_add(bytes, kRelaxed);
    last_issue_ns_.store(now_ns, kRelaxed);
  } else if (traffic == TrafficClass::kOther) {
    phase_others_[static_cast<uint32_t>(role)].fetch_add(1, kRelaxed);
  }
  recorder_->CollectiveIssued(role, op, traffic, bytes, tensors, intended, static_cast<uint32_t>(phase >> 32), now_ns);
  return now_ns;
}

void LedgerCounts::Done(GroupRole role, CollectiveOp op, TrafficClass traffic, int64_t issue_ns, Outcome outcome) {
  if (outcome == Outcome::kUnknown) return recorder_->CollectiveUnknown(role, op);
  const bool ok = outcome == Outcome::kOk;
  const int64_t now_ns = MonotonicNs();
  recorder_->CollectiveDone(role, op, traffic, ok, static_cast<uint32_t>(phase_.load(kRelaxed) >> 32), issue_ns, now_ns);
  if (traffic != TrafficClass::kGradient || issue_ns < window_begin_ns_.load(kRelaxed)) return;
  (ok ? completed_collectives_ : failed_collectives_).fetch_add(1, kRelaxed);
  last_done_ns_.store(now_ns, kRelaxed);
}

void LedgerCounts::BeginPhase(Phase phase, uint32_t wanted, uint32_t micro_step) {
  phase_.store(wanted | static_cast<uint64_t>(phase) << 4 | static_cast<uint64_t>(micro_step) << 32, kRelaxed);
  reduced_.store(0, kRelaxed);
  if (phase == Phase::kOutside) return;  // what the owner asks after a micro-step is of that
  for (Count& count : phase_collectives_) count.store(0, kRelaxed);
  for (Count& count : phase_others_) count.store(0, kRelaxed);
}

LedgerCounts::Window LedgerCounts::TakeWindow(int64_t now_ns) {
  window_begin_ns_.store(now_ns, kRelaxed);
  Window window;
  for (uint32_t role = 0; role < kGroupRoleCount; ++role) {
    window.issued[role] = issued_[role].exchange(0, kRelaxed);
    window.late[role] = late_[role].exchange(0, kRelaxed);
  }
  window.intended_collectives = intended_collectives_.exchange(0, kRelaxed);
  window.issued_collectives = issued_collectives_.exchange(0, kRelaxed);
  window.completed_collectives = completed_collectives_.exchange(0, kRelaxed);
  window.failed_collectives = failed_collectives_.exchange(0, kRelaxed);
  window.gradient_bytes = gradient_bytes_.exchange(0, kRelaxed);
  return window;
}

}  // namespace gradgate
