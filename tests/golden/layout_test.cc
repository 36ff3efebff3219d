// Today's pages and frames read by what each version's own code said of offsets: what an old daemon finds in them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "proto/link/frames.h"
#include "shim/stats/recorder.h"
#include "tests/golden/golden.h"

namespace gradgate {
namespace {

using golden::Layout;

class OldLayout : public ::testing::TestWithParam<std::string> {
 protected:
  const Layout page_{GetParam() + "/page.layout"};
  const Layout frames_{GetParam() + "/frames.layout"};
};

// Nothing that had a name has moved or changed its size; what was reserved may have been taken since, piece by piece.
void ExpectKept(const Layout& before, const Layout& now) {
  EXPECT_FALSE(before.fields().empty());
  for (const auto& [name, field] : before.fields()) {
    if (name.find(".reserved") != std::string::npos) continue;
    const auto at = now.fields().find(name);
    ASSERT_NE(at, now.fields().end()) << name << " is gone; an old reader still looks for it: give it back, or raise the major";
    EXPECT_EQ(at->second, field) << name << " has moved or changed its size: append instead, or raise the major";
  }
  for (const auto& [name, bytes] : before.sizes()) EXPECT_EQ(now.sizes().at(name), bytes) << name;
}

TEST_P(OldLayout, KeepsItsFieldsWhereTheyWere) {
  ExpectKept(page_, Layout("../proto/stats_page.golden"));
  ExpectKept(frames_, Layout("../proto/frames.golden"));
}

TEST_P(OldLayout, FindsItsFieldsInAPageOfToday) {
  std::unique_ptr<Recorder> recorder;
  RecorderIdentity identity;
  identity.job_name = "now", identity.rank = 2, identity.world_size = 3, identity.accumulate = 4;
  ASSERT_TRUE(Recorder::Create(identity, &recorder).ok());
  recorder->page().totals.step_count.store(41);
  recorder->CollectiveIssued(GroupRole::kShard, CollectiveOp::kReduceScatter, TrafficClass::kGradient, 4096, 3, true, 1, 100);
  recorder->CollectiveDone(GroupRole::kShard, CollectiveOp::kReduceScatter, TrafficClass::kGradient, true, 1, 100, 175);
  page::WindowRecord record{};
  record.kind = static_cast<uint8_t>(WindowKind::kFull), record.issued_reductions = 1, record.gradient_bytes = 4096;
  recorder->WindowClosed(record);

  const char* bytes = reinterpret_cast<const char*>(&recorder->page());
  const auto read = [&](size_t base, const std::string& field) { return page_.Read(bytes, base, field); };
  const auto base = [&](const std::string& name) { return page_.fields().at("StatsPage." + name).offset; };
  EXPECT_EQ(read(0, "PageHeader.magic"), page_.value("magic"));
  EXPECT_EQ(read(0, "PageHeader.major"), 1u);
  EXPECT_EQ(read(0, "PageHeader.layout_hash"), page_.value("layout_hash")) << "an old daemon would turn it away";
  EXPECT_GE(read(0, "PageHeader.page_bytes"), page_.sizes().at("StatsPage"));
  EXPECT_EQ(read(base("identity"), "PageIdentity.rank"), 2u);
  EXPECT_EQ(read(base("identity"), "PageIdentity.world_size"), 3u);
  EXPECT_EQ(read(base("identity"), "PageIdentity.accumulate"), 4u);
  EXPECT_STREQ(bytes + base("identity") + page_.fields().at("PageIdentity.job_name").offset, "now");
  EXPECT_EQ(read(base("totals"), "PageTotals.step_count"), 41u);
  const size_t cell = base("cells") + (1 * 11 + 1) * page_.sizes().at("CollectiveCell");
  EXPECT_EQ(read(cell, "CollectiveCell.intended_count"), 1u);
  EXPECT_EQ(read(cell, "CollectiveCell.completed_count"), 1u);
  EXPECT_EQ(read(cell, "CollectiveCell.tensor_count"), 3u);
  EXPECT_EQ(read(cell, "CollectiveCell.duration_ns"), 75u);
  EXPECT_EQ(read(base("ring"), "RingControl.event_next"), 2u);
  EXPECT_EQ(read(base("ring"), "RingControl.window_next"), 1u);
  EXPECT_EQ(read(base("windows"), "WindowSlot.sequence"), 2u) << "2i + 2: window 0 is done";
  const size_t window = base("windows") + page_.fields().at("WindowSlot.words").offset;
  EXPECT_EQ(read(window, "WindowRecord.kind"), 1u);
  EXPECT_EQ(read(window, "WindowRecord.issued_reductions"), 1u);
  EXPECT_EQ(read(window, "WindowRecord.gradient_bytes"), 4096u);
  EXPECT_EQ(read(base("events"), "EventSlot.sequence"), 2u);
  EXPECT_EQ(read(base("events"), "EventSlot.time_ns"), 100u);
  EXPECT_EQ(read(base("events"), "EventSlot.value"), 4096u);
}

// What today's shim says first, as a daemon of that version takes it apart.
TEST_P(OldLayout, FindsItsFieldsInAFrameOfToday) {
  link::HelloFrame hello{};
  hello.header = link::MakeHeader(link::FrameType::kHello, sizeof(hello));
  hello.page_bytes = 186944, hello.layout_hash = page::kLayoutHash;
  const char* bytes = reinterpret_cast<const char*>(&hello);
  EXPECT_EQ(frames_.Read(bytes, 0, "FrameHeader.magic"), frames_.value("magic"));
  EXPECT_EQ(frames_.Read(bytes, 0, "FrameHeader.major"), 1u);
  EXPECT_EQ(frames_.Read(bytes, 0, "FrameHeader.type"), 1u);
  EXPECT_EQ(frames_.Read(bytes, 0, "FrameHeader.frame_bytes"), frames_.sizes().at("HelloFrame"));
  EXPECT_EQ(frames_.Read(bytes, 0, "HelloFrame.layout_hash"), page_.value("layout_hash"));
}

TEST(Versions, TodaysIsAmongTheGoldenOnes) {
  const std::string today = std::to_string(page::kMajor) + "." + std::to_string(page::kMinor);
  EXPECT_EQ(golden::kVersions.back(), today) << "record it before it changes again: tests/golden/record.py " << today;
}

INSTANTIATE_TEST_SUITE_P(EachVersion, OldLayout, ::testing::ValuesIn(golden::kVersions), golden::TestName);

}  // namespace
}  // namespace gradgate
