#include "tests/client/samples.h"

namespace gradgate::testing {
namespace {

constexpr int64_t kStartSeconds = 1767225599;  // 2025-12-31 23:59:59Z
constexpr int64_t kWindows = 126;
constexpr int64_t kBytesPerWindow = 1290000;

v1::RankStats SampleRank(int rank) {
  v1::RankStats stats;
  stats.set_slot(rank + 3);
  stats.set_rank(rank);
  stats.set_local_rank(rank);
  stats.set_state(v1::STATE_RUNNING);
  stats.set_process_id(4711 + rank);
  stats.set_host_name("node-a");
  stats.mutable_last_event_time()->set_seconds(kStartSeconds + 82);
  stats.set_window_index(kWindows);
  stats.set_micro_step(2);
  stats.set_sync_mode(v1::SYNC_MODE_WINDOW);
  v1::SyncTotals& totals = *stats.mutable_totals();
  totals.set_micro_step_count(4 * kWindows - 1);
  totals.set_step_count(kWindows);
  totals.set_window_full_count(kWindows - 1);
  totals.set_window_partial_count(1);
  totals.set_window_late_count(1);
  totals.set_ballot_count(kWindows);
  totals.set_reduction_intended_count(kWindows);
  totals.set_reduction_issued_count(kWindows);
  totals.set_reduction_suppressed_count(3 * kWindows - 1);
  totals.set_reduction_late_count(1);
  totals.set_gradient_collective_count(2 * kWindows);
  totals.set_gradient_bytes(kWindows * kBytesPerWindow);
  totals.mutable_exposed_duration()->set_nanos(250000000 + rank * 1000000);
  totals.mutable_wait_duration()->set_nanos(125000000);
  totals.mutable_window_duration()->set_seconds(10);
  totals.set_event_read_count(2000);
  v1::RoleTotals& role = *stats.add_roles();
  role.set_group(v1::GROUP_ROLE_DP);
  role.set_intended_count(kWindows);
  role.set_issued_count(kWindows);
  return stats;
}

void AddCollective(v1::CollectiveOp op, int64_t gradient, int64_t ours, int64_t other, int64_t gradient_bytes,
                   v1::GetJobStatsResponse* stats) {
  v1::CollectiveStats& collective = *stats->add_collectives();
  collective.set_group(v1::GROUP_ROLE_DP);
  collective.set_op(op);
  collective.set_gradient_issued_count(gradient);
  collective.set_ours_issued_count(ours);
  collective.set_other_issued_count(other);
  collective.set_completed_count(gradient + ours + other);
  collective.set_gradient_bytes(gradient_bytes);
  collective.set_ours_bytes(ours * 144);
  collective.set_other_bytes(other * 8);
}

}  // namespace

absl::Time SampleNow() { return absl::FromUnixSeconds(kStartSeconds + 83); }

v1::Job SampleJob(const std::string& name) {
  v1::Job job;
  job.set_job_name(name);
  job.set_run_id("3f2a91c0d4e5f60718293a4b5c6d7e8f");
  job.set_user_id(1000);
  job.set_world_size(2);
  job.set_state(v1::STATE_RUNNING);
  job.mutable_start_time()->set_seconds(kStartSeconds);
  job.set_running_rank_count(2);
  job.set_sync_mode(v1::SYNC_MODE_WINDOW);
  job.set_enforcement(v1::ENFORCEMENT_ENFORCE);
  job.set_accumulate(4);
  job.set_window_count(kWindows);
  return job;
}

v1::GetJobStatsResponse SampleStats(const std::string& name) {
  v1::GetJobStatsResponse stats;
  *stats.mutable_job() = SampleJob(name);
  *stats.add_ranks() = SampleRank(0);
  *stats.add_ranks() = SampleRank(1);
  v1::SyncTotals& totals = *stats.mutable_totals();
  const v1::SyncTotals& one = stats.ranks(0).totals();
  totals.set_micro_step_count(2 * one.micro_step_count());
  totals.set_step_count(2 * one.step_count());
  totals.set_window_full_count(2 * one.window_full_count());
  totals.set_window_partial_count(2 * one.window_partial_count());
  totals.set_window_late_count(2 * one.window_late_count());
  totals.set_ballot_count(2 * one.ballot_count());
  totals.set_reduction_intended_count(2 * one.reduction_intended_count());
  totals.set_reduction_issued_count(2 * one.reduction_issued_count());
  totals.set_reduction_suppressed_count(2 * one.reduction_suppressed_count());
  totals.set_reduction_late_count(2 * one.reduction_late_count());
  totals.set_gradient_collective_count(2 * one.gradient_collective_count());
  totals.set_gradient_bytes(2 * one.gradient_bytes());
  totals.mutable_exposed_duration()->set_nanos(501000000);
  totals.mutable_wait_duration()->set_nanos(250000000);
  totals.mutable_window_duration()->set_seconds(20);
  totals.set_event_read_count(2 * one.event_read_count());
  AddCollective(v1::COLLECTIVE_OP_ALL_REDUCE, 4 * kWindows, 2 * kWindows, 12, totals.gradient_bytes(), &stats);
  AddCollective(v1::COLLECTIVE_OP_BROADCAST, 0, 0, 4, 0, &stats);
  return stats;
}

v1::Window SampleWindow(int64_t index) {
  v1::Window window;
  window.set_window_index(index);
  window.set_complete(true);
  for (int i = 0; i < 2; ++i) {
    v1::RankWindow& rank = *window.add_ranks();
    rank.set_rank(i);
    rank.set_kind(v1::WINDOW_KIND_FULL);
    rank.set_sync_mode(v1::SYNC_MODE_WINDOW);
    rank.set_micro_step_count(4);
    rank.set_planned_micro_step_count(4);
    rank.set_min_micro_step_count(4);
    rank.set_max_micro_step_count(4);
    rank.set_last_reduction_at(4);
    rank.set_reduction_intended_count(1);
    rank.set_reduction_issued_count(1);
    rank.set_reduction_suppressed_count(3);
    rank.set_gradient_bytes(kBytesPerWindow);
    rank.mutable_exposed_duration()->set_nanos(1984000 + i * 1000);
    rank.mutable_wait_duration()->set_nanos(992000);
  }
  return window;
}

}  // namespace gradgate::testing
