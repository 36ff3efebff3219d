#include "tests/daemon/doctor/job_builder.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace gradgate::testing {
namespace {

constexpr int64_t kKept = 20;

v1::WindowEvidence HealthyWindow(const JobShape& shape, int32_t rank, int64_t index) {
  v1::WindowEvidence out;
  out.set_window_index(index);
  v1::RankWindow& window = *out.mutable_window();
  window.set_rank(rank);
  window.set_kind(v1::WINDOW_KIND_FULL);
  window.set_sync_mode(v1::SYNC_MODE_WINDOW);
  for (const auto set : {&v1::RankWindow::set_micro_step_count, &v1::RankWindow::set_planned_micro_step_count,
                         &v1::RankWindow::set_min_micro_step_count, &v1::RankWindow::set_max_micro_step_count,
                         &v1::RankWindow::set_last_reduction_at}) {
    (window.*set)(shape.micro_steps);
  }
  window.set_reduction_intended_count(1);
  window.set_reduction_issued_count(1);
  window.set_reduction_suppressed_count(shape.micro_steps - 1);
  for (const auto set : {&v1::RankWindow::set_collective_intended_count, &v1::RankWindow::set_collective_issued_count,
                         &v1::RankWindow::set_collective_completed_count}) {
    (window.*set)(2);
  }
  window.set_gradient_bytes(1'000'000);
  *window.mutable_suppressed_median_duration() = Message(absl::Milliseconds(20));
  *window.mutable_boundary_duration() = Message(absl::Milliseconds(30));
  *window.mutable_exposed_duration() = Message(absl::Milliseconds(10));
  *window.mutable_wait_duration() = Message(absl::Milliseconds(5));
  out.set_events_exact(true);
  *out.mutable_ballot_duration() = Message(absl::Milliseconds(3));
  *out.mutable_gradient_duration() = Message(absl::Milliseconds(8));
  *out.mutable_micro_step_duration() = Message(absl::Milliseconds(90));
  *out.mutable_gap_duration() = Message(absl::Milliseconds(2));
  *out.mutable_window_duration() = Message(absl::Milliseconds(100));
  return out;
}

v1::RankEvidence HealthyRank(const JobShape& shape, int32_t rank) {
  v1::RankEvidence out;
  v1::RankStats& stats = *out.mutable_stats();
  stats.set_rank(rank);
  stats.set_state(v1::STATE_RUNNING);
  stats.set_process_id(4000 + rank);
  stats.set_host_name("host-a");
  stats.set_shim_version("0.1.0");
  stats.set_window_index(shape.windows);
  stats.set_micro_step(2);
  stats.set_sync_mode(v1::SYNC_MODE_WINDOW);
  v1::SyncTotals& totals = *stats.mutable_totals();
  totals.set_step_count(shape.windows);
  totals.set_micro_step_count(shape.windows * shape.micro_steps + 2);
  totals.set_reduction_intended_count(shape.windows);
  totals.set_reduction_issued_count(shape.windows);
  v1::CollectiveStats& cell = *stats.add_collectives();
  cell.set_group(v1::GROUP_ROLE_DP);
  cell.set_op(v1::COLLECTIVE_OP_ALL_REDUCE);
  cell.set_intended_count(2 * shape.windows);
  cell.set_gradient_issued_count(2 * shape.windows);
  cell.set_completed_count(3 * shape.windows);
  out.set_world_size(shape.ranks);
  out.set_enforcement(v1::ENFORCEMENT_ENFORCE);
  out.set_accumulate(shape.micro_steps);
  out.set_config_hash(7);
  *out.mutable_age() = Message(absl::Minutes(10));
  out.mutable_progress()->set_counts_exact(true);
  out.mutable_progress()->set_in_micro_step(true);
  *out.mutable_progress()->mutable_idle() = Message(absl::Milliseconds(12));
  *out.mutable_wait_p99() = Message(absl::Milliseconds(15));
  out.set_wait_count(static_cast<int32_t>(std::max<int64_t>(shape.windows - 1, 0)));
  for (int64_t i = std::max<int64_t>(0, shape.windows - kKept); i < shape.windows; ++i) {
    *out.add_windows() = HealthyWindow(shape, rank, i);
  }
  *out.mutable_early_gradient_duration() = Message(absl::Milliseconds(8));
  return out;
}

}  // namespace

google::protobuf::Duration Message(absl::Duration duration) { return doctor::ToMessage(duration); }

Evidence HealthyJob(const JobShape& shape) {
  Evidence evidence;
  v1::NodeEvidence& node = evidence.nodes.emplace_back();
  for (int32_t rank = 0; rank < shape.ranks; ++rank) *node.add_ranks() = HealthyRank(shape, rank);
  v1::NodeAnswer& answer = evidence.answers.emplace_back();
  answer.set_answered(true);
  return evidence;
}

v1::RankEvidence& RankOf(Evidence& evidence, int rank) {
  for (v1::NodeEvidence& node : evidence.nodes) {
    for (v1::RankEvidence& one : *node.mutable_ranks()) {
      if (one.stats().rank() == rank) return one;
    }
  }
  std::abort();  // the test names a rank that it did not make
}

v1::WindowEvidence& WindowOf(Evidence& evidence, int rank, int from_end) {
  v1::RankEvidence& one = RankOf(evidence, rank);
  return *one.mutable_windows(one.windows_size() - 1 - from_end);
}

void Wait(v1::RankEvidence& rank, absl::Duration idle, int32_t gradient_issued) {
  rank.mutable_stats()->set_micro_step(rank.accumulate());
  v1::RankProgress& progress = *rank.mutable_progress();
  progress.set_in_micro_step(false);
  progress.set_ours_issued_count(1);
  progress.set_gradient_issued_count(gradient_issued);
  progress.set_in_flight_count(gradient_issued + 1);
  *progress.mutable_idle() = Message(idle);
}

void Stand(v1::RankEvidence& rank, absl::Duration idle, int32_t micro_step) {
  rank.mutable_stats()->set_micro_step(micro_step);
  v1::RankProgress& progress = *rank.mutable_progress();
  progress.set_in_micro_step(micro_step > 0);
  progress.set_ours_issued_count(0);
  progress.set_gradient_issued_count(0);
  progress.set_in_flight_count(0);
  *progress.mutable_idle() = Message(idle);
}

void End(v1::RankEvidence& rank, v1::State state, absl::Duration ago) {
  rank.mutable_stats()->set_state(state);
  *rank.mutable_ended() = Message(ago);
}

}  // namespace gradgate::testing
