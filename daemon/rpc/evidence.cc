#include "daemon/rpc/evidence.h"

#include "daemon/rpc/convert.h"
#include "daemon/rpc/fields.h"

namespace gradgate {
namespace {

v1::WindowEvidence ToEvidence(const RankIdentity& identity, const TrailWindow& window) {
  const page::WindowRecord& record = window.record;
  v1::WindowEvidence out;
  out.set_window_index(Signed(record.window_index));
  *out.mutable_window() =
      ToMessage(RankWindow{identity.rank, identity.WallTime(record.begin_ns), identity.WallTime(record.end_ns), record});
  Set(record.end_ns - record.begin_ns, out.mutable_window_duration());
  if (window.gap_ns > 0) Set(window.gap_ns, out.mutable_gap_duration());
  if (!window.events.exact) return out;
  out.set_events_exact(true);
  if (window.events.ballot_ns > 0) Set(window.events.ballot_ns, out.mutable_ballot_duration());
  if (window.events.gradient_ns > 0) Set(window.events.gradient_ns, out.mutable_gradient_duration());
  Set(window.events.micro_step_ns, out.mutable_micro_step_duration());
  return out;
}

void FillProgress(const RankEvidenceView& view, v1::RankProgress* out) {
  Set(view.idle, out->mutable_idle());
  out->set_in_flight_count(Signed(view.in_flight_count));
  out->set_gradient_issued_count(Signed32(view.open.gradient_issued_count));
  out->set_ours_issued_count(Signed32(view.open.ours_issued_count));
  out->set_other_issued_count(Signed32(view.open.other_issued_count));
  out->set_counts_exact(view.open.exact);
  out->set_in_micro_step(view.open.in_micro_step);
}

v1::RankEvidence ToEvidence(const RankEvidenceView& view, absl::Time now) {
  const RankIdentity& identity = view.rank.identity;
  const TotalsValues& totals = view.rank.counters.totals;
  v1::RankEvidence out;
  *out.mutable_stats() = ToMessage(view.rank);
  out.set_world_size(Signed32(identity.world_size));
  out.set_enforcement(static_cast<v1::Enforcement>(EnforcementInForce(identity, view.rank.counters)));
  out.set_accumulate(Signed32(identity.accumulate));
  out.set_config_hash(identity.config_hash);
  Set(now - identity.start_time(), out.mutable_age());
  if (view.rank.end_time) Set(now - *view.rank.end_time, out.mutable_ended());
  out.set_override_count(Signed(totals.override_count));
  out.set_window_discarded_count(Signed(totals.window_discarded_count));
  out.set_policy_staged_version(Signed(totals.policy_staged_version));
  out.set_policy_rejected_version(Signed(totals.policy_rejected_version));
  out.set_policy_rejection(Signed32(totals.policy_rejection));
  FillProgress(view, out.mutable_progress());
  Set(view.wait_p99, out.mutable_wait_p99());
  out.set_wait_count(Signed32(view.wait_count));
  for (const TrailWindow& window : view.windows) *out.add_windows() = ToEvidence(identity, window);
  if (view.early_gradient_ns > 0) Set(view.early_gradient_ns, out.mutable_early_gradient_duration());
  out.set_event_missed_count(Signed(view.event_missed_count));
  out.set_window_missed_count(Signed(view.window_missed_count));
  out.set_page_error_count(Signed(view.page_error_count));
  return out;
}

}  // namespace

v1::NodeEvidence ToEvidence(const JobEvidenceView& view) {
  v1::NodeEvidence out;
  *out.mutable_job() = ToMessage(view.job);
  for (const RankEvidenceView& rank : view.ranks) *out.add_ranks() = ToEvidence(rank, view.now);
  return out;
}

}  // namespace gradgate
