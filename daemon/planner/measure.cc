#include "daemon/planner/measure.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/planner/answer.h"
#include "daemon/planner/samples.h"
#include "daemon/planner/traffic_seen.h"

namespace gradgate::planner {
namespace {

constexpr double kLeastSeconds = 1e-9;
constexpr double kStraggler = 1.05;  // a rank that computes so much longer than the median holds the others up

// What was seen together and cannot be told apart: how much of it may be what.
struct Open {
  double gathers_in_compute = 0;  // all-gathers of a micro-step, forward and backward together
  double shard_in_compute = 0;    // the reduce-scatter, where each micro-step has one
  double shard_in_sync = 0;       // of the whole reduction
  double least_sync = -1;         // of compute and reduction together; -1: they were seen apart
  double most_sync = -1;
  double added_gathers = 0;  // parameters are kept: what gathering them each time may add
};

// One job being read.
class Reading {
 public:
  Reading(const v1::GetJobStatsResponse& stats, absl::Span<const v1::Window> windows, const Numbers& given)
      : stats_(stats), given_(given), seen_(TrafficSeenIn(stats)), samples_(SamplesOf(windows)), n_(given) {}

  absl::StatusOr<Measured> Read();

 private:
  absl::Status CheckEnough() const;
  absl::Status ReadShape();
  void ReadParameters();
  void KeepSlowestRank();
  absl::Status ReadDeferred();
  absl::Status ReadTogether();
  void ReadHybridWindow(double sync);
  void LeaveGathersOpen(double compute);
  absl::Status ReadOther();
  void Tell(const char* what, const Samples& samples);
  std::vector<Numbers> Alternatives() const;
  Sharding sharding() const { return ShardingOf(n_); }
  bool sync_given() const { return given_.sync_seconds || given_.shard_sync_seconds || given_.replica_sync_seconds; }
  double GathersGiven() const { return given_.gather_forward_seconds.value_or(0) + given_.gather_backward_seconds.value_or(0); }
  absl::Status SetCompute(double seen, double inside);

  const v1::GetJobStatsResponse& stats_;
  const Numbers& given_;
  const TrafficSeen seen_;
  WindowSamples samples_;
  Numbers n_;
  Open open_;
  std::vector<v1::PlanMeasurement> measurements_;
  Notes notes_;
};

absl::Status Reading::CheckEnough() const {
  if (samples_.fewest() >= kNeededWindows) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the job has closed ", samples_.fewest(), " full windows of its present mode, beside its first, and ",
                   kNeededWindows, " are needed of every rank; ask again after some more, or give numbers and no job"));
}

absl::Status Reading::ReadShape() {
  const v1::Job& job = stats_.job();
  if (!n_.rank_count) n_.rank_count = std::max(1, job.world_size());
  if (!n_.node_count) n_.node_count = NodesSeenIn(stats_);
  if (!n_.node_count && *n_.rank_count > 1) {
    AddNote(
        "planned as if all ranks were on one node: not every rank's host is known, or hosts have unequal numbers of them; give "
        "nodes",
        &notes_);
  }
  if (!n_.accumulate) {
    n_.accumulate = job.accumulate() > 0 ? job.accumulate() : std::round(Summarise(samples_.micro_steps).median);
  }
  if (!n_.shard_count) n_.shard_count = seen_.Shards(*n_.rank_count);
  if (!n_.shard_count) {
    return absl::FailedPreconditionError(
        "how many ranks share one copy of the parameters cannot be told from the bytes that were reduced; give shards");
  }
  if (!n_.present) {
    const Sync sync = !samples_.deferred                              ? Sync::kEvery
                      : samples_.mode == v1::SYNC_MODE_WINDOW_REPLICA ? Sync::kReplica
                                                                      : Sync::kWindow;
    n_.present = Mode{sync, seen_.Kept(*n_.accumulate)};
  }
  if (static_cast<double>(stats_.ranks_size()) < *n_.rank_count) {
    AddNote(absl::StrCat("measured on ", stats_.ranks_size(), " of ", *n_.rank_count, " ranks, those that are known"), &notes_);
  }
  return absl::OkStatus();
}

void Reading::ReadParameters() {
  const PassSeen& pass = seen_.sharded ? seen_.shard_sync : seen_.replica_sync;
  if (pass.collectives == 0) return;
  if (!n_.collective_count && !n_.bucket_bytes) n_.collective_count = std::max(1.0, std::round(pass.collectives));
  if (n_.parameter_count || pass.bytes <= 0) return;
  const double each = n_.wire_element_bytes.value_or(n_.gradient_element_bytes.value_or(4));
  n_.parameter_count = std::max(1.0, std::round(pass.bytes / each));
  AddNote(absl::StrCat("parameters are the bytes of one reduction over ", each, " bytes each"), &notes_);
}

// Where one rank computes longer, the others' exposed time is mostly waiting for it, which no mode takes away.
void Reading::KeepSlowestRank() {
  const double median = Summarise(samples_.suppressed).median;
  const auto slowest = std::max_element(samples_.suppressed.begin(), samples_.suppressed.end(),
                                        [](const auto& a, const auto& b) { return Median(a.second) < Median(b.second); });
  if (slowest == samples_.suppressed.end() || Median(slowest->second) <= kStraggler * median) return;
  const int rank = slowest->first;
  AddNote(absl::StrCat("rank ", rank, " computes ", std::round(100 * (Median(slowest->second) / median - 1)),
                       " % longer than the median: its times are taken, as the others wait for it in any mode"),
          &notes_);
  for (Samples* samples : {&samples_.suppressed, &samples_.exposed, &samples_.boundary}) {
    *samples = {{rank, (*samples)[rank]}};
  }
}

void Reading::Tell(const char* what, const Samples& samples) {
  const Summary summary = Summarise(samples);
  if (summary.count == 0) return;
  v1::PlanMeasurement m;
  m.set_what(what);
  m.set_seconds(summary.median);
  m.set_spread_share(summary.spread_share);
  m.set_sample_count(static_cast<int64_t>(summary.count));
  measurements_.push_back(std::move(m));
}

// `inside`: given parts that were seen in it.
absl::Status Reading::SetCompute(double seen, double inside) {
  if (given_.compute_seconds) return absl::OkStatus();
  if (inside >= seen) {
    return absl::InvalidArgumentError(absl::StrCat("the given parts of a micro-step are ", inside,
                                                   " s, but it was measured to take ", seen,
                                                   " s in all; give less, or compute-s too"));
  }
  n_.compute_seconds = std::max(seen - inside, kLeastSeconds);
  return absl::OkStatus();
}

void Reading::LeaveGathersOpen(double compute) {
  if (sharding() == Sharding::kNone || given_.gather_forward_seconds || given_.gather_backward_seconds) return;
  const std::optional<double> own = seen_.gather_seconds_per_micro_step;
  if (n_.present->kept) {
    if (own) open_.added_gathers = *own * *n_.accumulate;  // of one pass
    AddNote("what gathering parameters in each micro-step would add is not seen while they are kept", &notes_);
    return;
  }
  open_.gathers_in_compute = std::min(compute, own.value_or(compute));
}

// g and r were seen together; their own times, where both are seen, say how they share it.
void Reading::ReadHybridWindow(double sync) {
  const std::optional<double>&shard = seen_.shard_sync.seconds, &replica = seen_.replica_sync.seconds;
  n_.sync_seconds = sync;
  if (shard && replica && *shard + *replica > 0) n_.shard_sync_seconds = sync * *shard / (*shard + *replica);
  open_.shard_in_sync = sync;
  AddNote("reduce-scatter and all-reduce are seen together in this mode", &notes_);
}

absl::Status Reading::ReadDeferred() {
  KeepSlowestRank();
  Tell("a micro-step that does not reduce", samples_.suppressed);
  Tell(samples_.late ? "reducing at the step, nothing hidden" : "what reducing adds to the boundary", samples_.exposed);
  const double compute = Summarise(samples_.suppressed).median, sync = Summarise(samples_.exposed).median;
  const bool replica_mode = n_.present->sync == Sync::kReplica;
  const double inside = (n_.present->kept ? 0 : GathersGiven()) + (replica_mode ? given_.shard_sync_seconds.value_or(0) : 0);
  if (absl::Status s = SetCompute(compute, inside); !s.ok()) return s;
  LeaveGathersOpen(*n_.compute_seconds);
  if (samples_.late) {
    open_.least_sync = std::max(0.0, sync - *n_.compute_seconds);
    AddNote("windows are reduced at the step, where nothing hides it; in the last backward it may take less", &notes_);
  }
  if (sharding() != Sharding::kHybrid) {
    if (!sync_given()) n_.sync_seconds = sync;
    return absl::OkStatus();
  }
  if (!replica_mode) {
    if (!sync_given()) ReadHybridWindow(sync);
    return absl::OkStatus();
  }
  if (!given_.replica_sync_seconds && !given_.sync_seconds) n_.replica_sync_seconds = sync;
  if (!given_.shard_sync_seconds) {
    open_.shard_in_compute = std::min(*n_.compute_seconds, seen_.shard_sync.seconds.value_or(*n_.compute_seconds));
  }
  return absl::OkStatus();
}

// Every micro-step reduces: c and s are seen together.
absl::Status Reading::ReadTogether() {
  Tell("a micro-step with its reduction", samples_.boundary);
  const double together = Summarise(samples_.boundary).median;
  const double tail = Summarise(samples_.exposed).median / *n_.accumulate;
  if (together <= 0) {
    return absl::FailedPreconditionError("no duration of a micro-step was seen; give compute-s and sync-s");
  }
  if (sync_given() || given_.compute_seconds) {
    const double sync =
        given_.sync_seconds.value_or(given_.shard_sync_seconds.value_or(0) + given_.replica_sync_seconds.value_or(0));
    if (!sync_given()) n_.sync_seconds = std::max(0.0, together - *given_.compute_seconds);
    return SetCompute(together, sync + GathersGiven());
  }
  if (tail <= 0) {
    return absl::FailedPreconditionError(
        "every micro-step reduces, and the ends of reductions are not seen here, so that computing and reducing cannot be told "
        "apart; "
        "give compute-s or sync-s, or let the job run some windows in mode window");
  }
  Tell("ends of reductions after their last bucket, a step", samples_.exposed);
  const double sync = std::min(tail, together * 0.999);
  n_.sync_seconds = sync;
  if (absl::Status s = SetCompute(together, sync + GathersGiven()); !s.ok()) return s;
  const double own = seen_.shard_sync.seconds.value_or(0) + seen_.replica_sync.seconds.value_or(0);
  open_.least_sync = sync;
  open_.most_sync = std::max(sync, std::min(own > 0 ? own : together, together * 0.999));
  if (sharding() == Sharding::kHybrid) open_.shard_in_sync = sync;
  LeaveGathersOpen(*n_.compute_seconds);
  AddNote("every micro-step reduces, so computing alone is not seen: reductions add at least what follows their last bucket",
          &notes_);
  return absl::OkStatus();
}

absl::Status Reading::ReadOther() {
  Tell("an optimizer step, begin to begin", samples_.period);
  if (n_.other_seconds || Summarise(samples_.period).count == 0) return absl::OkStatus();
  const absl::StatusOr<Numbers> numbers = WithDefaults(n_);
  if (!numbers.ok()) return numbers.status();
  Notes ignored;
  const absl::StatusOr<Parts> parts = PartsOf(*numbers, &ignored);
  if (!parts.ok()) return parts.status();
  n_.other_seconds = std::max(0.0, Summarise(samples_.period).median - StepSeconds(*numbers, *parts, *n_.present));
  return absl::OkStatus();
}

// Moves `seconds` of computing to one of the parts.
void Move(double seconds, Numbers::Value* from, Numbers::Value* to) {
  *from = std::max(from->value_or(0) - seconds, kLeastSeconds);
  *to = to->value_or(0) + seconds;
}

// Both ends of everything that is open, in all combinations.
std::vector<Numbers> Reading::Alternatives() const {
  std::vector<Numbers> all = {n_};
  const auto fork = [&all](bool open, auto change) {
    if (!open) return;
    for (size_t i = 0, before = all.size(); i < before; ++i) {
      Numbers other = all[i];
      change(&other);
      all.push_back(other);
    }
  };
  fork(open_.most_sync > 0,
       [&](Numbers* n) { Move(open_.most_sync - open_.least_sync, &n->compute_seconds, &n->sync_seconds); });
  fork(samples_.late && open_.least_sync >= 0 && n_.sync_seconds, [&](Numbers* n) { n->sync_seconds = open_.least_sync; });
  fork(open_.shard_in_sync > 0, [&](Numbers* n) { n->shard_sync_seconds = n->sync_seconds; });
  fork(open_.shard_in_sync > 0, [&](Numbers* n) { n->shard_sync_seconds = 0; });
  fork(open_.shard_in_compute > 0,
       [&](Numbers* n) { Move(open_.shard_in_compute, &n->compute_seconds, &n->shard_sync_seconds); });
  fork(open_.gathers_in_compute > 0, [&](Numbers* n) {
    const double half = std::min(open_.gathers_in_compute, *n->compute_seconds) / 2;
    Move(half, &n->compute_seconds, &n->gather_forward_seconds);
    Move(half, &n->compute_seconds, &n->gather_backward_seconds);
  });
  fork(open_.added_gathers > 0, [&](Numbers* n) { n->gather_backward_seconds = open_.added_gathers; });
  all.erase(all.begin());
  return all;
}

absl::StatusOr<Measured> Reading::Read() {
  if (absl::Status s = CheckEnough(); !s.ok()) return s;
  if (absl::Status s = ReadShape(); !s.ok()) return s;
  ReadParameters();
  if (absl::Status s = samples_.deferred ? ReadDeferred() : ReadTogether(); !s.ok()) return s;
  Measured measured;
  measured.question.alternatives = Alternatives();
  if (absl::Status s = ReadOther(); !s.ok()) return s;
  for (Numbers& n : measured.question.alternatives) n.other_seconds = n_.other_seconds;
  measured.question.numbers = n_;
  measured.measurements = std::move(measurements_);
  measured.notes = std::move(notes_);
  return measured;
}

}  // namespace

absl::StatusOr<Measured> MeasureJob(const v1::GetJobStatsResponse& stats, absl::Span<const v1::Window> windows,
                                    const Numbers& given) {
  if (absl::Status s = CheckRanges(given); !s.ok()) return s;
  return Reading(stats, windows, given).Read();
}

absl::StatusOr<v1::PlanSyncResponse> PlanJob(const v1::PlanSyncRequest& request, const v1::GetJobStatsResponse& stats,
                                             absl::Span<const v1::Window> windows) {
  absl::StatusOr<Measured> measured = MeasureJob(stats, windows, FromMessage(request.numbers()));
  if (!measured.ok()) return measured.status();
  for (const v1::PlanNumbers& changes : request.what_ifs()) measured->question.what_ifs.push_back(FromMessage(changes));
  const absl::StatusOr<Answer> answer = MakePlan(measured->question);
  if (!answer.ok()) return answer.status();
  v1::PlanSyncResponse response = ToMessage(*answer);
  *response.mutable_job() = stats.job();
  for (const v1::PlanMeasurement& m : measured->measurements) *response.add_measurements() = m;
  for (const std::string& note : measured->notes) response.add_notes(note);
  return response;
}

}  // namespace gradgate::planner
