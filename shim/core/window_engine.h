// The window engine: decides at which micro-step a rank reduces, as a pure state machine. No clock, socket, memory or peer.
//
//                 BeginMicroStep                EndMicroStep, closing
//        ┌─────► in micro-step ────────────────────────────────────────► reduced
//        │            │      ▲                                             │
//      idle           │      │ BeginMicroStep                              │
//        ▲            ▼      │                                             │
//        │           open ───┴─── BeforeStep: reduce late, LateReduced ──► reduced
//        │                                                                 │
//        └───────────────────────── Close ◄────────────────────────────────┘
//
//   state          | BeginMicroStep      | GradientReady | EndMicroStep | Abandon          | BeforeStep              | Close
//   idle           | accumulate / reduce | refuse        | refuse       | refuse           | reduce late (empty)     | refuse
//   in micro-step  | refuse              | accumulate    | see below    | back, or refuse  | refuse                  | refuse
//   open           | accumulate / reduce | refuse        | refuse       | refuse           | reduce late, or proceed | refuse
//   reduced        | see below           | refuse        | refuse       | refuse           | proceed                 | idle
//   failed         | refuse              | refuse        | refuse       | refuse           | refuse                  | refuse
//
// A micro-step reduces when every one does (every_micro_step) or when it closes its window: told by `last`, or being the
// accumulate-th, or in an undeclared window the predicted one. A prediction is a guess: the next micro-step outruns it, and
// what it adds is reduced once more; any other reduced window refuses, it must be closed first. A micro-step in which nothing
// was reduced all the same (NotReduced: skipped, without a backward) leaves its window open and pending, however it was told to
// end. An open window in which nothing is pending (every micro-step reduced, cut short) proceeds at the step.
//
// Every "refuse" leaves the state as it was. Thread class: one thread at a time. Nothing allocates.

#ifndef GRADGATE_SHIM_CORE_WINDOW_ENGINE_H_
#define GRADGATE_SHIM_CORE_WINDOW_ENGINE_H_

#include <cstdint>
#include <string_view>

#include "proto/shm/types.h"

namespace gradgate {

enum class Last : uint8_t { kByCount = 0, kNo = 1, kYes = 2 };

enum class Action : uint8_t {
  kAccumulate,  // go on, do not reduce
  kReduce,      // this micro-step's backward reduces
  kReduceLate,  // reduce now, before the step
  kProceed,     // nothing is left to reduce
  kRefuse,      // see Refusal
};

enum class Refusal : uint8_t {
  kNone,
  kNestedMicroStep,      // the previous micro-step has not ended
  kOutsideMicroStep,     // no micro-step has begun
  kStepInsideMicroStep,  // the optimizer would step in the middle of a micro-step
  kGradientsAdded,       // the micro-step has already changed gradients, it cannot be undone
  kNotClosed,            // the reduced window must be closed first
  kNotReduced,           // the window holds unreduced gradients, or none were brought
  kFailed,               // a reduction failed before
};

// What the call did wrong and the remedy, for people.
std::string_view Explain(Refusal refusal);

struct Decision {
  Action action = Action::kRefuse;
  Refusal refusal = Refusal::kNone;
};

struct WindowConfig {
  uint32_t accumulate = 1;  // micro-steps per window; 0: not declared, none closes by count
  bool every_micro_step = false;
  uint32_t predicted = 0;  // where none are declared: the micro-step that will likely be the last; 0: not known
};

// Counts of one window on this rank.
struct WindowCounts {
  uint64_t window_index = 0;
  uint32_t micro_steps = 0;        // ended
  uint32_t suppressed = 0;         // micro-steps that did not reduce
  uint32_t last_reduction_at = 0;  // micro-steps in the last reduction; 0: none
};

class WindowEngine {
 public:
  enum class State : uint8_t { kIdle, kInMicroStep, kOpen, kReduced, kFailed };

  explicit WindowEngine(const WindowConfig& config) : config_(config) {}

  Decision BeginMicroStep(Last last);
  Decision GradientReady();
  Decision EndMicroStep();

  // The micro-step in progress reduces nothing after all. Before EndMicroStep; elsewhere nothing happens.
  void NotReduced() { reducing_ = reducing_ && state_ != State::kInMicroStep; }

  // Undoes BeginMicroStep; for a micro-step that failed before it changed a gradient and will be tried again.
  Decision Abandon();

  // The optimizer is about to step, or the window is flushed. Changes nothing: on kReduceLate reduce, then LateReduced.
  Decision BeforeStep() const;
  void LateReduced();

  // The window was closed by a prediction; a micro-step that begins now goes on with it.
  bool outrun_next() const {
    return state_ == State::kReduced && closing_ && config_.accumulate == 0 && counts_.micro_steps == config_.predicted;
  }

  // Ends a window that has nothing pending; *counts tells what it was.
  Decision Close(WindowCounts* counts);

  // Changes what later micro-steps do; false, and nothing changed, but between windows.
  bool Configure(const WindowConfig& config);

  // A reduction failed: every later call is refused.
  void Fail() { state_ = State::kFailed; }

  State state() const { return state_; }
  // The open window's, micro-steps in progress not included.
  const WindowCounts& counts() const { return counts_; }
  // Whether the micro-step in progress, or the last one, closes its window.
  bool closing() const { return closing_; }
  bool reducing() const { return reducing_; }
  WindowKind kind() const;
  const WindowConfig& config() const { return config_; }

 private:
  static Decision Refuse(Refusal refusal) { return {Action::kRefuse, refusal}; }

  WindowConfig config_;
  State state_ = State::kIdle;
  WindowCounts counts_;
  uint32_t pending_ = 0;  // ended micro-steps whose gradients no reduction has taken in
  bool closing_ = false;
  bool reducing_ = false;
  bool gradient_seen_ = false;
};

// The three of the hot path.

inline Decision WindowEngine::BeginMicroStep(Last last) {
  if (state_ == State::kFailed) return Refuse(Refusal::kFailed);
  if (state_ == State::kInMicroStep) return Refuse(Refusal::kNestedMicroStep);
  if (state_ == State::kReduced && !outrun_next()) return Refuse(Refusal::kNotClosed);
  const uint32_t next = counts_.micro_steps + 1;
  const bool counted = config_.accumulate > 0 ? next >= config_.accumulate : next == config_.predicted;
  closing_ = last == Last::kYes || (last == Last::kByCount && counted);
  reducing_ = closing_ || config_.every_micro_step;
  gradient_seen_ = false;
  state_ = State::kInMicroStep;
  return {reducing_ ? Action::kReduce : Action::kAccumulate, Refusal::kNone};
}

inline Decision WindowEngine::GradientReady() {
  if (state_ == State::kFailed) return Refuse(Refusal::kFailed);
  if (state_ != State::kInMicroStep) return Refuse(Refusal::kOutsideMicroStep);
  gradient_seen_ = true;
  return {reducing_ ? Action::kReduce : Action::kAccumulate, Refusal::kNone};
}

inline Decision WindowEngine::EndMicroStep() {
  if (state_ == State::kFailed) return Refuse(Refusal::kFailed);
  if (state_ != State::kInMicroStep) return Refuse(Refusal::kOutsideMicroStep);
  ++counts_.micro_steps;
  if (!reducing_) {
    ++pending_;
    ++counts_.suppressed;
    state_ = State::kOpen;
    return {Action::kAccumulate, Refusal::kNone};
  }
  pending_ = 0;
  counts_.last_reduction_at = counts_.micro_steps;
  state_ = closing_ ? State::kReduced : State::kOpen;
  return {Action::kReduce, Refusal::kNone};
}

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CORE_WINDOW_ENGINE_H_
