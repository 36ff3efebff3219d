#include "daemon/node/page_reader.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/node/rejection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using ::testing::ElementsAre;
using testing::FakePage;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void ExpectRejected(const absl::Status& status, Rejection reason, const std::string& text) {
  EXPECT_EQ(RejectionOf(status), reason) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(PageHeader, GoodOneIsAccepted) {
  FakePage fake({});
  EXPECT_TRUE(CheckPageHeader(fake.page()).ok());
  fake.page().header.minor = 7;
  EXPECT_TRUE(CheckPageHeader(fake.page()).ok());
}

TEST(PageHeader, NotReady) {
  FakePage fake({});
  fake.page().header.magic.store(0);
  ExpectRejected(CheckPageHeader(fake.page()), Rejection::kPageNotReady, "magic is zero");
}

TEST(PageHeader, BadMagic) {
  FakePage fake({});
  fake.page().header.magic.store(0x1234);
  ExpectRejected(CheckPageHeader(fake.page()), Rejection::kPageMagic, "0000000000001234");
}

TEST(PageHeader, BadMajor) {
  FakePage fake({});
  fake.page().header.major = 2;
  ExpectRejected(CheckPageHeader(fake.page()), Rejection::kPageVersion, "version 2.2");
}

TEST(PageHeader, BadHash) {
  FakePage fake({});
  fake.page().header.layout_hash ^= 1;
  ExpectRejected(CheckPageHeader(fake.page()), Rejection::kPageLayout, "layout");
}

TEST(PageHeader, BadSizes) {
  const std::vector<std::function<void(page::PageHeader&)>> changes = {
      [](page::PageHeader& h) { ++h.header_bytes; },       [](page::PageHeader& h) { --h.page_bytes; },
      [](page::PageHeader& h) { ++h.window_slot_bytes; },  [](page::PageHeader& h) { h.window_slot_count *= 2; },
      [](page::PageHeader& h) { h.event_slot_bytes = 0; }, [](page::PageHeader& h) { --h.event_slot_count; }};
  for (const auto& change : changes) {
    FakePage fake({});
    change(fake.page().header);
    ExpectRejected(CheckPageHeader(fake.page()), Rejection::kPageHeader, "expected 64");
  }
}

TEST(PageIdentity, IsCopied) {
  FakePage fake({.job_name = "bert-größe", .attempt = 3, .rank = 1, .world_size = 4});
  const auto identity = ReadIdentity(fake.page());
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->job_name, "bert-größe");
  EXPECT_EQ(identity->run_id, "11111111111111111111111111111111");
  EXPECT_EQ(identity->attempt, 3u);
  EXPECT_EQ(identity->rank, 1u);
  EXPECT_EQ(identity->world_size, 4u);
  EXPECT_EQ(identity->WallTime(1'500'000'000), absl::FromUnixMillis(1'700'000'000'500));
  EXPECT_EQ(identity->WallTime(500'000'000), absl::FromUnixMillis(1'699'999'999'500));
}

TEST(PageIdentity, TextWithoutZeroIsRefused) {
  FakePage fake({});
  std::memset(fake.page().identity.host_name, 'x', sizeof(page::PageIdentity::host_name));
  ExpectRejected(ReadIdentity(fake.page()).status(), Rejection::kPageIdentity, "host_name has no terminating zero in 64 bytes");
}

TEST(PageIdentity, UnprintableTextIsRefused) {
  const char* const texts[] = {"a\nb",         "\x1b[31mred", "\xff",     "\xc0\xaf",
                               "\xed\xa0\x80", "cut\xe2\x82", "\xc2\x85", "\xe2\x80\xae"};
  for (const char* text : texts) {
    FakePage fake({.job_name = text});
    ExpectRejected(ReadIdentity(fake.page()).status(), Rejection::kPageIdentity, "job_name");
  }
}

TEST(PageIdentity, ImpossibleNumbersAreRefused) {
  const std::pair<std::function<void(page::PageIdentity&)>, const char*> cases[] = {
      {[](page::PageIdentity& i) { i.rank = 2; }, "rank is 2, not below world_size 2"},
      {[](page::PageIdentity& i) { i.world_size = 0; }, "world_size is 0"},
      {[](page::PageIdentity& i) { i.world_size = kMaxWorldSize + 1; }, "world_size is 1048577"},
      {[](page::PageIdentity& i) { i.local_rank = 9; }, "local_rank is 9"},
      {[](page::PageIdentity& i) { i.attempt = 1u << 31; }, "attempt is 2147483648"},
      {[](page::PageIdentity& i) { i.sync_mode = 5; }, "sync_mode is 5"},
      {[](page::PageIdentity& i) { i.enforcement = 4; }, "enforcement is 4"},
      {[](page::PageIdentity& i) { i.wall_time_ns = -1; }, "wall_time_ns is -1"},
      {[](page::PageIdentity& i) { i.process_id = -1; }, "process_id is -1"},
      {[](page::PageIdentity& i) { i.accumulate = 0xffffffff; }, "accumulate is 4294967295"},
  };
  for (const auto& [change, text] : cases) {
    FakePage fake({});
    change(fake.page().identity);
    ExpectRejected(ReadIdentity(fake.page()).status(), Rejection::kPageIdentity, text);
  }
}

TEST(Counters, EveryWordIsCopied) {
  FakePage fake({});
  auto* words = reinterpret_cast<page::U64*>(&fake.page().totals);
  for (size_t i = 0; i < sizeof(Counters) / 8; ++i) words[i].store(1000 + i);
  const Counters counters = ReadCounters(fake.page());
  EXPECT_EQ(counters.totals.window_index, 1000u);
  EXPECT_EQ(counters.totals.window_ns, fake.page().totals.window_ns.load());
  EXPECT_EQ(counters.roles[3].late_count, fake.page().roles[3].late_count.load());
  EXPECT_EQ(counters.cells[2][10].last_complete_ns, fake.page().cells[2][10].last_complete_ns.load());
  EXPECT_EQ(counters.ring.window_next, fake.page().ring.window_next.load());
}

TEST(Counters, RunningBackwardsIsFoundAndNamed) {
  Counters before{}, after{};
  before.cells[1][2].bytes[0] = 10;
  after.cells[1][2].bytes[0] = 9;
  const absl::Status status = CheckGrowth(before, after);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  const size_t offset =
      offsetof(page::StatsPage, cells) + 13 * sizeof(page::CollectiveCell) + offsetof(page::CollectiveCell, bytes);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("page offset " + std::to_string(offset) + " ran backwards, from 10 to 9"));
}

TEST(Counters, PositionsAndTimesMayGoBack) {
  Counters before{};
  before.totals.micro_step = 3;
  before.totals.sync_mode = 2;
  before.totals.last_event_ns = 5;
  before.totals.policy_version = 2;
  before.cells[0][0].last_issue_ns = 8;
  EXPECT_TRUE(CheckGrowth(before, Counters{}).ok());
}

TEST(Counters, ValuesBeyondInt64AreFound) {
  Counters counters{};
  counters.roles[0].issued_count = uint64_t{1} << 63;
  EXPECT_EQ(CheckRange(counters).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(CheckRange(Counters{}).ok());
}

struct WindowPass {
  std::vector<uint64_t> indices;
  WindowReport report;
};

WindowPass ReadAllWindows(FakePage& fake, RingCursor& cursor, Pass pass = Pass::kTick) {
  WindowPass result;
  const uint64_t before = cursor.next;
  result.report = ReadWindows(fake.page(), cursor, pass,
                              [&](const page::WindowRecord& record) { result.indices.push_back(record.window_index); });
  const WindowReport& r = result.report;
  EXPECT_EQ(r.delivered + r.torn + r.invalid + r.missed, cursor.next - before);
  EXPECT_EQ(r.delivered, result.indices.size());
  return result;
}

TEST(WindowRing, DeliversEachOnce) {
  FakePage fake({});
  RingCursor cursor;
  EXPECT_THAT(ReadAllWindows(fake, cursor).indices, IsEmpty());
  fake.CloseWindow();
  fake.CloseWindow();
  EXPECT_THAT(ReadAllWindows(fake, cursor).indices, ElementsAre(0, 1));
  EXPECT_THAT(ReadAllWindows(fake, cursor).indices, IsEmpty());
  fake.CloseWindow();
  EXPECT_THAT(ReadAllWindows(fake, cursor).indices, ElementsAre(2));
}

TEST(WindowRing, WrapAroundLosesTheOldestAndCountsThem) {
  FakePage fake({});
  RingCursor cursor;
  for (uint32_t i = 0; i < page::kWindowSlots + 10; ++i) fake.CloseWindow();
  const WindowPass pass = ReadAllWindows(fake, cursor);
  EXPECT_EQ(pass.report.missed, 10u);
  ASSERT_EQ(pass.indices.size(), page::kWindowSlots);
  EXPECT_EQ(pass.indices.front(), 10u);
  EXPECT_EQ(pass.indices.back(), page::kWindowSlots + 9u);
}

TEST(WindowRing, OverwrittenWhileTheReaderIsBehindIsMissed) {
  FakePage fake({});
  RingCursor cursor;
  for (uint32_t i = 0; i < page::kWindowSlots; ++i) fake.CloseWindow();
  fake.TearWindow(/*counted=*/false);  // window 256 is being written over window 0
  const WindowPass pass = ReadAllWindows(fake, cursor);
  EXPECT_EQ(pass.report.missed, 1u);
  EXPECT_EQ(pass.indices.front(), 1u);
}

TEST(WindowRing, HalfWrittenNewestIsWaitedFor) {
  FakePage fake({});
  RingCursor cursor;
  fake.CloseWindow();
  fake.TearWindow();
  EXPECT_THAT(ReadAllWindows(fake, cursor).indices, ElementsAre(0));
  EXPECT_EQ(cursor.next, 1u);
  fake.page().ring.window_next.store(1);
  fake.CloseWindow();  // the writer comes back
  EXPECT_THAT(ReadAllWindows(fake, cursor).indices, ElementsAre(1));
}

TEST(WindowRing, WriterKilledMidWriteIsTornAtTheEnd) {
  FakePage fake({});
  RingCursor cursor;
  fake.CloseWindow();
  fake.TearWindow();
  const WindowPass pass = ReadAllWindows(fake, cursor, Pass::kFinal);
  EXPECT_THAT(pass.indices, ElementsAre(0));
  EXPECT_EQ(pass.report.torn, 1u);
  EXPECT_EQ(cursor.next, 2u);
}

TEST(WindowRing, TornRecordIsSkippedOnceALaterOneIsComplete) {
  FakePage fake({});
  RingCursor cursor;
  fake.TearWindow();
  fake.CloseWindow();
  const WindowPass pass = ReadAllWindows(fake, cursor);
  EXPECT_THAT(pass.indices, ElementsAre(1));
  EXPECT_EQ(pass.report.torn, 1u);
}

TEST(WindowRing, InvalidRecordsAreCountedNotDelivered) {
  const std::function<void(page::WindowRecord&)> changes[] = {
      [](page::WindowRecord& r) { r.window_index = 7; },         // not the slot's
      [](page::WindowRecord& r) { r.kind = 0; },                 // unset
      [](page::WindowRecord& r) { r.kind = 4; },                 // no kind
      [](page::WindowRecord& r) { r.mode = 5; },                 // no mode
      [](page::WindowRecord& r) { r.flags = 1u << 5; },          // no flag
      [](page::WindowRecord& r) { r.end_ns = r.begin_ns - 1; },  // ends before it begins
  };
  for (const auto& change : changes) {
    FakePage fake({});
    RingCursor cursor;
    page::WindowRecord record = FakePage::MakeRecord(0);
    change(record);
    fake.CloseWindow(record);
    const WindowPass pass = ReadAllWindows(fake, cursor);
    EXPECT_EQ(pass.report.invalid, 1u);
    EXPECT_THAT(pass.indices, IsEmpty());
  }
}

TEST(WindowRing, GarbagePositionsAreIgnored) {
  FakePage fake({});
  RingCursor cursor;
  fake.CloseWindow();
  fake.CloseWindow();
  ReadAllWindows(fake, cursor);
  for (const uint64_t end : {uint64_t{0}, uint64_t{1}, UINT64_MAX, (uint64_t{1} << 62) + 1}) {
    fake.page().ring.window_next.store(end);
    EXPECT_THAT(ReadAllWindows(fake, cursor).indices, IsEmpty());
    EXPECT_EQ(cursor.next, 2u);
  }
}

TEST(WindowRing, HugeJumpIsCountedAndCostsLittle) {
  FakePage fake({});
  RingCursor cursor;
  fake.page().ring.window_next.store(uint64_t{1} << 61);
  const WindowPass pass = ReadAllWindows(fake, cursor, Pass::kFinal);
  EXPECT_EQ(pass.report.missed, (uint64_t{1} << 61) - page::kWindowSlots);
  EXPECT_EQ(pass.report.torn, page::kWindowSlots);
}

EventReport ReadAllEvents(FakePage& fake, RingCursor& cursor, Pass pass, std::vector<uint64_t>* indices = nullptr) {
  const uint64_t before = cursor.next;
  const EventReport report = ReadEvents(fake.page(), cursor, pass, [&](const page::Event& event) {
    if (indices != nullptr) indices->push_back(event.index);
  });
  EXPECT_EQ(report.delivered + report.overwritten + report.dropped + report.invalid, cursor.next - before);
  return report;
}

TEST(EventRing, PayloadIsUnpacked) {
  FakePage fake({});
  RingCursor cursor;
  fake.AddEvent(EventKind::kCollectiveDone, 1234);
  ReadEvents(fake.page(), cursor, Pass::kTick, [](const page::Event& event) {
    EXPECT_EQ(event.kind, EventKind::kCollectiveDone);
    EXPECT_EQ(event.op, CollectiveOp::kAllReduce);
    EXPECT_EQ(event.traffic, TrafficClass::kGradient);
    EXPECT_EQ(event.micro_step, 1u);
    EXPECT_EQ(event.value, 1234u);
  });
  EXPECT_EQ(cursor.next, 1u);
}

TEST(EventRing, WrapAroundCountIsExact) {
  FakePage fake({});
  RingCursor cursor;
  const uint64_t count = 3 * page::kEventSlots + 5;
  for (uint64_t i = 0; i < count; ++i) fake.AddEvent(EventKind::kMicroStepBegin);
  std::vector<uint64_t> indices;
  const EventReport report = ReadAllEvents(fake, cursor, Pass::kTick, &indices);
  EXPECT_EQ(report.delivered, page::kEventSlots);
  EXPECT_EQ(report.overwritten, count - page::kEventSlots);
  EXPECT_EQ(indices.front(), count - page::kEventSlots);
}

TEST(EventRing, ReservedSlotHoldsBackOneTickThenIsDropped) {
  FakePage fake({});
  RingCursor cursor;
  fake.AddEvent(EventKind::kMicroStepBegin);
  fake.ReserveEvent();
  fake.AddEvent(EventKind::kMicroStepEnd);
  EXPECT_EQ(ReadAllEvents(fake, cursor, Pass::kQuery).delivered, 1u);
  EXPECT_EQ(ReadAllEvents(fake, cursor, Pass::kTick).delivered, 0u);
  EXPECT_EQ(ReadAllEvents(fake, cursor, Pass::kQuery).dropped, 0u);  // queries do not use up its time
  const EventReport report = ReadAllEvents(fake, cursor, Pass::kTick);
  EXPECT_EQ(report.dropped, 1u);
  EXPECT_EQ(report.delivered, 1u);
}

TEST(EventRing, FinalPassDoesNotWait) {
  FakePage fake({});
  RingCursor cursor;
  fake.ReserveEvent();
  fake.AddEvent(EventKind::kMicroStepEnd);
  const EventReport report = ReadAllEvents(fake, cursor, Pass::kFinal);
  EXPECT_EQ(report.dropped, 1u);
  EXPECT_EQ(report.delivered, 1u);
}

TEST(EventRing, InvalidEventsAreCounted) {
  FakePage fake({});
  RingCursor cursor;
  fake.AddEvent(EventKind::kMicroStepBegin);
  fake.page().events[0].what.store(0xff);  // no kind
  EXPECT_EQ(ReadAllEvents(fake, cursor, Pass::kTick).invalid, 1u);
}

// A writer and a reader at full speed: no record is torn, none is delivered twice, each is accounted for.
TEST(WindowRing, ConcurrentWriterNeverYieldsATornRecord) {
  FakePage fake({});
  constexpr uint64_t kWindows = 20000;
  std::thread writer([&fake] {
    for (uint64_t i = 0; i < kWindows; ++i) {
      page::WindowRecord record = FakePage::MakeRecord(i);
      record.gradient_bytes = record.item_count = record.wait_ns = record.policy_version = i;
      fake.CloseWindow(record);
    }
  });
  RingCursor cursor;
  uint64_t delivered = 0, missed = 0, last = 0;
  while (cursor.next < kWindows) {
    const WindowReport report = ReadWindows(fake.page(), cursor, Pass::kTick, [&](const page::WindowRecord& record) {
      EXPECT_TRUE(record.gradient_bytes == record.window_index && record.item_count == record.window_index &&
                  record.wait_ns == record.window_index && record.policy_version == record.window_index);
      EXPECT_TRUE(delivered == 0 || record.window_index > last);
      last = record.window_index;
      ++delivered;
    });
    EXPECT_EQ(report.torn + report.invalid, 0u);
    missed += report.missed;
  }
  writer.join();
  EXPECT_EQ(delivered + missed, kWindows);
}

}  // namespace
}  // namespace gradgate
