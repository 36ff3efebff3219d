#include "client/planner/numbers.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate::planner {
namespace {

using ::testing::HasSubstr;

TEST(Fields, AreFoundByTheirKeyAlone) {
  for (const Field& field : Fields()) EXPECT_EQ(FindField(field.key), &field) << field.key;
  EXPECT_EQ(FindField("rank"), nullptr);
  EXPECT_EQ(FindField(""), nullptr);
}

TEST(Fields, AreWrittenInTheirOwnUnits) {
  const struct {
    const char* key;
    const char* text;
    double value;
  } kCases[] = {
      {"params", "7e9", 7e9},
      {"link-gbit", "100", 12.5e9},
      {"link-us", "10", 10e-6},
      {"bucket-mib", "25", 25.0 * 1024 * 1024},
      {"memory-gib", "80", 80.0 * 1024 * 1024 * 1024},
      {"wire-type", "bf16", 2},
      {"grad-type", "fp32", 4},
      {"param-type", "fp8", 1},
      {"param-type", "fp64", 8},
      {"wire-type", "fp16", 2},
      {"wire-type", "1.5", 1.5},
      {"ranks", " 16384 ", 16384},
      {"overlap-share", "0", 0},
  };
  for (const auto& c : kCases) {
    const Field& field = *FindField(c.key);
    const auto value = ParseValue(field, c.text);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_DOUBLE_EQ(*value, c.value) << c.key;
    const auto again = ParseValue(field, FormatValue(field, *value));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_DOUBLE_EQ(*again, *value) << c.key;
  }
}

TEST(Fields, EveryEndOfARangeIsInItAndNothingBeyond) {
  for (const Field& field : Fields()) {
    for (const double end : {field.min, field.max}) {
      EXPECT_TRUE(ParseValue(field, absl::StrCat(end)).ok()) << field.key << " " << end;
    }
    for (const double beyond : {field.min - 1, field.max * 1.01 + 1}) {
      EXPECT_FALSE(ParseValue(field, absl::StrCat(beyond)).ok()) << field.key << " " << beyond;
    }
  }
}

TEST(Fields, BadValuesAreNamedWithWhatTheyMayBe) {
  EXPECT_EQ(ParseValue(*FindField("ranks"), "16385").status().message(),
            "ranks: \"16385\" is not a whole number from 1 to 16384");
  EXPECT_EQ(ParseValue(*FindField("ranks"), "2.5").status().message(), "ranks: \"2.5\" is not a whole number from 1 to 16384");
  EXPECT_EQ(ParseValue(*FindField("sync-s"), "-1").status().message(), "sync-s: \"-1\" is not a number from 0 to 86400");
  EXPECT_EQ(ParseValue(*FindField("wire-type"), "int3").status().message(),
            "wire-type: \"int3\" is not fp64, fp32, bf16, fp16, fp8, or a number of bytes from 0.5 to 16");
  for (const char* text : {"nan", "inf", "-inf", "", "x", "1x", "0x10p", "1,5"}) {
    EXPECT_EQ(ParseValue(*FindField("compute-s"), text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Numbers, RangesAreCheckedWhereverTheyComeFrom) {
  for (const Field& field : Fields()) {
    for (const double bad : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()}) {
      Numbers numbers;
      numbers.*field.value = bad;
      const absl::Status status = CheckRanges(numbers);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field.key << bad;
      EXPECT_THAT(std::string(status.message()), HasSubstr(field.key));
    }
  }
  EXPECT_TRUE(CheckRanges({}).ok());
}

TEST(Changes, AreParsedLabelledAndMerged) {
  const auto changes = ParseChanges("ranks=128, link-gbit=400,wire-type=bf16");
  ASSERT_TRUE(changes.ok()) << changes.status();
  EXPECT_EQ(Label(*changes), "ranks=128 wire-type=2 link-gbit=400");
  Numbers base;
  base.rank_count = 64;
  base.accumulate = 4;
  base.present = Mode{Sync::kWindow, true};
  const Numbers merged = Merged(base, *changes);
  EXPECT_EQ(merged.rank_count, 128);
  EXPECT_EQ(merged.accumulate, 4);
  EXPECT_EQ(merged.link_bytes_per_second, 50e9);
  EXPECT_EQ(merged.present, (Mode{Sync::kWindow, true}));
  EXPECT_EQ(Label({}), "");
}

TEST(Changes, UnknownKeysAreNamedWithThoseThatThereAre) {
  for (const char* text : {"rank=1", "ranks", "", "ranks=1,,nodes=2", "=3"}) {
    const auto changes = ParseChanges(text);
    EXPECT_EQ(changes.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(std::string(ParseChanges("speed=3").status().message()),
              HasSubstr("\"speed=3\" is not KEY=VALUE with a KEY of: ranks, nodes, shards, accumulate"));
}

}  // namespace
}  // namespace gradgate::planner
