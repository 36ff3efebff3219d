// A job as messages, built up by a test: ranks, what their windows took, what their collectives did.

#ifndef GRADGATE_TESTS_DAEMON_PLANNER_JOB_H_
#define GRADGATE_TESTS_DAEMON_PLANNER_JOB_H_

#include <cmath>
#include <string>
#include <vector>

#include "gradgate/v1/stats.pb.h"

namespace gradgate::testing {

inline void SetSeconds(double seconds, google::protobuf::Duration* out) {
  out->set_seconds(static_cast<int64_t>(std::floor(seconds)));
  out->set_nanos(static_cast<int32_t>(std::lround(1e9 * (seconds - std::floor(seconds)))));
}

struct FakeWindow {
  double suppressed = 0, boundary = 0, exposed = 0;  // seconds
  double period = 0;                                 // to the begin of the next one
  v1::SyncMode mode = v1::SYNC_MODE_WINDOW;
  bool late = false;
};

class FakeJob {
 public:
  FakeJob(int ranks, int accumulate, v1::SyncMode mode) : accumulate_(accumulate) {
    v1::Job& job = *stats.mutable_job();
    job.set_job_name("job");
    job.set_run_id(std::string(32, 'a'));
    job.set_world_size(ranks);
    job.set_accumulate(accumulate);
    job.set_sync_mode(mode);
    for (int rank = 0; rank < ranks; ++rank) {
      v1::RankStats& r = *stats.add_ranks();
      r.set_rank(rank);
      r.set_host_name("node-0");
    }
  }

  // A window of every rank, `scale` times as long on rank i.
  void Close(const FakeWindow& w, const std::vector<double>& scale = {}) {
    v1::Window& window = *windows.insert(windows.begin(), v1::Window{});
    window.set_window_index(next_index_++);
    for (int rank = 0; rank < stats.ranks_size(); ++rank) {
      const double times = rank < static_cast<int>(scale.size()) ? scale[rank] : 1;
      v1::RankWindow& out = *window.add_ranks();
      out.set_rank(rank);
      out.set_kind(v1::WINDOW_KIND_FULL);
      out.set_sync_mode(w.mode);
      out.set_micro_step_count(accumulate_);
      out.set_late(w.late);
      SetSeconds(w.suppressed * times, out.mutable_suppressed_median_duration());
      SetSeconds(w.boundary, out.mutable_boundary_duration());
      SetSeconds(w.suppressed > 0 && !w.late ? std::max(0.0, w.boundary - w.suppressed * times) : w.exposed,
                 out.mutable_exposed_duration());
      out.mutable_begin_time()->set_seconds(1'700'000'000 + static_cast<int64_t>(std::floor(begin_)));
      out.mutable_begin_time()->set_nanos(static_cast<int32_t>(std::lround(1e9 * (begin_ - std::floor(begin_)))));
      v1::SyncTotals& totals = *stats.mutable_ranks(rank)->mutable_totals();
      totals.set_window_full_count(totals.window_full_count() + 1);
      totals.set_micro_step_count(totals.micro_step_count() + accumulate_);
    }
    begin_ += w.period;
  }

  void CloseMany(int times, const FakeWindow& w, const std::vector<double>& scale = {}) {
    for (int i = 0; i < times; ++i) Close(w, scale);
  }

  // On every rank: so many reductions in groups of a role, of so many collectives each.
  v1::CollectiveStats* Reduce(int rank, v1::GroupRole role, v1::CollectiveOp op, int64_t reductions, int64_t collectives,
                              int64_t bytes_each) {
    v1::RankStats& r = *stats.mutable_ranks(rank);
    if (reductions > 0) {
      v1::RoleTotals& totals = *r.add_roles();
      totals.set_group(role);
      totals.set_issued_count(reductions);
    }
    v1::CollectiveStats* c = r.add_collectives();
    c->set_group(role);
    c->set_op(op);
    c->set_gradient_issued_count(collectives);
    c->set_gradient_bytes(collectives * bytes_each);
    return c;
  }

  v1::GetJobStatsResponse stats;
  std::vector<v1::Window> windows;  // newest first

 private:
  const int accumulate_;
  int64_t next_index_ = 0;
  double begin_ = 0;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_PLANNER_JOB_H_
