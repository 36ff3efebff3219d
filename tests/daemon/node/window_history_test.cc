#include "daemon/node/window_history.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using ::testing::ElementsAre;

RankWindow Make(uint32_t rank, uint64_t index) { return {rank, {}, {}, testing::FakePage::MakeRecord(index)}; }

std::vector<uint64_t> Indices(const WindowHistory& history) {
  std::vector<uint64_t> indices;
  for (const auto& [index, ranks] : history.windows()) indices.push_back(index);
  return indices;
}

TEST(WindowHistory, RanksOfAWindowAreSorted) {
  WindowHistory history(4);
  for (const uint32_t rank : {2, 0, 1}) history.Add(Make(rank, 7));
  std::vector<uint32_t> ranks;
  for (const RankWindow& window : history.windows().at(7)) ranks.push_back(window.rank);
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2));
}

TEST(WindowHistory, SecondRecordOfARankReplacesTheFirst) {
  WindowHistory history(4);
  history.Add(Make(0, 1));
  RankWindow again = Make(0, 1);
  again.record.item_count = 9;
  history.Add(again);
  ASSERT_EQ(history.windows().at(1).size(), 1u);
  EXPECT_EQ(history.windows().at(1)[0].record.item_count, 9u);
}

TEST(WindowHistory, OldestWindowsGoFirst) {
  WindowHistory history(2);
  for (const uint64_t index : {5, 6, 7}) history.Add(Make(0, index));
  EXPECT_THAT(Indices(history), ElementsAre(6, 7));
  history.Add(Make(1, 5));
  EXPECT_THAT(Indices(history), ElementsAre(6, 7)) << "one older than all is not kept";
}

TEST(WindowHistory, RecordsAreBoundedToo) {
  WindowHistory history(100, /*max_records=*/4);
  for (const uint64_t index : {0, 1, 2}) {
    for (const uint32_t rank : {0, 1}) history.Add(Make(rank, index));
  }
  EXPECT_THAT(Indices(history), ElementsAre(1, 2));
  history.Add(Make(0, 0));
  EXPECT_THAT(Indices(history), ElementsAre(1, 2));
}

TEST(WindowHistory, NewestWindowIsKeptWhole) {
  WindowHistory history(100, /*max_records=*/2);
  for (const uint32_t rank : {0, 1, 2, 3}) history.Add(Make(rank, 9));
  EXPECT_EQ(history.windows().at(9).size(), 4u);
}

}  // namespace
}  // namespace gradgate
