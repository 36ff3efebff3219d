// A rank that trains over the C++ session: shim/capi/session.cc, its calls of engine, ballot and stage in the same order.

#ifndef GRADGATE_TESTS_SIM_SESSION_RANK_H_
#define GRADGATE_TESTS_SIM_SESSION_RANK_H_

#include "tests/sim/rank.h"

namespace gradgate::sim {

class SessionRank : public Rank {
 public:
  using Rank::Rank;

 private:
  enum class At : uint8_t { kLoop, kGradient, kLaunch, kEnd, kAwaitBallot, kLateLaunch, kAwaitBuckets, kToTheEnd, kClose };

  void Move() override;
  void SkipRound() override { ++window_.rounds; }
  void Loop();
  void BeginMicroStep(uint32_t planned);
  void Gradient();
  void StartRound(bool contributes, bool closes);
  void Launch(At then);
  void EndMicroStep();
  void AwaitBallot();
  void FinishRound();
  void ToTheEnd();
  void Close();
  void CloseAlone();

  struct OpenWindow {
    uint32_t rounds = 0;
    uint32_t max_micro_steps = 0;
    bool all_closed = false;
  };

  At at_ = At::kLoop;
  At after_round_ = At::kLoop;
  At after_launch_ = At::kEnd;
  OpenWindow window_;
  bool started_ = false;
  bool contributes_ = false;
  bool late_ = false;
};

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_SESSION_RANK_H_
