#include "shim/core/window_engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

namespace gradgate {
namespace {

using State = WindowEngine::State;

Action MicroStep(WindowEngine& engine, Last last = Last::kByCount) {
  const Decision begun = engine.BeginMicroStep(last);
  EXPECT_EQ(begun.refusal, Refusal::kNone);
  EXPECT_EQ(engine.EndMicroStep().action, begun.action);
  return begun.action;
}

WindowCounts Close(WindowEngine& engine) {
  WindowCounts counts;
  EXPECT_EQ(engine.Close(&counts).action, Action::kProceed);
  return counts;
}

TEST(WindowEngine, DeclaredWindowReducesAtItsBoundaryAlone) {
  WindowEngine engine({.accumulate = 4});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(MicroStep(engine), Action::kAccumulate);
  EXPECT_EQ(MicroStep(engine), Action::kReduce);
  EXPECT_EQ(engine.BeforeStep().action, Action::kProceed);
  EXPECT_EQ(engine.kind(), WindowKind::kFull);
  const WindowCounts counts = Close(engine);
  EXPECT_EQ(counts.micro_steps, 4u);
  EXPECT_EQ(counts.suppressed, 3u);
  EXPECT_EQ(counts.last_reduction_at, 4u);
  EXPECT_EQ(engine.counts().window_index, 1u);
}

TEST(WindowEngine, LookedAheadLastClosesEarlyInTime) {
  WindowEngine engine({.accumulate = 4});
  EXPECT_EQ(MicroStep(engine), Action::kAccumulate);
  EXPECT_EQ(MicroStep(engine, Last::kYes), Action::kReduce);
  EXPECT_EQ(engine.BeforeStep().action, Action::kProceed);
  EXPECT_EQ(engine.kind(), WindowKind::kPartial);
}

TEST(WindowEngine, LastNoOutrunsTheDeclaredCount) {
  WindowEngine engine({.accumulate = 1});
  EXPECT_EQ(MicroStep(engine, Last::kNo), Action::kAccumulate);
  EXPECT_EQ(MicroStep(engine, Last::kNo), Action::kAccumulate);
  EXPECT_EQ(MicroStep(engine, Last::kYes), Action::kReduce);
}

TEST(WindowEngine, PartialWindowIsReducedLateAtTheStep) {
  WindowEngine engine({.accumulate = 4});
  MicroStep(engine);
  MicroStep(engine);
  EXPECT_EQ(engine.BeforeStep().action, Action::kReduceLate);
  WindowCounts counts;
  EXPECT_EQ(engine.Close(&counts).refusal, Refusal::kNotReduced);
  engine.LateReduced();
  EXPECT_EQ(engine.BeforeStep().action, Action::kProceed);
  counts = Close(engine);
  EXPECT_EQ(counts.suppressed, 2u);
  EXPECT_EQ(counts.last_reduction_at, 2u);
}

TEST(WindowEngine, EmptyWindowIsReducedLate) {
  WindowEngine engine({.accumulate = 4});
  EXPECT_EQ(engine.BeforeStep().action, Action::kReduceLate);
  EXPECT_EQ(engine.kind(), WindowKind::kEmpty);
  engine.LateReduced();
  EXPECT_EQ(Close(engine).micro_steps, 0u);
}

TEST(WindowEngine, EveryMicroStepCutShortHasNothingLeft) {
  WindowEngine engine({.accumulate = 4, .every_micro_step = true});
  EXPECT_EQ(MicroStep(engine), Action::kReduce);
  EXPECT_EQ(MicroStep(engine), Action::kReduce);
  EXPECT_EQ(engine.BeforeStep().action, Action::kProceed);
  EXPECT_EQ(Close(engine).suppressed, 0u);
}

TEST(WindowEngine, StepInsideAMicroStepIsRefused) {
  WindowEngine engine({.accumulate = 2});
  (void)engine.BeginMicroStep(Last::kByCount);
  EXPECT_EQ(engine.BeforeStep().refusal, Refusal::kStepInsideMicroStep);
  EXPECT_EQ(engine.BeginMicroStep(Last::kByCount).refusal, Refusal::kNestedMicroStep);
  EXPECT_EQ(engine.EndMicroStep().action, Action::kAccumulate);
}

TEST(WindowEngine, AbandonedMicroStepLeavesTheWindowAsItWas) {
  WindowEngine engine({.accumulate = 2});
  MicroStep(engine);
  EXPECT_EQ(engine.BeginMicroStep(Last::kByCount).action, Action::kReduce);
  EXPECT_EQ(engine.Abandon().action, Action::kAccumulate);
  EXPECT_EQ(engine.counts().micro_steps, 1u);
  EXPECT_EQ(engine.state(), State::kOpen);
  EXPECT_EQ(engine.BeginMicroStep(Last::kByCount).action, Action::kReduce);
  EXPECT_EQ(engine.GradientReady().action, Action::kReduce);
  EXPECT_EQ(engine.Abandon().refusal, Refusal::kGradientsAdded);
}

TEST(WindowEngine, ClosingMicroStepThatReducedNothingLeavesItsWindowOpen) {
  WindowEngine engine({.accumulate = 2});
  engine.NotReduced();  // outside a micro-step: nothing happens
  MicroStep(engine);
  EXPECT_EQ(engine.BeginMicroStep(Last::kByCount).action, Action::kReduce);
  engine.NotReduced();
  EXPECT_EQ(engine.EndMicroStep().action, Action::kAccumulate);
  EXPECT_EQ(engine.state(), State::kOpen);
  EXPECT_EQ(engine.BeforeStep().action, Action::kReduceLate);
  engine.LateReduced();
  const WindowCounts counts = Close(engine);
  EXPECT_EQ(counts.micro_steps, 2u);
  EXPECT_EQ(counts.suppressed, 2u);
  EXPECT_EQ(counts.last_reduction_at, 2u);
}

TEST(WindowEngine, UndeclaredWindowEndsByLastOrByTheStepAlone) {
  WindowEngine engine({.accumulate = 0});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(MicroStep(engine), Action::kAccumulate);
  EXPECT_EQ(engine.kind(), WindowKind::kFull);
  EXPECT_EQ(MicroStep(engine, Last::kYes), Action::kReduce);
  EXPECT_EQ(Close(engine).micro_steps, 6u);
}

TEST(WindowEngine, PredictedMicroStepClosesAnUndeclaredWindow) {
  WindowEngine engine({.accumulate = 0, .predicted = 3});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(MicroStep(engine), Action::kAccumulate);
  EXPECT_EQ(MicroStep(engine), Action::kReduce);
  EXPECT_TRUE(engine.outrun_next());
  EXPECT_EQ(engine.BeforeStep().action, Action::kProceed);
  EXPECT_EQ(engine.kind(), WindowKind::kFull);
  EXPECT_EQ(Close(engine).last_reduction_at, 3u);
  EXPECT_FALSE(engine.outrun_next());
}

TEST(WindowEngine, WindowThatOutrunsItsPredictionIsReducedOnceMore) {
  WindowEngine engine({.accumulate = 0, .predicted = 2});
  MicroStep(engine);
  EXPECT_EQ(MicroStep(engine), Action::kReduce);
  EXPECT_EQ(MicroStep(engine), Action::kAccumulate);
  EXPECT_EQ(engine.BeforeStep().action, Action::kReduceLate);
  engine.LateReduced();
  EXPECT_EQ(engine.BeginMicroStep(Last::kByCount).refusal, Refusal::kNotClosed) << "nothing is left of the prediction";
  const WindowCounts counts = Close(engine);
  EXPECT_EQ(counts.micro_steps, 3u);
  EXPECT_EQ(counts.suppressed, 2u);
}

TEST(WindowEngine, OneThatEndsBeforeItsPredictionIsReducedLate) {
  WindowEngine engine({.accumulate = 0, .predicted = 2});
  MicroStep(engine);
  EXPECT_EQ(engine.BeforeStep().action, Action::kReduceLate);
  engine.LateReduced();
  EXPECT_EQ(Close(engine).micro_steps, 1u);
}

TEST(WindowEngine, DeclaredWindowsKnowNoPrediction) {
  WindowEngine engine({.accumulate = 2, .predicted = 1});
  EXPECT_EQ(MicroStep(engine), Action::kAccumulate);
  EXPECT_EQ(MicroStep(engine), Action::kReduce);
  EXPECT_EQ(engine.BeginMicroStep(Last::kByCount).refusal, Refusal::kNotClosed);
}

TEST(WindowEngine, ConfigurationChangesBetweenWindowsAlone) {
  WindowEngine engine({.accumulate = 2});
  EXPECT_TRUE(engine.Configure({.accumulate = 2, .every_micro_step = true}));
  EXPECT_EQ(MicroStep(engine), Action::kReduce);
  EXPECT_FALSE(engine.Configure({.accumulate = 2}));
  EXPECT_EQ(MicroStep(engine), Action::kReduce);
  EXPECT_FALSE(engine.Configure({.accumulate = 2}));
  Close(engine);
  EXPECT_TRUE(engine.Configure({.accumulate = 2}));
  EXPECT_EQ(MicroStep(engine), Action::kAccumulate);
}

TEST(WindowEngine, FailedEngineRefusesEverything) {
  WindowEngine engine({.accumulate = 2});
  engine.Fail();
  WindowCounts counts;
  EXPECT_EQ(engine.BeginMicroStep(Last::kByCount).refusal, Refusal::kFailed);
  EXPECT_EQ(engine.GradientReady().refusal, Refusal::kFailed);
  EXPECT_EQ(engine.EndMicroStep().refusal, Refusal::kFailed);
  EXPECT_EQ(engine.Abandon().refusal, Refusal::kFailed);
  EXPECT_EQ(engine.BeforeStep().refusal, Refusal::kFailed);
  EXPECT_EQ(engine.Close(&counts).refusal, Refusal::kFailed);
}

TEST(WindowEngine, EveryRefusalExplainsItself) {
  for (int i = 1; i <= static_cast<int>(Refusal::kFailed); ++i) {
    EXPECT_GT(Explain(static_cast<Refusal>(i)).size(), 20u) << i;
    EXPECT_NE(Explain(static_cast<Refusal>(i)), "unknown");
  }
}

// The slow and obvious model: remembers every micro-step of the window, and whether a reduction has taken its gradients in.
class Model {
 public:
  Model(uint32_t accumulate, bool every, uint32_t predicted) : accumulate_(accumulate), every_(every), predicted_(predicted) {}

  Decision Begin(Last last) {
    if (open_) return {Action::kRefuse, Refusal::kNestedMicroStep};
    const bool guessed = !late_ && accumulate_ == 0 && steps_.size() == predicted_;
    if (Boundary() && !guessed) return {Action::kRefuse, Refusal::kNotClosed};
    const size_t next = steps_.size() + 1;
    closes_ = last == Last::kYes || (last == Last::kByCount && (accumulate_ != 0 ? next >= accumulate_ : next == predicted_));
    open_ = true;
    nothing_ = false;
    touched_ = false;
    return {closes_ || every_ ? Action::kReduce : Action::kAccumulate, Refusal::kNone};
  }
  Decision Ready() {
    if (!open_) return {Action::kRefuse, Refusal::kOutsideMicroStep};
    touched_ = true;
    return {(closes_ || every_) && !nothing_ ? Action::kReduce : Action::kAccumulate, Refusal::kNone};
  }
  void NotReduced() { nothing_ = open_; }
  bool Configure(uint32_t accumulate, bool every, uint32_t predicted) {
    if (open_ || late_ || !steps_.empty()) return false;
    accumulate_ = accumulate;
    every_ = every;
    predicted_ = predicted;
    return true;
  }
  Decision End() {
    if (!open_) return {Action::kRefuse, Refusal::kOutsideMicroStep};
    open_ = false;
    const bool reduces = (closes_ || every_) && !nothing_;
    steps_.push_back({false, closes_ && reduces});
    suppressed_ += !reduces;
    if (reduces) Reduce();
    return {reduces ? Action::kReduce : Action::kAccumulate, Refusal::kNone};
  }
  Decision Abandon() {
    if (!open_) return {Action::kRefuse, Refusal::kOutsideMicroStep};
    if (touched_) return {Action::kRefuse, Refusal::kGradientsAdded};
    open_ = false;
    return {Action::kAccumulate, Refusal::kNone};
  }
  Decision BeforeStep() const {
    if (open_) return {Action::kRefuse, Refusal::kStepInsideMicroStep};
    if (late_) return {Action::kProceed, Refusal::kNone};
    if (steps_.empty()) return {Action::kReduceLate, Refusal::kNone};
    for (const Step& step : steps_) {
      if (!step.reduced) return {Action::kReduceLate, Refusal::kNone};
    }
    return {Action::kProceed, Refusal::kNone};
  }
  void LateReduced() {
    if (BeforeStep().action != Action::kReduceLate) return;
    Reduce();
    late_ = true;
  }
  Decision Close(WindowCounts* counts) {
    const Decision step = BeforeStep();
    if (step.action == Action::kRefuse) return step;
    if (step.action == Action::kReduceLate) return {Action::kRefuse, Refusal::kNotReduced};
    *counts = {window_++, static_cast<uint32_t>(steps_.size()), suppressed_, position_};
    steps_.clear();
    suppressed_ = position_ = 0;
    late_ = false;
    return {Action::kProceed, Refusal::kNone};
  }
  bool AnyUnreduced() const {
    for (const Step& step : steps_) {
      if (!step.reduced) return true;
    }
    return false;
  }

 private:
  struct Step {
    bool reduced;
    bool closes;
  };
  bool Boundary() const { return late_ || (!steps_.empty() && steps_.back().closes); }
  void Reduce() {
    for (Step& step : steps_) step.reduced = true;
    position_ = static_cast<uint32_t>(steps_.size());
  }

  uint32_t accumulate_;
  bool every_;
  uint32_t predicted_;
  std::vector<Step> steps_;
  bool open_ = false;
  bool closes_ = false;
  bool touched_ = false;
  bool nothing_ = false;
  bool late_ = false;
  uint32_t suppressed_ = 0;
  uint32_t position_ = 0;
  uint64_t window_ = 0;
};

void ExpectSame(const Decision& got, const Decision& want) {
  ASSERT_EQ(got.action, want.action);
  ASSERT_EQ(got.refusal, want.refusal);
}

TEST(WindowEngine, AgreesWithTheModelOnRandomEvents) {
  const char* given = std::getenv("GRADGATE_TEST_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("GRADGATE_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int run = 0; run < 3000; ++run) {
    const auto accumulate = static_cast<uint32_t>(random() % 7 * (random() % 2));
    const bool every = random() % 3 == 0;
    const auto predicted = static_cast<uint32_t>(random() % 5);
    WindowEngine engine({accumulate, every, predicted});
    Model model(accumulate, every, predicted);
    for (int event = 0; event < 200; ++event) {
      SCOPED_TRACE("run " + std::to_string(run) + " event " + std::to_string(event));
      const auto last = static_cast<Last>(random() % 8 == 0 ? random() % 3 : 0);
      switch (random() % 10) {
        case 8:
          engine.NotReduced();
          model.NotReduced();
          break;
        case 9: {
          const auto count = static_cast<uint32_t>(random() % 7 * (random() % 2));
          const bool each = random() % 3 == 0;
          const auto guess = static_cast<uint32_t>(random() % 5);
          ASSERT_EQ(engine.Configure({count, each, guess}), model.Configure(count, each, guess));
          break;
        }
        case 0:
        case 1:
          ExpectSame(engine.BeginMicroStep(last), model.Begin(last));
          break;
        case 2:
          ExpectSame(engine.GradientReady(), model.Ready());
          break;
        case 3:
        case 4:
          ExpectSame(engine.EndMicroStep(), model.End());
          break;
        case 5:
          ExpectSame(engine.BeforeStep(), model.BeforeStep());
          break;
        case 6:
          if (random() % 2) {
            engine.LateReduced();
            model.LateReduced();
          } else {
            ExpectSame(engine.Abandon(), model.Abandon());
          }
          break;
        case 7: {
          WindowCounts got, want;
          const Decision closed = engine.Close(&got);
          ExpectSame(closed, model.Close(&want));
          ASSERT_EQ(got.window_index, want.window_index);
          ASSERT_EQ(got.micro_steps, want.micro_steps);
          ASSERT_EQ(got.suppressed, want.suppressed);
          ASSERT_EQ(got.last_reduction_at, want.last_reduction_at);
          break;
        }
      }
      // The promise itself: never "proceed" while a gradient is unreduced.
      ASSERT_FALSE(engine.BeforeStep().action == Action::kProceed && model.AnyUnreduced());
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gradgate
