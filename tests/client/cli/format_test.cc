#include "client/cli/format.h"

#include "gtest/gtest.h"
#include "proto/shm/types.h"

namespace gradgate::cli {
namespace {

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("digits"), "digits");
  EXPECT_EQ(Printable("Zürich ✓"), "Zürich ✓");
  EXPECT_EQ(Printable("a\x1b[31mb\r\n\x7f"), "a\\x1b[31mb\\x0d\\x0a\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");  // the one-character CSI
  EXPECT_EQ(Printable("\xc2\xa0\xc2"), "\xc2\xa0\xc2");
}

TEST(HumanBytes, HasThreeDigitsAndNeverAThousand) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(1000), "1.00 kB");
  EXPECT_EQ(HumanBytes(9994), "9.99 kB");
  EXPECT_EQ(HumanBytes(9996), "10.0 kB");
  EXPECT_EQ(HumanBytes(99960), "100 kB");
  EXPECT_EQ(HumanBytes(999499), "999 kB");
  EXPECT_EQ(HumanBytes(999500), "1.00 MB");
  EXPECT_EQ(HumanBytes(INT64_MAX), "9.22 EB");
}

TEST(HumanDuration, HasTwoUnitsAtMost) {
  EXPECT_EQ(HumanDuration(-absl::Seconds(5)), "0.0s");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(1250)), "1.2s");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(9970)), "9s");
  EXPECT_EQ(HumanDuration(absl::Seconds(59)), "59s");
  EXPECT_EQ(HumanDuration(absl::Seconds(60)), "1m00s");
  EXPECT_EQ(HumanDuration(absl::Minutes(125)), "2h05m");
  EXPECT_EQ(HumanDuration(absl::Hours(76)), "3d04h");
}

TEST(Durations, HaveThreeDecimals) {
  google::protobuf::Duration duration;
  duration.set_seconds(12);
  duration.set_nanos(345678901);
  EXPECT_EQ(Seconds(duration), "12.346");
  EXPECT_EQ(Milliseconds(duration), "12345.679");
}

TEST(UtcTime, IsToTheSecond) {
  google::protobuf::Timestamp time;
  time.set_seconds(1767225599);
  time.set_nanos(999999999);
  EXPECT_EQ(UtcTime(time), "2025-12-31 23:59:59Z");
}

TEST(Ratio, OfNothingIsADash) {
  EXPECT_EQ(Ratio(3, 0), "-");
  EXPECT_EQ(Ratio(252, 252), "1.00");
  EXPECT_EQ(Ratio(1008, 252), "4.00");
}

// The words of the proto are those of the metrics and of the stats page.
TEST(Word, IsTheOneSpelling) {
  for (uint32_t i = 0; i < kGroupRoleCount; ++i) {
    EXPECT_EQ(Word(static_cast<v1::GroupRole>(i + 1)), std::string(Name(static_cast<GroupRole>(i))));
  }
  for (uint32_t i = 0; i < kCollectiveOpCount; ++i) {
    EXPECT_EQ(Word(static_cast<v1::CollectiveOp>(i + 1)), std::string(Name(static_cast<CollectiveOp>(i))));
  }
  for (int i = v1::SyncMode_MIN; i <= v1::SyncMode_MAX; ++i) {
    EXPECT_EQ(Word(static_cast<v1::SyncMode>(i)), std::string(Name(static_cast<SyncMode>(i))));
  }
  for (int i = v1::Enforcement_MIN; i <= v1::Enforcement_MAX; ++i) {
    EXPECT_EQ(Word(static_cast<v1::Enforcement>(i)), std::string(Name(static_cast<Enforcement>(i))));
  }
  for (int i = v1::WindowKind_MIN; i <= v1::WindowKind_MAX; ++i) {
    EXPECT_EQ(Word(static_cast<v1::WindowKind>(i)), std::string(Name(static_cast<WindowKind>(i))));
  }
  EXPECT_EQ(Word(v1::STATE_LOST), "lost");
}

TEST(Word, OfANewerDaemonIsItsNumber) { EXPECT_EQ(Word(static_cast<v1::CollectiveOp>(77)), "77"); }

TEST(Ranks, JoinsNeighbours) {
  EXPECT_EQ(Ranks({3}), "rank 3");
  EXPECT_EQ(Ranks({0, 1, 2, 7}), "ranks 0-2,7");
  EXPECT_EQ(Ranks({1, 3, 4}), "ranks 1,3-4");
}

TEST(CountsByRank, PutsTheLargestFirstAndLeavesZerosOut) {
  EXPECT_EQ(CountsByRank({}), "");
  EXPECT_EQ(CountsByRank({{0, 0}, {1, 0}}), "");
  EXPECT_EQ(CountsByRank({{0, 1}, {1, 2}, {2, 2}, {5, 1}, {6, 0}}), "2 on ranks 1-2, 1 on ranks 0,5");
}

}  // namespace
}  // namespace gradgate::cli
