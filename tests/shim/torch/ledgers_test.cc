#include "shim/torch/ledgers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace gradgate::tap {
namespace {

using ::testing::ElementsAre;

// Stands for the library's ledger: what it was told.
struct FakeLedger {
  std::vector<std::tuple<gg_group, gg_op, gg_traffic, uint64_t>> issued;
  std::atomic<int> count{0};
  std::atomic<int> done{0};
  std::atomic<bool> alive{true};
  std::atomic<int> after_death{0};
  bool keeps = true;

  gg_ledger* handle() { return reinterpret_cast<gg_ledger*>(this); }
  static FakeLedger& Of(gg_ledger* handle) { return *reinterpret_cast<FakeLedger*>(handle); }
};

int64_t OnIssued(gg_ledger* handle, gg_group role, gg_op op, gg_traffic traffic, uint64_t bytes, uint32_t) {
  FakeLedger& ledger = FakeLedger::Of(handle);
  if (!ledger.alive) ++ledger.after_death;
  if (ledger.keeps) ledger.issued.emplace_back(role, op, traffic, bytes);
  ++ledger.count;
  return 7;
}

void OnDone(gg_ledger* handle, gg_group, gg_op, gg_traffic, int64_t issue_ns, gg_outcome) {
  FakeLedger& ledger = FakeLedger::Of(handle);
  if (!ledger.alive) ++ledger.after_death;
  if (issue_ns == 7) ++ledger.done;
}

bool Yes() { return true; }
bool No() { return false; }

Call AllReduce(int64_t elements = 10) { return {GG_OP_ALL_REDUCE, 1, 4u * static_cast<uint64_t>(elements), elements, true}; }
Call ReduceScatter() { return {GG_OP_REDUCE_SCATTER, 1, 40, 10, true}; }

class LedgersTest : public ::testing::Test {
 protected:
  LedgersTest() { ledgers_.Bind(one_.handle(), &OnIssued, &OnDone); }

  gg_traffic Traffic(const std::string& group, const Call& call, bool (*reducing)() = &Yes) {
    return ledgers_.Issued(group, call, reducing, nullptr).traffic;
  }

  Ledgers ledgers_;
  FakeLedger one_;
  FakeLedger two_;
};

TEST_F(LedgersTest, AGradientIsAReductionOfItsRoleInsideABackward) {
  ledgers_.SetRole(one_.handle(), "dp", GG_GROUP_DP);
  ledgers_.SetRole(one_.handle(), "replicate", GG_GROUP_REPLICATE);
  ledgers_.SetRole(one_.handle(), "shard", GG_GROUP_SHARD);
  EXPECT_EQ(Traffic("dp", AllReduce()), GG_TRAFFIC_GRADIENT);
  EXPECT_EQ(Traffic("replicate", AllReduce()), GG_TRAFFIC_GRADIENT);
  EXPECT_EQ(Traffic("shard", ReduceScatter()), GG_TRAFFIC_GRADIENT);
  EXPECT_EQ(Traffic("dp", AllReduce(), &No), GG_TRAFFIC_OTHER);
  EXPECT_EQ(Traffic("dp", ReduceScatter()), GG_TRAFFIC_OTHER);
  EXPECT_EQ(Traffic("shard", AllReduce()), GG_TRAFFIC_OTHER);
  EXPECT_EQ(Traffic("elsewhere", AllReduce()), GG_TRAFFIC_OTHER);
  Call integers = AllReduce();
  integers.real = false;
  EXPECT_EQ(Traffic("dp", integers), GG_TRAFFIC_OTHER);
}

TEST_F(LedgersTest, AGroupWithSeveralRolesHasTheOneThatTheOperationReduces) {
  ledgers_.SetRole(one_.handle(), "world", GG_GROUP_SHARD);
  ledgers_.SetRole(one_.handle(), "world", GG_GROUP_DP);
  EXPECT_EQ(Traffic("world", ReduceScatter()), GG_TRAFFIC_GRADIENT);
  EXPECT_EQ(Traffic("world", AllReduce()), GG_TRAFFIC_GRADIENT);
  EXPECT_THAT(one_.issued, ElementsAre(std::tuple(GG_GROUP_SHARD, GG_OP_REDUCE_SCATTER, GG_TRAFFIC_GRADIENT, 40u),
                                       std::tuple(GG_GROUP_DP, GG_OP_ALL_REDUCE, GG_TRAFFIC_GRADIENT, 40u)));
}

TEST_F(LedgersTest, SizesTellBucketsFromWhatLayersReduce) {
  ledgers_.SetRole(one_.handle(), "dp", GG_GROUP_DP);
  ledgers_.SetSizes(one_.handle(), {20, 10}, false);
  EXPECT_EQ(Traffic("dp", AllReduce(10)), GG_TRAFFIC_GRADIENT);
  EXPECT_EQ(Traffic("dp", AllReduce(20)), GG_TRAFFIC_GRADIENT);
  EXPECT_EQ(Traffic("dp", AllReduce(6)), GG_TRAFFIC_OTHER);
  ledgers_.SetSizes(one_.handle(), {}, true);
  EXPECT_EQ(Traffic("dp", AllReduce(6)), GG_TRAFFIC_GRADIENT);
}

TEST_F(LedgersTest, OursIsOursWhateverItLooksLike) {
  ledgers_.SetRole(one_.handle(), "ballot", GG_GROUP_DP);
  ledgers_.SetOurs("ballot");
  EXPECT_EQ(Traffic("ballot", AllReduce()), GG_TRAFFIC_OURS);
  EXPECT_THAT(one_.issued, ElementsAre(std::tuple(GG_GROUP_DP, GG_OP_ALL_REDUCE, GG_TRAFFIC_OURS, 40u)));
}

TEST_F(LedgersTest, GoesToTheActiveLedgerThatKnowsTheGroupElseToOneThatDoesElseToTheFirst) {
  ledgers_.Bind(two_.handle(), &OnIssued, &OnDone);
  ledgers_.SetRole(one_.handle(), "both", GG_GROUP_DP);
  ledgers_.SetRole(two_.handle(), "both", GG_GROUP_REPLICATE);
  ledgers_.SetRole(two_.handle(), "second's", GG_GROUP_SHARD);
  EXPECT_EQ(ledgers_.Issued("both", AllReduce(), &Yes, nullptr).role, GG_GROUP_DP);
  ledgers_.SetActive(two_.handle());
  EXPECT_EQ(ledgers_.Issued("both", AllReduce(), &Yes, nullptr).role, GG_GROUP_REPLICATE);
  ledgers_.SetActive(one_.handle());
  EXPECT_EQ(ledgers_.Issued("second's", AllReduce(), &Yes, nullptr).role, GG_GROUP_SHARD);
  EXPECT_EQ(ledgers_.Issued("unknown", AllReduce(), &Yes, nullptr).role, GG_GROUP_OTHER);
  EXPECT_EQ(one_.count, 2);
  EXPECT_EQ(two_.count, 2);
}

TEST_F(LedgersTest, AnArmedLedgerStopsItsNextGradientOnceBeforeItIsCounted) {
  ledgers_.SetRole(one_.handle(), "dp", GG_GROUP_DP);
  ledgers_.Arm(one_.handle(), true);
  gg_ledger* stop = nullptr;
  ledgers_.Issued("dp", AllReduce(), &No, &stop);
  EXPECT_EQ(stop, nullptr);
  EXPECT_EQ(ledgers_.Issued("dp", AllReduce(), &Yes, &stop).binding, 0u);
  EXPECT_EQ(stop, one_.handle());
  EXPECT_EQ(one_.count, 1);
  stop = nullptr;
  EXPECT_NE(ledgers_.Issued("dp", AllReduce(), &Yes, &stop).binding, 0u);
  EXPECT_EQ(stop, nullptr);
  ledgers_.Arm(one_.handle(), true);
  EXPECT_NE(ledgers_.Issued("dp", AllReduce(), &Yes, nullptr).binding, 0u)
      << "one that rearms in its callback is counted all the same";
}

TEST_F(LedgersTest, NothingReachesAnUnboundLedger) {
  ledgers_.SetRole(one_.handle(), "dp", GG_GROUP_DP);
  ledgers_.SetActive(one_.handle());
  const Issue issue = ledgers_.Issued("dp", AllReduce(), &Yes, nullptr);
  EXPECT_TRUE(ledgers_.Any());
  ledgers_.Unbind(one_.handle());
  ledgers_.Unbind(one_.handle());
  EXPECT_FALSE(ledgers_.Any());
  EXPECT_FALSE(ledgers_.SetRole(one_.handle(), "dp", GG_GROUP_DP));
  ledgers_.Bind(one_.handle(), &OnIssued, &OnDone);  // another at the same address
  EXPECT_FALSE(ledgers_.Bound(issue.binding));
  ledgers_.Done(issue, GG_OUTCOME_OK);
  EXPECT_EQ(one_.done, 0);
  EXPECT_EQ(ledgers_.Issued("dp", AllReduce(), &Yes, nullptr).role, GG_GROUP_OTHER) << "roles went with the binding";
}

TEST_F(LedgersTest, IssuedOnManyThreadsWhileOthersAreBoundAndUnbound) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 2000;
  one_.keeps = two_.keeps = false;
  ledgers_.SetRole(one_.handle(), "dp", GG_GROUP_DP);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < kCalls; ++i) {
        const Issue issue = ledgers_.Issued("dp", AllReduce(), &Yes, nullptr);
        ledgers_.Done(issue, GG_OUTCOME_OK);
        ledgers_.Done(ledgers_.Issued("second's", AllReduce(), &Yes, nullptr), GG_OUTCOME_OK);
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    two_.alive = true;
    ledgers_.Bind(two_.handle(), &OnIssued, &OnDone);
    ledgers_.SetRole(two_.handle(), "second's", GG_GROUP_DP);
    ledgers_.SetActive(two_.handle());
    ledgers_.Unbind(two_.handle());
    two_.alive = false;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(one_.count + two_.count, 2 * kThreads * kCalls);
  EXPECT_EQ(one_.count, one_.done);
  EXPECT_EQ(two_.after_death, 0);
}

TEST(LedgersFork, AChildBeginsWithNothingBound) {
  FakeLedger ledger;
  Ledgers& mine = Ledgers::Instance();
  mine.Bind(ledger.handle(), &OnIssued, &OnDone);
  const pid_t child = fork();
  if (child == 0) _exit(&Ledgers::Instance() != &mine && !Ledgers::Instance().Any() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(Ledgers::Instance().Any());
  mine.Unbind(ledger.handle());
}

}  // namespace
}  // namespace gradgate::tap
