#include "daemon/node/window_trail.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using testing::FakePage;
using ::testing::SizeIs;

class Trail : public ::testing::Test {
 protected:
  void Event(EventKind kind, uint64_t value = 0, TrafficClass traffic = TrafficClass::kGradient) {
    trail_.AddEvent({next_event_++, 0, kind, GroupRole::kDp, CollectiveOp::kAllReduce, traffic, 1, value});
  }
  void Closed(uint64_t window) {
    trail_.AddEvent({next_event_++, FakePage::MakeRecord(window).end_ns, EventKind::kWindowClosed, GroupRole::kDp,
                     CollectiveOp::kAllReduce, TrafficClass::kOther, 4, 0});
  }
  void EventsOfAWindow(uint64_t gradient_ns) {
    Event(EventKind::kMicroStepBegin);
    Event(EventKind::kCollectiveIssued, 8, TrafficClass::kOurs);
    Event(EventKind::kCollectiveIssued, 100);
    Event(EventKind::kCollectiveIssued, 100);
    Event(EventKind::kMicroStepEnd, 40);
    Event(EventKind::kCollectiveDone, 5, TrafficClass::kOurs);
    Event(EventKind::kCollectiveDone, gradient_ns);
    Event(EventKind::kCollectiveDone, gradient_ns / 2);
  }

  WindowTrail trail_;
  uint64_t next_event_ = 0;
};

TEST_F(Trail, CountsWhatTheOpenWindowHasIssued) {
  EventsOfAWindow(70);
  EXPECT_TRUE(trail_.open().exact);
  EXPECT_EQ(trail_.open().gradient_issued_count, 2u);
  EXPECT_EQ(trail_.open().ours_issued_count, 1u);
  EXPECT_EQ(trail_.open().other_issued_count, 0u);
  EXPECT_FALSE(trail_.open().in_micro_step);
  Event(EventKind::kMicroStepBegin);
  EXPECT_TRUE(trail_.open().in_micro_step);
}

TEST_F(Trail, GivesAWindowItsEventsWhicheverComesFirst) {
  trail_.AddWindow(FakePage::MakeRecord(0));
  EventsOfAWindow(70);
  Closed(0);
  EventsOfAWindow(90);
  Closed(1);  // before its record is read
  trail_.AddWindow(FakePage::MakeRecord(1));
  ASSERT_THAT(trail_.windows(), SizeIs(2));
  EXPECT_TRUE(trail_.windows()[0].events.exact);
  EXPECT_EQ(trail_.windows()[0].events.gradient_ns, 70u);
  EXPECT_EQ(trail_.windows()[1].events.gradient_ns, 90u);
  EXPECT_EQ(trail_.windows()[1].events.ballot_ns, 5u);
  EXPECT_EQ(trail_.windows()[1].events.micro_step_ns, 40u);
  EXPECT_EQ(trail_.open().gradient_issued_count, 0u);
}

TEST_F(Trail, KnowsTheGapBeforeAWindowThatFollows) {
  trail_.AddWindow(FakePage::MakeRecord(0));
  trail_.AddWindow(FakePage::MakeRecord(1));
  trail_.AddWindow(FakePage::MakeRecord(3));
  EXPECT_EQ(trail_.windows()[0].gap_ns, 0u);
  EXPECT_EQ(trail_.windows()[1].gap_ns, 50'000'000u);
  EXPECT_EQ(trail_.windows()[2].gap_ns, 0u);
}

TEST_F(Trail, SaysWhichWindowsMissEvents) {
  EventsOfAWindow(70);
  next_event_ += 5;
  Closed(0);
  trail_.AddWindow(FakePage::MakeRecord(0));
  EXPECT_FALSE(trail_.windows()[0].events.exact);
  EXPECT_TRUE(trail_.open().exact);
}

// A daemon that comes late reads a ring that has run over.
TEST_F(Trail, DoesNotTrustAWindowThatBeganBeforeItLooked) {
  next_event_ = 5000;
  EventsOfAWindow(70);
  EXPECT_FALSE(trail_.open().exact);
  Closed(7);
  EventsOfAWindow(70);
  EXPECT_TRUE(trail_.open().exact);
  EXPECT_EQ(trail_.open().gradient_issued_count, 2u);
}

TEST_F(Trail, TakesTheLongestWaitOfEachWindow) {
  EXPECT_EQ(trail_.WaitP99Ns(), 0u);
  for (uint64_t i = 0; i < 200; ++i) {
    page::WindowRecord record = FakePage::MakeRecord(i);
    record.exposed_ns = 5;
    record.wait_ns = i == 150 || i == 151 || i == 152 ? 900 : 7;
    trail_.AddWindow(record);
    EventsOfAWindow(60);
    Closed(i);
  }
  EXPECT_EQ(trail_.wait_count(), 199u);  // the first is unlike the others
  EXPECT_EQ(trail_.WaitP99Ns(), 900u);
  for (uint64_t i = 200; i < 400; ++i) trail_.AddWindow(FakePage::MakeRecord(i));
  EXPECT_EQ(trail_.WaitP99Ns(), FakePage::MakeRecord(0).exposed_ns);
}

TEST_F(Trail, IsBounded) {
  for (uint64_t i = 0; i < 3000; ++i) trail_.AddWindow(FakePage::MakeRecord(i));
  for (uint64_t i = 5000; i < 6000; ++i) Closed(i);
  EXPECT_THAT(trail_.windows(), SizeIs(WindowTrail::kWindows));
  EXPECT_EQ(trail_.windows().back().record.window_index, 2999u);
  EXPECT_EQ(trail_.wait_count(), WindowTrail::kWaits);
}

TEST_F(Trail, RemembersHowLongEarlyCollectivesTook) {
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(trail_.EarlyGradientNs(), i < WindowTrail::kWarmUp + WindowTrail::kEarly ? 0u : 50u) << i;
    trail_.AddWindow(FakePage::MakeRecord(i));
    EventsOfAWindow(i < WindowTrail::kWarmUp ? 1000 : i < WindowTrail::kWarmUp + WindowTrail::kEarly ? 50 : 400);
    Closed(i);
  }
}

}  // namespace
}  // namespace gradgate
