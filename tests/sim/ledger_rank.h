// A rank whose framework reduces and whose ledger counts: shim/capi/ledger.cc as shim/python's window.py calls it. The ballot
// comes once in a window, in a group of its own, with the first gradient of the boundary or late.

#ifndef GRADGATE_TESTS_SIM_LEDGER_RANK_H_
#define GRADGATE_TESTS_SIM_LEDGER_RANK_H_

#include "tests/sim/rank.h"

namespace gradgate::sim {

class LedgerRank : public Rank {
 public:
  using Rank::Rank;

 private:
  enum class At : uint8_t {
    kLoop,
    kGradient,
    kLaunch,
    kBackward,
    kEnd,
    kConclude,
    kAwaitBallot,
    kLateLaunch,
    kLateBuckets,
    kStep
  };

  void Move() override;
  void SkipRound() override { ++ballots_; }
  void Loop();
  void BeginMicroStep(uint32_t planned);
  void Gradient();
  void Launch(At then);
  void EndMicroStep();
  void Vote(bool contributes);
  void Conclude();
  void AwaitBallot();
  void LateDone();
  void Step();
  void Publish();
  void Predict();
  void NextIteration();

  At at_ = At::kLoop;
  bool voted_ = false;
  bool skipping_ = false;  // this micro-step
  bool discarding_ = false;
  bool unpublished_ = false;
  uint32_t skips_ = 0;
  uint32_t ballots_ = 0;
  // Of the verdict.
  uint32_t min_micro_steps_ = 0;
  uint32_t max_micro_steps_ = 0;
  bool any_contribute_ = false;
  bool discarded_ = false;
  bool outrun_ = false;      // this window went on after its predicted end
  uint32_t last_equal_ = 0;  // micro-steps that all ranks brought to the window before
};

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_LEDGER_RANK_H_
