#include "daemon/rpc/convert.h"

#include <algorithm>
#include <string>

#include "absl/time/time.h"
#include "daemon/rpc/fields.h"

namespace gradgate {
namespace {

v1::State ToState(RankState state) { return static_cast<v1::State>(static_cast<int>(state) + 1); }
static_assert(v1::STATE_RUNNING == static_cast<int>(RankState::kRunning) + 1);
static_assert(v1::STATE_FINISHED == static_cast<int>(RankState::kFinished) + 1);
static_assert(v1::STATE_LOST == static_cast<int>(RankState::kLost) + 1);
static_assert(v1::STATE_FAILED == static_cast<int>(RankState::kFailed) + 1);

v1::SyncMode ToMode(uint64_t mode) {
  return mode <= static_cast<uint64_t>(SyncMode::kAuto) ? static_cast<v1::SyncMode>(mode) : v1::SYNC_MODE_UNSPECIFIED;
}
static_assert(v1::SYNC_MODE_AUTO == static_cast<int>(SyncMode::kAuto));
static_assert(v1::ENFORCEMENT_ENFORCE == static_cast<int>(Enforcement::kEnforce));
static_assert(v1::WINDOW_KIND_EMPTY == static_cast<int>(WindowKind::kEmpty));

v1::GroupRole ToRole(size_t role) { return static_cast<v1::GroupRole>(role + 1); }
v1::CollectiveOp ToOp(size_t op) { return static_cast<v1::CollectiveOp>(op + 1); }
static_assert(v1::GROUP_ROLE_OTHER == static_cast<int>(GroupRole::kOther) + 1);
static_assert(v1::COLLECTIVE_OP_RECV == static_cast<int>(CollectiveOp::kRecv) + 1);

void Add(CellValues& sum, const CellValues& cell) {
  const auto add = [](uint64_t& to, uint64_t value) { to = SaturatingAdd(to, value); };
  add(sum.intended_count, cell.intended_count);
  for (size_t i = 0; i < kTrafficClassCount; ++i) {
    add(sum.issued_count[i], cell.issued_count[i]);
    add(sum.bytes[i], cell.bytes[i]);
  }
  add(sum.tensor_count, cell.tensor_count);
  add(sum.completed_count, cell.completed_count);
  add(sum.failed_count, cell.failed_count);
  add(sum.unknown_count, cell.unknown_count);
  add(sum.gradient_completed_count, cell.gradient_completed_count);
  add(sum.duration_ns, cell.duration_ns);
}

// All but the last times, which are on each rank's own clock.
void Fill(size_t role, size_t op, const CellValues& cell, v1::CollectiveStats* out) {
  out->set_group(ToRole(role));
  out->set_op(ToOp(op));
  out->set_intended_count(Signed(cell.intended_count));
  out->set_gradient_issued_count(Signed(cell.issued_count[0]));
  out->set_ours_issued_count(Signed(cell.issued_count[1]));
  out->set_other_issued_count(Signed(cell.issued_count[2]));
  out->set_gradient_bytes(Signed(cell.bytes[0]));
  out->set_ours_bytes(Signed(cell.bytes[1]));
  out->set_other_bytes(Signed(cell.bytes[2]));
  out->set_tensor_count(Signed(cell.tensor_count));
  out->set_completed_count(Signed(cell.completed_count));
  out->set_gradient_completed_count(Signed(cell.gradient_completed_count));
  out->set_failed_count(Signed(cell.failed_count));
  out->set_unknown_count(Signed(cell.unknown_count));
  Set(cell.duration_ns, out->mutable_total_duration());
}

// One rank's counts in the shape of SyncTotals, in integers that saturate.
struct Totals {
  TotalsValues values{};
  RoleValues roles{};
  uint64_t gradient_collectives = 0;
  uint64_t gradient_bytes = 0;
  uint64_t event_missed = 0;
  uint64_t event_read = 0;
  uint64_t window_missed = 0;

  void Add(const RankView& rank) {
    const auto add = [](uint64_t& to, uint64_t value) { to = SaturatingAdd(to, value); };
    const TotalsValues& from = rank.counters.totals;
    add(values.micro_step_count, from.micro_step_count);
    add(values.step_count, from.step_count);
    add(values.window_full_count, from.window_full_count);
    add(values.window_partial_count, from.window_partial_count);
    add(values.window_empty_count, from.window_empty_count);
    add(values.window_late_count, from.window_late_count);
    add(values.window_unstepped_count, from.window_unstepped_count);
    add(values.window_mismatched_count, from.window_mismatched_count);
    add(values.window_disagreed_count, from.window_disagreed_count);
    add(values.ballot_count, from.ballot_count);
    add(values.refused_count, from.refused_count);
    add(values.warning_count, from.warning_count);
    add(values.item_count, from.item_count);
    add(values.reconnect_count, from.reconnect_count);
    add(values.exposed_ns, from.exposed_ns);
    add(values.wait_ns, from.wait_ns);
    add(values.micro_step_ns, from.micro_step_ns);
    add(values.window_ns, from.window_ns);
    for (const RoleValues& role : rank.counters.roles) {
      add(roles.intended_count, role.intended_count);
      add(roles.issued_count, role.issued_count);
      add(roles.suppressed_count, role.suppressed_count);
      add(roles.late_count, role.late_count);
      add(roles.declared_extra_count, role.declared_extra_count);
    }
    for (const auto& of_role : rank.counters.cells) {
      for (const CellValues& cell : of_role) {
        add(gradient_collectives, cell.issued_count[static_cast<size_t>(TrafficClass::kGradient)]);
        add(gradient_bytes, cell.bytes[static_cast<size_t>(TrafficClass::kGradient)]);
      }
    }
    add(event_missed, rank.event_missed_count);
    add(event_read, rank.event_read_count);
    add(window_missed, rank.window_missed_count);
  }
};

void Fill(const Totals& totals, v1::SyncTotals* out) {
  const TotalsValues& values = totals.values;
  out->set_micro_step_count(Signed(values.micro_step_count));
  out->set_step_count(Signed(values.step_count));
  out->set_window_full_count(Signed(values.window_full_count));
  out->set_window_partial_count(Signed(values.window_partial_count));
  out->set_window_empty_count(Signed(values.window_empty_count));
  out->set_window_late_count(Signed(values.window_late_count));
  out->set_window_unstepped_count(Signed(values.window_unstepped_count));
  out->set_window_mismatched_count(Signed(values.window_mismatched_count));
  out->set_window_disagreed_count(Signed(values.window_disagreed_count));
  out->set_ballot_count(Signed(values.ballot_count));
  out->set_refused_count(Signed(values.refused_count));
  out->set_warning_count(Signed(values.warning_count));
  out->set_item_count(Signed(values.item_count));
  out->set_reduction_intended_count(Signed(totals.roles.intended_count));
  out->set_reduction_issued_count(Signed(totals.roles.issued_count));
  out->set_reduction_suppressed_count(Signed(totals.roles.suppressed_count));
  out->set_reduction_late_count(Signed(totals.roles.late_count));
  out->set_reduction_declared_extra_count(Signed(totals.roles.declared_extra_count));
  out->set_gradient_collective_count(Signed(totals.gradient_collectives));
  out->set_gradient_bytes(Signed(totals.gradient_bytes));
  Set(values.exposed_ns, out->mutable_exposed_duration());
  Set(values.wait_ns, out->mutable_wait_duration());
  Set(values.micro_step_ns, out->mutable_micro_step_duration());
  Set(values.window_ns, out->mutable_window_duration());
  out->set_event_missed_count(Signed(totals.event_missed));
  out->set_event_read_count(Signed(totals.event_read));
  out->set_window_missed_count(Signed(totals.window_missed));
  out->set_reconnect_count(Signed(values.reconnect_count));
}

}  // namespace

v1::RankWindow ToMessage(const RankWindow& window) {
  const page::WindowRecord& record = window.record;
  v1::RankWindow out;
  out.set_rank(Signed32(window.rank));
  out.set_kind(static_cast<v1::WindowKind>(record.kind));
  out.set_sync_mode(ToMode(record.mode));
  out.set_micro_step_count(Signed32(record.micro_steps));
  out.set_planned_micro_step_count(Signed32(record.planned_micro_steps));
  out.set_min_micro_step_count(Signed32(record.min_micro_steps));
  out.set_max_micro_step_count(Signed32(record.max_micro_steps));
  out.set_last_reduction_at(Signed32(record.last_reduction_at));
  out.set_reduction_intended_count(Signed32(record.intended_reductions));
  out.set_reduction_issued_count(Signed32(record.issued_reductions));
  out.set_reduction_suppressed_count(Signed32(record.suppressed_reductions));
  out.set_reduction_late_count(Signed32(record.late_reductions));
  out.set_collective_intended_count(Signed32(record.intended_collectives));
  out.set_collective_issued_count(Signed32(record.issued_collectives));
  out.set_collective_completed_count(Signed32(record.completed_collectives));
  out.set_collective_failed_count(Signed32(record.failed_collectives));
  out.set_gradient_bytes(Signed(record.gradient_bytes));
  out.set_item_count(Signed(record.item_count));
  Set(window.begin_time, out.mutable_begin_time());
  Set(window.end_time, out.mutable_end_time());
  Set(record.boundary_ns, out.mutable_boundary_duration());
  Set(record.suppressed_median_ns, out.mutable_suppressed_median_duration());
  Set(record.exposed_ns, out.mutable_exposed_duration());
  Set(record.wait_ns, out.mutable_wait_duration());
  out.set_late((record.flags & page::kWindowLate) != 0);
  out.set_mismatched((record.flags & page::kWindowMismatched) != 0);
  out.set_disagreed((record.flags & page::kWindowDisagreed) != 0);
  out.set_unstepped((record.flags & page::kWindowUnstepped) != 0);
  out.set_failed((record.flags & page::kWindowFailed) != 0);
  out.set_policy_version(Signed(record.policy_version));
  return out;
}

v1::Job ToMessage(const JobView& job) {
  v1::Job out;
  out.set_job_name(job.job_name);
  out.set_run_id(job.run_id);
  out.set_user_id(job.user_id);
  out.set_attempt(Signed32(job.attempt));
  out.set_launch_id(job.launch_id);
  out.set_world_size(Signed32(job.world_size));
  out.set_state(ToState(job.state));
  Set(job.start_time, out.mutable_start_time());
  if (job.end_time) Set(*job.end_time, out.mutable_end_time());
  out.set_running_rank_count(Signed32(job.rank_counts[static_cast<size_t>(RankState::kRunning)]));
  out.set_finished_rank_count(Signed32(job.rank_counts[static_cast<size_t>(RankState::kFinished)]));
  out.set_lost_rank_count(Signed32(job.rank_counts[static_cast<size_t>(RankState::kLost)]));
  out.set_failed_rank_count(Signed32(job.rank_counts[static_cast<size_t>(RankState::kFailed)]));
  out.set_sync_mode(ToMode(static_cast<uint64_t>(job.sync_mode)));
  out.set_enforcement(static_cast<v1::Enforcement>(job.enforcement));
  out.set_accumulate(Signed32(job.accumulate));
  out.set_window_count(Signed(job.window_count));
  out.set_lowest_rank(Signed32(job.lowest_rank));
  return out;
}

v1::RankStats ToMessage(const RankView& rank) {
  const TotalsValues& values = rank.counters.totals;
  v1::RankStats out;
  out.set_slot(Signed32(rank.slot));
  out.set_rank(Signed32(rank.identity.rank));
  out.set_local_rank(Signed32(rank.identity.local_rank));
  out.set_state(ToState(rank.state));
  out.set_process_id(rank.identity.process_id);
  out.set_host_name(rank.identity.host_name);
  out.set_shim_version(rank.identity.shim_version);
  Set(rank.identity.start_time(), out.mutable_start_time());
  if (rank.end_time) Set(*rank.end_time, out.mutable_end_time());
  if (values.last_event_ns != 0) Set(rank.identity.WallTime(values.last_event_ns), out.mutable_last_event_time());
  out.set_window_index(Signed(values.window_index));
  out.set_micro_step(Signed32(values.micro_step));
  out.set_sync_mode(ToMode(static_cast<uint64_t>(ModeInForce(rank.identity, rank.counters))));
  out.set_policy_version(Signed(values.policy_version));
  Totals totals;
  totals.Add(rank);
  Fill(totals, out.mutable_totals());
  for (size_t role = 0; role < kGroupRoleCount; ++role) {
    const RoleValues& from = rank.counters.roles[role];
    if ((from.intended_count | from.issued_count | from.suppressed_count | from.late_count | from.declared_extra_count) != 0) {
      v1::RoleTotals* to = out.add_roles();
      to->set_group(ToRole(role));
      to->set_intended_count(Signed(from.intended_count));
      to->set_issued_count(Signed(from.issued_count));
      to->set_suppressed_count(Signed(from.suppressed_count));
      to->set_late_count(Signed(from.late_count));
      to->set_declared_extra_count(Signed(from.declared_extra_count));
    }
    for (size_t op = 0; op < kCollectiveOpCount; ++op) {
      const CellValues& cell = rank.counters.cells[role][op];
      if (!cell.any()) continue;
      v1::CollectiveStats* to = out.add_collectives();
      Fill(role, op, cell, to);
      if (cell.last_issue_ns != 0) Set(rank.identity.WallTime(cell.last_issue_ns), to->mutable_last_issue_time());
      if (cell.last_complete_ns != 0) Set(rank.identity.WallTime(cell.last_complete_ns), to->mutable_last_complete_time());
    }
  }
  return out;
}

v1::Window ToMessage(const WindowView& window) {
  v1::Window out;
  out.set_window_index(Signed(window.window_index));
  for (const RankWindow& rank : window.ranks) *out.add_ranks() = ToMessage(rank);
  out.set_complete(window.complete);
  return out;
}

v1::GetJobStatsResponse ToMessage(const JobStatsView& stats) {
  v1::GetJobStatsResponse out;
  *out.mutable_job() = ToMessage(stats.job);
  Totals totals;
  CellValues cells[kGroupRoleCount][kCollectiveOpCount] = {};
  for (const RankView& rank : stats.ranks) {
    *out.add_ranks() = ToMessage(rank);
    totals.Add(rank);
    for (size_t role = 0; role < kGroupRoleCount; ++role) {
      for (size_t op = 0; op < kCollectiveOpCount; ++op) Add(cells[role][op], rank.counters.cells[role][op]);
    }
  }
  Fill(totals, out.mutable_totals());
  for (size_t role = 0; role < kGroupRoleCount; ++role) {
    for (size_t op = 0; op < kCollectiveOpCount; ++op) {
      if (cells[role][op].any()) Fill(role, op, cells[role][op], out.add_collectives());
    }
  }
  return out;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace gradgate
