#include "shim/reduce/arrival_board.h"

#include <gtest/gtest.h>

#include "tests/shim/reduce/memory_store.h"

namespace gradgate {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(ArrivalBoard, NamesWhoHasNotComeAndWhereTheyWereSeen) {
  MemoryStore store;
  ArrivalBoard own(&store, "p/", 0, 5);
  ArrivalBoard(&store, "p/", 1, 5).GaveUp(7, 0, kMs);
  ArrivalBoard(&store, "p/", 2, 5).Arrived(6, 3, kMs);
  ArrivalBoard(&store, "p/", 4, 5).Left(5, "it closed its session", kMs);
  EXPECT_EQ(
      own.DescribeMissing(7, 0, 50 * kMs),
      "ranks [2, 3, 4] did not come (rank 2: last seen waiting in window 6; rank 4: left in window 5: it closed its session)");
}

// Killed or frozen while it waited: it came, but is to blame all the same.
TEST(ArrivalBoard, NamesWhoCameAndThenFellSilent) {
  MemoryStore store;
  ArrivalBoard own(&store, "p/", 0, 4);
  ArrivalBoard(&store, "p/", 1, 4).Arrived(7, 0, kMs);
  ArrivalBoard(&store, "p/", 2, 4).GaveUp(7, 0, kMs);
  EXPECT_EQ(own.DescribeMissing(7, 0, 20 * kMs), "ranks [3] did not come; ranks [1] came and then fell silent");
}

TEST(ArrivalBoard, NobodyIsNamedWhenAllGaveUp) {
  MemoryStore store;
  ArrivalBoard own(&store, "p/", 0, 3);
  ArrivalBoard(&store, "p/", 1, 3).GaveUp(7, 1, kMs);
  ArrivalBoard(&store, "p/", 2, 3).GaveUp(7, 1, kMs);
  EXPECT_EQ(own.DescribeMissing(7, 1, 3'600'000 * kMs), "");
}

TEST(ArrivalBoard, AnEarlierRoundIsNotAnArrival) {
  MemoryStore store;
  ArrivalBoard own(&store, "p/", 0, 2);
  ArrivalBoard(&store, "p/", 1, 2).Arrived(7, 1, kMs);
  EXPECT_EQ(own.DescribeMissing(7, 2, 5 * kMs), "ranks [1] did not come (rank 1: last seen waiting in window 7)");
}

TEST(ArrivalBoard, EndsEarlyWhenNobodyCanStillCome) {
  MemoryStore store;
  ArrivalBoard own(&store, "p/", 0, 2);
  ArrivalBoard(&store, "p/", 1, 2).Left(0, "out of memory", kMs);
  // An hour is given; a test that took it would be ended by its timeout.
  EXPECT_EQ(own.DescribeMissing(0, 0, 3'600'000 * kMs), "ranks [1] did not come (rank 1: left in window 0: out of memory)");
}

TEST(ArrivalBoard, GarbageIsNotAnArrival) {
  MemoryStore store;
  ArrivalBoard own(&store, "p/", 0, 2);
  for (const char* value : {"", "x", "-1", "7"}) {
    ASSERT_TRUE(store.Set("p/at/1", value, kMs).ok());
    EXPECT_NE(own.DescribeMissing(7, 1, 5 * kMs), "") << value;
  }
}

}  // namespace
}  // namespace gradgate
