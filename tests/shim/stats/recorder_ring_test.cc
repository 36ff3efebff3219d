// The event ring and the window records under several threads.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "shim/stats/recorder.h"
#include "tests/shim/stats/page_reader.h"

namespace gradgate {
namespace {

std::unique_ptr<Recorder> Make() {
  std::unique_ptr<Recorder> recorder;
  const Status status = Recorder::Create({}, &recorder);
  EXPECT_TRUE(status.ok()) << status.message();
  return recorder;
}

// An event whose three words follow from one number, so that a mix of two is seen.
void RecordNumber(Recorder* recorder, uint32_t number) {
  recorder->Record(EventKind::kMicroStepEnd, GroupRole::kOther, CollectiveOp::kBroadcast, TrafficClass::kOther, number,
                   uint64_t{number} * 3, int64_t{number} * 7);
}

void ExpectConsistent(const page::Event& event) {
  EXPECT_EQ(event.kind, EventKind::kMicroStepEnd);
  EXPECT_EQ(event.role, GroupRole::kOther);
  EXPECT_EQ(event.op, CollectiveOp::kBroadcast);
  EXPECT_EQ(event.traffic, TrafficClass::kOther);
  EXPECT_EQ(event.value, uint64_t{event.micro_step} * 3);
  EXPECT_EQ(event.time_ns, uint64_t{event.micro_step} * 7);
}

TEST(RecorderRing, WrapsAroundOverTheOldest) {
  const auto recorder = Make();
  const uint32_t count = 2 * page::kEventSlots + 5;
  for (uint32_t i = 0; i < count; ++i) RecordNumber(recorder.get(), i);
  EXPECT_EQ(recorder->page().ring.event_next.load(), count);
  EXPECT_EQ(recorder->page().totals.event_dropped_count.load(), 0u);
  for (uint32_t i = count - page::kEventSlots; i < count; ++i) {
    const auto event = test::ReadEvent(recorder->page(), i);
    ASSERT_TRUE(event.has_value()) << i;
    EXPECT_EQ(event->index, i);
    EXPECT_EQ(event->micro_step, i);
    ExpectConsistent(*event);
  }
}

TEST(RecorderRing, SlotThatIsBeingWrittenIsLeftAloneAndTheDropCounted) {
  const auto recorder = Make();
  page::StatsPage& page = recorder->page();
  page.events[0].sequence.store(1);  // a writer of event 0 that was overtaken by the whole ring
  page.events[0].value.store(42);
  page.ring.event_next.store(page::kEventSlots);
  RecordNumber(recorder.get(), 9);
  EXPECT_EQ(page.totals.event_dropped_count.load(), 1u);
  EXPECT_EQ(page.events[0].sequence.load(), 1u);
  EXPECT_EQ(page.events[0].value.load(), 42u);
  EXPECT_EQ(page.ring.event_next.load(), page::kEventSlots + 1u);
}

TEST(RecorderRing, OvertakenWriterNeverReplacesANewerEvent) {
  const auto recorder = Make();
  page::StatsPage& page = recorder->page();
  page.ring.event_next.store(page::kEventSlots + 7);
  RecordNumber(recorder.get(), 1);  // event 4096 + 7
  page.ring.event_next.store(7);    // a thread that reserved index 7 long ago, and comes to write it only now
  RecordNumber(recorder.get(), 2);
  const auto event = test::ReadEvent(page, 7);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->index, page::kEventSlots + 7u);
  EXPECT_EQ(event->micro_step, 1u);
  EXPECT_EQ(page.totals.event_dropped_count.load(), 1u);
}

TEST(RecorderRing, ThreadsWriteOrDropEachReservedEventAndNoneIsMixed) {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kEach = 20'000;
  const auto recorder = Make();
  std::atomic<uint32_t> running{kThreads};
  std::vector<std::thread> writers;
  for (uint32_t t = 0; t < kThreads; ++t) {
    writers.emplace_back([&, t] {
      for (uint32_t i = 0; i < kEach; ++i) RecordNumber(recorder.get(), t * kEach + i);
      running.fetch_sub(1);
    });
  }
  while (running.load() > 0) {
    for (uint64_t slot = 0; slot < page::kEventSlots; ++slot) {
      const auto event = test::ReadEvent(recorder->page(), slot);
      if (!event) continue;
      EXPECT_EQ(event->index % page::kEventSlots, slot);
      ExpectConsistent(*event);
    }
    if (HasFailure()) break;
  }
  for (std::thread& writer : writers) writer.join();

  const page::StatsPage& page = recorder->page();
  const uint64_t reserved = page.ring.event_next.load();
  EXPECT_EQ(reserved, uint64_t{kThreads} * kEach);
  // Each writer drops or writes; every slot ends with a whole event, and those that are missing from the last round were
  // dropped.
  uint64_t missing = 0;
  std::vector<bool> seen(kThreads * kEach, false);
  for (uint64_t index = reserved - page::kEventSlots; index < reserved; ++index) {
    const auto event = test::ReadEvent(page, index);
    ASSERT_TRUE(event.has_value()) << "event " << index << " was left half written";
    ExpectConsistent(*event);
    EXPECT_FALSE(seen[event->micro_step]) << "event " << event->micro_step << " was delivered twice";
    seen[event->micro_step] = true;
    if (event->index != index) ++missing;
  }
  EXPECT_LE(missing, page.totals.event_dropped_count.load());
}

TEST(RecorderRing, OneLapOfThreadsIsDeliveredWhole) {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kEach = page::kEventSlots / kThreads;
  const auto recorder = Make();
  std::vector<std::thread> writers;
  for (uint32_t t = 0; t < kThreads; ++t) {
    writers.emplace_back([&, t] {
      for (uint32_t i = 0; i < kEach; ++i) RecordNumber(recorder.get(), t * kEach + i);
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(recorder->page().totals.event_dropped_count.load(), 0u);
  std::vector<bool> seen(page::kEventSlots, false);
  for (uint64_t index = 0; index < page::kEventSlots; ++index) {
    const auto event = test::ReadEvent(recorder->page(), index);
    ASSERT_TRUE(event.has_value()) << index;
    EXPECT_EQ(event->index, index);
    ExpectConsistent(*event);
    ASSERT_LT(event->micro_step, seen.size());
    EXPECT_FALSE(seen[event->micro_step]);
    seen[event->micro_step] = true;
  }
}

TEST(RecorderRing, CountersAreExactUnderThreads) {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kEach = 5'000;
  const auto recorder = Make();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (uint32_t i = 0; i < kEach; ++i) {
        recorder->CollectiveIssued(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, 10, 2, true, 1, i);
        recorder->CollectiveDone(GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, true, 1, i, i + 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const page::CollectiveCell& cell = recorder->page().cells[0][0];
  constexpr uint64_t kAll = uint64_t{kThreads} * kEach;
  EXPECT_EQ(cell.intended_count.load(), kAll);
  EXPECT_EQ(cell.issued_count[0].load(), kAll);
  EXPECT_EQ(cell.bytes[0].load(), kAll * 10);
  EXPECT_EQ(cell.tensor_count.load(), kAll * 2);
  EXPECT_EQ(cell.gradient_completed_count.load(), kAll);
  EXPECT_EQ(cell.duration_ns.load(), kAll * 5);
  EXPECT_EQ(recorder->page().ring.event_next.load(), kAll * 2);
}

// Words that all follow from the index; the reader looks where the writer is, so that it also meets one that was preempted.
TEST(RecorderRing, WindowIsNeverReadTorn) {
  constexpr uint32_t kReads = 300'000;
  const auto recorder = Make();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      page::WindowRecord record{};
      record.window_index = i;
      record.micro_steps = static_cast<uint32_t>(i);
      record.gradient_bytes = i * 5;
      record.exposed_ns = i * 11;
      record.policy_version = ~i;
      recorder->WindowClosed(record);
    }
  });
  const page::StatsPage& page = recorder->page();
  const int64_t deadline_ns = Recorder::NowNs() + 30'000'000'000;
  while (page.ring.window_next.load(std::memory_order_acquire) < page::kWindowSlots && Recorder::NowNs() < deadline_ns) {
    std::this_thread::yield();  // until the writer has begun and every slot holds a window
  }
  for (uint32_t i = 0; i < kReads && !HasFailure(); ++i) {
    const uint64_t next = page.ring.window_next.load(std::memory_order_acquire);
    const uint64_t index = next - page::kWindowSlots;  // the one that is overwritten next, or just now
    const auto record = test::ReadWindow(page, index);
    if (!record) continue;
    EXPECT_EQ(record->window_index, index);
    EXPECT_EQ(record->micro_steps, static_cast<uint32_t>(index));
    EXPECT_EQ(record->gradient_bytes, index * 5);
    EXPECT_EQ(record->exposed_ns, index * 11);
    EXPECT_EQ(record->policy_version, ~index);
  }
  stop.store(true);
  writer.join();
  ASSERT_GE(page.ring.window_next.load(), page::kWindowSlots) << "the writer did not begin";
  const uint64_t last = page.ring.window_next.load() - 1;
  const auto record = test::ReadWindow(page, last);
  ASSERT_TRUE(record.has_value()) << "window " << last << " was left half written";
  EXPECT_EQ(record->exposed_ns, last * 11);
}

}  // namespace
}  // namespace gradgate
