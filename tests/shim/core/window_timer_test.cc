#include "shim/core/window_timer.h"

#include <gtest/gtest.h>

namespace gradgate {
namespace {

TEST(WindowTimer, ExposedIsTheBoundaryLessTheMedianOfTheSuppressed) {
  WindowTimer timer;
  int64_t now = 1000;
  for (const int64_t duration : {100, 90, 400}) {
    timer.MicroStepBegun(now);
    now += duration;
    EXPECT_EQ(timer.MicroStepEnded(now, true), static_cast<uint64_t>(duration));
  }
  timer.MicroStepBegun(now);
  timer.MicroStepEnded(now + 150, false);
  timer.Waited(now + 200, now + 260);
  timer.Reduced(now + 149, now + 260, false);
  EXPECT_EQ(timer.begin_ns(), 1000);
  EXPECT_EQ(timer.suppressed_median_ns(), 100u);
  EXPECT_EQ(timer.boundary_ns(), 210u);
  EXPECT_EQ(timer.exposed_ns(), 110u);
  EXPECT_EQ(timer.wait_ns(), 60u);
}

TEST(WindowTimer, WithoutSuppressedItIsTheTailOfEachReduction) {
  WindowTimer timer;
  for (int64_t at : {1000, 2000}) {
    timer.MicroStepBegun(at);
    timer.MicroStepEnded(at + 500, false);
    timer.Waited(at + 500, at + 700);
    timer.Reduced(at + 490, at + 690, false);
  }
  EXPECT_EQ(timer.exposed_ns(), 400u);
  EXPECT_EQ(timer.suppressed_median_ns(), 0u);
}

TEST(WindowTimer, ALateReductionIsExposedWhole) {
  WindowTimer timer;
  timer.MicroStepBegun(1000);
  timer.MicroStepEnded(1500, true);
  timer.Waited(1600, 1900);
  timer.Reduced(1601, 1890, true);
  EXPECT_EQ(timer.exposed_ns(), 300u);
}

TEST(WindowTimer, AFasterBoundaryExposesNothing) {
  WindowTimer timer;
  timer.MicroStepBegun(1000);
  timer.MicroStepEnded(2000, true);
  timer.MicroStepBegun(2000);
  timer.MicroStepEnded(2500, false);
  EXPECT_EQ(timer.exposed_ns(), 0u);
}

TEST(WindowTimer, TheMedianIsOfTheLatestSamples) {
  WindowTimer timer;
  for (uint32_t i = 0; i < 2 * WindowTimer::kSamples; ++i) {
    timer.MicroStepBegun(1);
    timer.MicroStepEnded(i < WindowTimer::kSamples ? 2 : 11, true);
  }
  EXPECT_EQ(timer.suppressed_median_ns(), 10u);
}

TEST(WindowTimer, AClockThatStepsBackCountsNothing) {
  WindowTimer timer;
  timer.MicroStepBegun(1000);
  EXPECT_EQ(timer.MicroStepEnded(900, true), 0u);
}

}  // namespace
}  // namespace gradgate
