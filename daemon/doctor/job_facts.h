// A job's evidence, put in order: its ranks, what they have closed together, and how long waiting is normal in it.
//
// Text and numbers come from trainers and from other daemons; nothing here trusts them, and nothing is too large to take.
//
// Thread class: immutable once made; any thread. Holds pointers into the evidence, which outlives it.

#ifndef GRADGATE_DAEMON_DOCTOR_JOB_FACTS_H_
#define GRADGATE_DAEMON_DOCTOR_JOB_FACTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gradgate/v1/diagnosis.pb.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

// What the doctor judges. Every field may be incomplete: a node that did not answer is in `answers` alone.
struct Evidence {
  std::vector<v1::NodeEvidence> nodes;  // of one job
  std::vector<v1::NodeAnswer> answers;  // daemons that were asked
  bool other_nodes_asked = false;       // false: one node alone, whose word says nothing of the others
};

namespace doctor {

absl::Duration ToDuration(const google::protobuf::Duration& duration);
google::protobuf::Duration ToMessage(absl::Duration duration);

// One rank, from the node that knows it best.
struct Rank {
  const v1::RankEvidence* told = nullptr;
  std::string node_name;

  int32_t rank() const { return told->stats().rank(); }
  v1::State state() const { return told->stats().state(); }
  bool running() const { return state() == v1::STATE_RUNNING; }
  bool ended_badly() const { return state() == v1::STATE_LOST || state() == v1::STATE_FAILED; }
  int64_t window_index() const { return told->stats().window_index(); }
  absl::Duration idle() const { return ToDuration(told->progress().idle()); }
  // Has begun the open window: a micro-step, or a collective that belongs to it.
  bool inside_window() const;
  // Its kernel says that it does not run: stopped by a signal or a debugger, or dead.
  bool stopped() const;
  // Where its windows() begin that are under one policy with the last; those before say nothing of how it is now.
  int first_in_force() const;
  // No collective of its ended, or will end, unseen.
  bool ends_seen() const;
  // In a collective whose end would be seen.
  bool in_collective() const { return told->progress().in_flight_count() > 0; }
};

// A window that all judged ranks have closed and whose records are known; in the order of JobFacts::judged().
struct SharedWindow {
  int64_t window_index = 0;
  std::vector<const v1::WindowEvidence*> by_rank;
};

class JobFacts {
 public:
  // Waiting is never called a hang before this.
  static constexpr absl::Duration kLeastHang = absl::Seconds(15);
  // Before the first windows are closed, whose waits nobody knows: compilers run then.
  static constexpr absl::Duration kStartingHang = absl::Minutes(5);

  explicit JobFacts(const Evidence& evidence);

  const Evidence& evidence() const { return evidence_; }
  const std::vector<Rank>& ranks() const { return ranks_; }      // by rank; each once
  const std::vector<Rank>& running() const { return running_; }  // those of them that run
  const std::vector<Rank>& judged() const { return running_.empty() ? ranks_ : running_; }
  int64_t world_size() const { return world_size_; }
  absl::Duration age() const { return age_; }  // of its oldest rank

  // No rank's windows tell yet how long waiting is normal.
  bool starting() const { return wait_count_ == 0; }
  absl::Duration wait_p99() const { return wait_p99_; }
  // From here on waiting is a hang.
  absl::Duration hang_threshold() const;

  // Some rank ended badly: windows that fail and calls that are refused after it are part of that.
  bool any_ended_badly() const;

  // Oldest first.
  const std::vector<SharedWindow>& shared_windows() const { return shared_windows_; }

 private:
  void TakeRanks();
  void ShareWindows();

  const Evidence& evidence_;
  std::vector<Rank> ranks_;
  std::vector<Rank> running_;
  std::vector<SharedWindow> shared_windows_;
  int64_t world_size_ = 0;
  absl::Duration age_;
  absl::Duration wait_p99_;
  int64_t wait_count_ = 0;
};

// The middle one; the upper of two. Zero of none.
absl::Duration Median(std::vector<absl::Duration> values);

}  // namespace doctor
}  // namespace gradgate

#endif  // GRADGATE_DAEMON_DOCTOR_JOB_FACTS_H_
