// Evidence of a job in good health, for tests to spoil.
//
// Thread class: one thread per object.

#ifndef GRADGATE_TESTS_DAEMON_DOCTOR_JOB_BUILDER_H_
#define GRADGATE_TESTS_DAEMON_DOCTOR_JOB_BUILDER_H_

#include <cstdint>

#include "absl/time/time.h"
#include "daemon/doctor/doctor.h"

namespace gradgate::testing {

struct JobShape {
  int32_t ranks = 3;
  int64_t windows = 40;     // closed; the last 20 are kept
  int32_t micro_steps = 4;  // of each window
};

// Each rank has closed `windows` full windows of 100 ms, with one reduction each, and computes in the next.
Evidence HealthyJob(const JobShape& shape = {});

v1::RankEvidence& RankOf(Evidence& evidence, int rank);

// What a window of a rank is; `from_end` 0 is its last.
v1::WindowEvidence& WindowOf(Evidence& evidence, int rank, int from_end = 0);

// Calls `spoil(window)` for each kept window of one rank, or of all where `rank` is −1.
template <typename Spoil>
void EachWindow(Evidence& evidence, int rank, Spoil spoil) {
  for (v1::NodeEvidence& node : evidence.nodes) {
    for (v1::RankEvidence& one : *node.mutable_ranks()) {
      if (rank >= 0 && one.stats().rank() != rank) continue;
      for (v1::WindowEvidence& window : *one.mutable_windows()) spoil(window);
    }
  }
}

// The rank waits in a collective of its open window.
void Wait(v1::RankEvidence& rank, absl::Duration idle, int32_t gradient_issued = 1);
// The rank stands still inside micro-step `micro_step` of its open window, or between windows for 0.
void Stand(v1::RankEvidence& rank, absl::Duration idle, int32_t micro_step);
void End(v1::RankEvidence& rank, v1::State state, absl::Duration ago);

google::protobuf::Duration Message(absl::Duration duration);

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_DOCTOR_JOB_BUILDER_H_
