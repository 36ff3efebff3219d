#include "shim/reduce/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/shim/reduce/memory_store.h"

namespace gradgate {
namespace {

using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

HandshakeOptions Options(Store* store, uint32_t rank, uint32_t world_size, int64_t timeout_ns = 20'000 * kMs) {
  HandshakeOptions options;
  options.store = store;
  options.prefix = "p/";
  options.rank = rank;
  options.world_size = world_size;
  options.facts = {{"gradgate", "0.1.0"}, {"accumulate", "4"}};
  options.run_id[0] = static_cast<uint8_t>(rank + 1);
  options.launch_id[15] = static_cast<uint8_t>(rank + 101);
  options.timeout_ns = timeout_ns;
  return options;
}

TEST(Handshake, AllRanksTakeTheIdsOfRankZero) {
  MemoryStore store;
  std::vector<AgreedIds> ids(4);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] { EXPECT_TRUE(Handshake(Options(&store, rank, 4), &ids[rank]).ok()); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const AgreedIds& id : ids) {
    EXPECT_EQ(id.run_id[0], 1);
    EXPECT_EQ(id.launch_id[15], 101);
  }
}

TEST(Handshake, OneProcessNeedsNoStore) {
  AgreedIds id;
  EXPECT_TRUE(Handshake(Options(nullptr, 0, 1), &id).ok());
  EXPECT_EQ(id.run_id[0], 1);
  EXPECT_EQ(id.launch_id[15], 101);
}

TEST(Handshake, EveryMissingRankIsNamedByRankZeroAndByTheOthers) {
  MemoryStore store;
  AgreedIds id;
  Status from_zero, from_two;
  std::thread zero([&] { from_zero = Handshake(Options(&store, 0, 5, 300 * kMs), &id); });
  AgreedIds other;
  std::thread two([&] { from_two = Handshake(Options(&store, 2, 5, 300 * kMs), &other); });
  zero.join();
  two.join();
  EXPECT_EQ(from_zero.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(from_zero.message(), HasSubstr("no gradgate on ranks [1, 3, 4] within 0.3 s"));
  EXPECT_EQ(from_two.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(from_two.message(), HasSubstr("[1, 3, 4]"));
}

TEST(Handshake, RankZeroMissingIsNamedByTheOthers) {
  MemoryStore store;
  AgreedIds id;
  const Status status = Handshake(Options(&store, 1, 2, 100 * kMs), &id);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("no gradgate on ranks [0]"));
}

TEST(Handshake, EveryDifferenceIsNamed) {
  MemoryStore store;
  AgreedIds id;
  ASSERT_TRUE(store.Set("p/hello/1", "gradgate=0.1.0\naccumulate=8\n", kMs).ok());
  ASSERT_TRUE(store.Set("p/hello/2", "accumulate=4\n", kMs).ok());
  const Status status = Handshake(Options(&store, 0, 3), &id);
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 has accumulate=8 where rank 0 has 4"));
  EXPECT_THAT(status.message(), HasSubstr("rank 2 has gradgate=nothing where rank 0 has 0.1.0"));
  std::string verdict;
  ASSERT_TRUE(store.Get("p/verdict", kMs, &verdict).ok());
  MemoryStore of_rank_one;  // its own hello came before
  ASSERT_TRUE(of_rank_one.Set("p/verdict", verdict, kMs).ok());
  const Status told = Handshake(Options(&of_rank_one, 1, 3), &id);
  EXPECT_EQ(told.code(), Code::kAborted);
  EXPECT_EQ(told.message(), status.message());
}

TEST(Handshake, AStoreOfAnotherRunIsRefused) {
  MemoryStore store;
  AgreedIds id;
  std::thread other([&] {
    AgreedIds theirs;
    EXPECT_TRUE(Handshake(Options(&store, 1, 2), &theirs).ok());
  });
  EXPECT_TRUE(Handshake(Options(&store, 0, 2), &id).ok());
  other.join();
  for (uint32_t rank : {0, 1}) {
    const Status again = Handshake(Options(&store, rank, 2), &id);
    EXPECT_EQ(again.code(), Code::kFailedPrecondition);
    EXPECT_THAT(again.message(), HasSubstr("already holds rank " + std::to_string(rank) + " of another run"));
  }
}

TEST(Handshake, GarbageInTheStoreIsAnErrorNotACrash) {
  for (const char* verdict : {"", "ok", "ok zz", "ok 0123", "nonsense", "4", "ok 0123456789abcdef0123456789abcdeF",
                              "ok 0123456789abcdef0123456789abcdef", "ok 0123456789abcdef0123456789abcdef 0123"}) {
    MemoryStore store;
    AgreedIds id;
    ASSERT_TRUE(store.Set("p/verdict", verdict, kMs).ok());
    EXPECT_FALSE(Handshake(Options(&store, 1, 2, 100 * kMs), &id).ok()) << verdict;
  }
  MemoryStore store;
  AgreedIds id;
  ASSERT_TRUE(store.Set("p/hello/1", std::string("\0\xff=\n==\n", 7), kMs).ok());
  EXPECT_EQ(Handshake(Options(&store, 0, 2), &id).code(), Code::kAborted);
}

class DeadStore : public Store {
 public:
  Status Set(const std::string&, std::string_view, int64_t) override { return Unavailable("the store is gone"); }
  Status Get(const std::string&, int64_t, std::string*) override { return Unavailable("the store is gone"); }
};

TEST(Handshake, AStoreThatIsGoneIsTold) {
  DeadStore store;
  AgreedIds id;
  const Status status = Handshake(Options(&store, 0, 2), &id);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "the store is gone");
}

}  // namespace
}  // namespace gradgate
