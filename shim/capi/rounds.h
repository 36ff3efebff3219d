// One reduction over all ranks, called a round: the ballot, the item counts where they are needed, the buckets, and, where
// ranks differ, one more collective that names them. In this order on every rank, whether it reduces in its last backward or
// late:
//
//   Start: ballot ─► [sums] ─► LaunchReady: bucket 0, 1, … ─► Finish: [the rest] ─► read the ballot ─► wait ─► [names]
//
// A rank that contributes launches buckets before it has read the ballot (that is the overlap); its own contribution makes all
// others launch theirs. A rank that does not contribute reads first, and launches only if another contributes.
//
// Counts every collective where it is issued and where it is done. Thread class: loop's thread; completion is counted on the
// transport's.

#ifndef GRADGATE_SHIM_CAPI_ROUNDS_H_
#define GRADGATE_SHIM_CAPI_ROUNDS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shim/core/ballot.h"
#include "shim/core/status.h"
#include "shim/reduce/arrival_board.h"
#include "shim/reduce/reducer.h"
#include "shim/reduce/transport.h"
#include "shim/stats/recorder.h"

namespace gradgate {

struct RoundsConfig {
  Transport* transport = nullptr;  // borrowed
  ArrivalBoard* board = nullptr;   // borrowed
  Recorder* recorder = nullptr;    // borrowed
  Reducer* reducer = nullptr;      // borrowed
  int64_t deadline_ns = 0;         // for a round, naming included
  bool sums = false;               // items and active ranks are wanted
  bool name_unequal = false;       // unequal micro-steps are a disagreement, to be named
};

struct RoundInput {
  Ballot ballot;
  int64_t items = 0;          // of this rank, not yet told in an earlier round of this window
  bool newly_active = false;  // this rank's first contribution to this window
  bool intended = false;      // the policy wanted this reduction
  bool late = false;
  bool zero = false;  // this rank has nothing: its gradients become zeros before they take part
};

struct RoundOutcome {
  BallotResult ballot{std::array<int64_t, Ballot::kWords>{}};
  bool reduced = false;  // gradient collectives were issued
  int64_t items = 0;
  int64_t active_ranks = 0;
  int64_t last_issue_ns = 0;
  int64_t complete_ns = 0;
  std::string differences;  // who differs in what, if it had to be asked
};

// What this window has issued so far.
struct RoundCounts {
  uint32_t issued_reductions = 0;
  uint32_t late_reductions = 0;
  uint32_t intended_collectives = 0;
  uint32_t issued_collectives = 0;
  uint64_t gradient_bytes = 0;
};

class Rounds {
 public:
  explicit Rounds(const RoundsConfig& config) : c_(config) {}
  ~Rounds();  // aborts what is in flight and waits for it, at most until its deadline
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  bool started() const { return started_; }
  const RoundInput& input() const { return input_; }

  void Start(const RoundInput& input);

  // Launches the buckets that are ready. Start must have been called.
  void LaunchReady();

  // Called for each bucket in turn, when it is complete and while later ones are still on their way, with an outcome whose
  // items and active ranks are known.
  using BucketDone = std::function<void(uint32_t bucket, const RoundOutcome& outcome)>;

  // Completes the round. On failure (kDeadlineExceeded, kUnavailable, kAborted) the transport is dead and the message names the
  // ranks; gradients are then not to be used, some buckets may be done and others not.
  Status Finish(RoundOutcome* outcome, const BucketDone& bucket_done);

  const RoundCounts& counts() const { return counts_; }
  uint32_t completed_collectives() const { return gradient_completed_.load(std::memory_order_relaxed); }
  uint32_t failed_collectives() const { return gradient_failed_.load(std::memory_order_relaxed); }
  void ResetCounts();

 private:
  static void Done(void* user, uint64_t tag, bool ok, int64_t start_ns, int64_t done_ns);

  AllReduceRequest Request(TrafficClass traffic) const;
  Ticket StartOurs(std::vector<int64_t>& words, ReduceOp op);
  Status Wait(Ticket ticket);
  Status WaitForBuckets(RoundOutcome* outcome, const BucketDone& bucket_done);
  Status NameDifferences(std::string* text);
  Status Explain(const Status& status);

  const RoundsConfig c_;
  RoundInput input_;
  RoundCounts counts_;
  bool started_ = false;
  bool posted_ = false;  // this rank has told the board where it waits
  int64_t deadline_ns_ = 0;
  int64_t last_issue_ns_ = 0;
  Ticket last_ = 0;
  Ticket ballot_ticket_ = 0;
  std::vector<Ticket> bucket_tickets_;  // of this round
  std::vector<int64_t> ballot_words_;
  std::vector<int64_t> sum_words_;
  std::vector<int64_t> name_words_;
  std::atomic<uint64_t> in_flight_{0};
  std::atomic<uint32_t> gradient_completed_{0};
  std::atomic<uint32_t> gradient_failed_{0};
  std::atomic<int64_t> last_done_ns_{0};
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CAPI_ROUNDS_H_
