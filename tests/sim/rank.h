// One simulated rank: what a session and a ledger have in common. The engine, the ballot and the policy stage are the real
// ones.
//
// A rank acts when it is woken, does one thing, and says when it wants to act again; between any two actions anything else may
// happen.

#ifndef GRADGATE_TESTS_SIM_RANK_H_
#define GRADGATE_TESTS_SIM_RANK_H_

#include <array>
#include <cstdint>
#include <string>

#include "proto/link/frames.h"
#include "shim/core/ballot.h"
#include "shim/core/policy_stage.h"
#include "shim/core/window_engine.h"
#include "tests/sim/book.h"
#include "tests/sim/collectives.h"
#include "tests/sim/scenario.h"

namespace gradgate::sim {

class World;

class Rank {
 public:
  enum class End : uint8_t { kRunning, kDone, kFailed, kDead };

  Rank(World& world, const Scenario& scenario, uint32_t rank);
  virtual ~Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void Start();
  void Act();
  End end() const { return end_; }

 protected:
  virtual void Move() = 0;
  // Its next ballot tells a round too many.
  virtual void SkipRound() = 0;

  // The next action, after some time.
  void Pause(uint32_t most);
  void Finish();
  // The job is over for this rank. `invariant`: broken, if nothing that went wrong before explains it.
  void Fail(const char* invariant, const std::string& why);
  // An answer of the engine that may not be a refusal.
  Action Granted(const Decision& decision);

  Gradient Contribute();

  void IssueBallot(uint32_t channel, Ballot ballot);
  BallotResult ReadBallot(uint32_t channel);
  // Whether the collective is done; if not, the rank waits or has failed.
  bool Done(uint32_t channel, uint32_t ticket);
  void LaunchBucket(uint32_t channel);
  // Whether all buckets are done, their sums then taken over as means.
  bool BucketsDone(uint32_t channel);
  void ForgetBuckets() { bucket_next_ = buckets_done_ = 0; }

  // After the engine has closed its window: what was agreed takes effect, and frames are taken.
  void WindowClosed();
  // Before an iteration's first micro-step: a rogue does what no rank may, once.
  void MaybeGoRogue();

  WindowConfig ConfigFor(const Settings& settings) const;

  uint64_t window() const { return engine_.counts().window_index; }

  World& world_;
  const Scenario& s_;
  const uint32_t rank_;
  const RankTraits& traits_;
  uint32_t predicted_ = 0;  // the micro-step that will likely end its window; 0: not known
  WindowEngine engine_;     // made from the one before
  PolicyStage stage_;
  Settings settings_;
  uint32_t iteration_ = 0;
  uint32_t micro_steps_ = 0;    // ended ones of this iteration
  uint32_t reductions_ = 0;     // of the open window
  bool refused_alone_ = false;  // what it was closed for: this rank does not step, others do
  uint32_t bucket_next_ = 0;
  uint32_t ballot_ticket_ = 0;
  Gradient gradient_{};

 private:
  void Poll();
  void Offer(const link::PolicyFrame& frame);
  PolicyRejection Obstacle(const SyncPolicy& policy) const;
  void Die();

  End end_ = End::kRunning;
  bool rogue_done_ = false;
  uint32_t actions_ = 0;
  uint32_t buckets_done_ = 0;
  std::array<uint32_t, kTensors> bucket_tickets_{};
  int64_t deadline_ = 0;  // of the wait in progress; 0: none
};

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_RANK_H_
