#include "shim/core/window_engine.h"

namespace gradgate {

std::string_view Explain(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "not refused";
    case Refusal::kNestedMicroStep:
      return "the previous micro-step has not ended; end or abandon it first";
    case Refusal::kOutsideMicroStep:
      return "no micro-step has begun; begin one first";
    case Refusal::kStepInsideMicroStep:
      return "the optimizer would step in the middle of a micro-step, on gradients that are not complete; end the micro-step "
             "first";
    case Refusal::kGradientsAdded:
      return "the micro-step has already added gradients, so it cannot be abandoned; end it";
    case Refusal::kNotClosed:
      return "the reduced window was not closed";
    case Refusal::kNotReduced:
      return "the window is not reduced";
    case Refusal::kFailed:
      return "a reduction of this session failed before; its gradients are not the same on all ranks, restart from a "
             "checkpoint";
  }
  return "unknown";
}

Decision WindowEngine::Abandon() {
  if (state_ == State::kFailed) return Refuse(Refusal::kFailed);
  if (state_ != State::kInMicroStep) return Refuse(Refusal::kOutsideMicroStep);
  if (gradient_seen_) return Refuse(Refusal::kGradientsAdded);
  state_ = counts_.micro_steps == 0 ? State::kIdle : State::kOpen;
  return {Action::kAccumulate, Refusal::kNone};
}

Decision WindowEngine::BeforeStep() const {
  switch (state_) {
    case State::kFailed:
      return Refuse(Refusal::kFailed);
    case State::kInMicroStep:
      return Refuse(Refusal::kStepInsideMicroStep);
    case State::kIdle:
      return {Action::kReduceLate, Refusal::kNone};
    case State::kOpen:
      return {pending_ > 0 ? Action::kReduceLate : Action::kProceed, Refusal::kNone};
    case State::kReduced:
      break;
  }
  return {Action::kProceed, Refusal::kNone};
}

void WindowEngine::LateReduced() {
  if (BeforeStep().action != Action::kReduceLate) return;
  pending_ = 0;
  closing_ = false;
  counts_.last_reduction_at = counts_.micro_steps;
  state_ = State::kReduced;
}

Decision WindowEngine::Close(WindowCounts* counts) {
  const Decision step = BeforeStep();
  if (step.action == Action::kRefuse) return step;
  if (step.action == Action::kReduceLate) return Refuse(Refusal::kNotReduced);
  *counts = counts_;
  counts_ = WindowCounts{.window_index = counts_.window_index + 1};
  closing_ = false;
  state_ = State::kIdle;
  return {Action::kProceed, Refusal::kNone};
}

WindowKind WindowEngine::kind() const {
  if (counts_.micro_steps == 0) return WindowKind::kEmpty;
  const bool full = config_.accumulate == 0 || counts_.micro_steps == config_.accumulate;
  return full ? WindowKind::kFull : WindowKind::kPartial;
}

bool WindowEngine::Configure(const WindowConfig& config) {
  if (state_ != State::kIdle) return false;
  config_ = config;
  return true;
}

}  // namespace gradgate
