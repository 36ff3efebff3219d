#include "shim/capi/read_stats.h"

#include <string>

namespace gradgate {
namespace {

uint64_t Load(const page::U64& counter) { return counter.load(std::memory_order_relaxed); }

}  // namespace

gg_window ToC(const ClosedWindow& report) {
  return {sizeof(gg_window),
          static_cast<gg_window_kind>(report.kind),
          report.window_index,
          report.micro_steps,
          report.min_micro_steps,
          report.max_micro_steps,
          report.active_ranks,
          report.late ? 1u : 0u,
          report.disagreed ? 1u : 0u,
          report.item_count,
          report.policy_adopted ? 1u : 0u,
          report.policy_offered ? 1u : 0u};
}

gg_policy ToC(const SyncPolicy& policy, uint64_t adopted_window) {
  return {sizeof(gg_policy),
          static_cast<gg_mode>(policy.sync_mode),
          static_cast<gg_wire>(policy.wire_type),
          static_cast<gg_reshard>(policy.reshard),
          static_cast<uint32_t>(policy.enforcement),
          0,
          policy.bucket_bytes,
          policy.version,
          adopted_window};
}

Status CheckWindow(const gg_window* window) {
  if (window && window->struct_size < sizeof(uint32_t))
    return InvalidArgument("window.struct_size is too small; start from GG_WINDOW_INIT");
  return OkStatus();
}

gg_stats ReadStats(const page::StatsPage& page, bool linked) {
  const page::PageTotals& totals = page.totals;
  gg_stats stats = GG_STATS_INIT;
  stats.linked = linked ? 1 : 0;
  stats.micro_steps = Load(totals.micro_step_count);
  stats.steps = Load(totals.step_count);
  stats.windows_full = Load(totals.window_full_count);
  stats.windows_partial = Load(totals.window_partial_count);
  stats.windows_empty = Load(totals.window_empty_count);
  stats.windows_late = Load(totals.window_late_count);
  stats.windows_unstepped = Load(totals.window_unstepped_count);
  stats.windows_mismatched = Load(totals.window_mismatched_count);
  stats.windows_disagreed = Load(totals.window_disagreed_count);
  stats.ballots = Load(totals.ballot_count);
  stats.refused = Load(totals.refused_count);
  stats.warnings = Load(totals.warning_count);
  stats.items = Load(totals.item_count);
  for (const page::RoleTotals& role : page.roles) {
    stats.reductions_intended += Load(role.intended_count);
    stats.reductions_issued += Load(role.issued_count);
    stats.reductions_suppressed += Load(role.suppressed_count);
    stats.reductions_late += Load(role.late_count);
    stats.reductions_declared_extra += Load(role.declared_extra_count);
  }
  for (const auto& role : page.cells) {
    for (const page::CollectiveCell& cell : role) {
      stats.gradient_collectives += Load(cell.issued_count[static_cast<uint32_t>(TrafficClass::kGradient)]);
      stats.gradient_bytes += Load(cell.bytes[static_cast<uint32_t>(TrafficClass::kGradient)]);
    }
  }
  stats.exposed_ns = Load(totals.exposed_ns);
  stats.wait_ns = Load(totals.wait_ns);
  stats.micro_step_ns = Load(totals.micro_step_ns);
  stats.window_ns = Load(totals.window_ns);
  stats.overrides = Load(totals.override_count);
  stats.windows_discarded = Load(totals.window_discarded_count);
  stats.micro_steps_skipped = Load(totals.micro_step_skipped_count);
  return stats;
}

gg_collective_stats ReadCell(const page::CollectiveCell& cell) {
  gg_collective_stats stats = GG_COLLECTIVE_STATS_INIT;
  stats.intended = Load(cell.intended_count);
  stats.gradient_issued = Load(cell.issued_count[static_cast<uint32_t>(TrafficClass::kGradient)]);
  stats.ours_issued = Load(cell.issued_count[static_cast<uint32_t>(TrafficClass::kOurs)]);
  stats.other_issued = Load(cell.issued_count[static_cast<uint32_t>(TrafficClass::kOther)]);
  stats.gradient_bytes = Load(cell.bytes[static_cast<uint32_t>(TrafficClass::kGradient)]);
  stats.ours_bytes = Load(cell.bytes[static_cast<uint32_t>(TrafficClass::kOurs)]);
  stats.other_bytes = Load(cell.bytes[static_cast<uint32_t>(TrafficClass::kOther)]);
  stats.tensors = Load(cell.tensor_count);
  stats.completed = Load(cell.completed_count);
  stats.gradient_completed = Load(cell.gradient_completed_count);
  stats.failed = Load(cell.failed_count);
  stats.unknown = Load(cell.unknown_count);
  stats.duration_ns = Load(cell.duration_ns);
  return stats;
}

gg_role_stats ReadRole(const page::RoleTotals& role) {
  gg_role_stats stats = GG_ROLE_STATS_INIT;
  stats.intended = Load(role.intended_count);
  stats.issued = Load(role.issued_count);
  stats.suppressed = Load(role.suppressed_count);
  stats.late = Load(role.late_count);
  stats.declared_extra = Load(role.declared_extra_count);
  return stats;
}

Status CheckCell(gg_group group, gg_op op) {
  if (group >= kGroupRoleCount) return InvalidArgument("group is " + std::to_string(group) + "; use a GG_GROUP_ constant");
  if (op >= kCollectiveOpCount) return InvalidArgument("op is " + std::to_string(op) + "; use a GG_OP_ constant");
  return OkStatus();
}

}  // namespace gradgate
