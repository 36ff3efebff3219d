#include "client/planner/collectives.h"

#include "gtest/gtest.h"

namespace gradgate::planner {
namespace {

constexpr Links kLinks{100e9, 3e-6, 10e9, 10e-6};

void ExpectGroup(const Group& group, double per_node, double nodes, double sharing) {
  EXPECT_EQ(group.per_node, per_node);
  EXPECT_EQ(group.nodes, nodes);
  EXPECT_EQ(group.sharing, sharing);
}

TEST(Groups, ShardsOfANodeReplicatedAcrossNodes) {
  const Groups groups = GroupsOf(16, 2, 8);
  ExpectGroup(groups.all, 8, 2, 1);
  ExpectGroup(groups.shard, 8, 1, 1);
  ExpectGroup(groups.replica, 1, 2, 8);
}

TEST(Groups, SeveralShardGroupsOnANode) {
  const Groups groups = GroupsOf(16, 2, 2);
  ExpectGroup(groups.shard, 2, 1, 4);
  ExpectGroup(groups.replica, 4, 2, 2);
}

TEST(Groups, ShardsOverSeveralNodes) {
  const Groups groups = GroupsOf(64, 8, 16);
  ExpectGroup(groups.shard, 8, 2, 1);
  ExpectGroup(groups.replica, 1, 4, 8);
}

TEST(Groups, ShardsThatDoNotFitNodes) {
  const Groups groups = GroupsOf(24, 6, 3);
  ExpectGroup(groups.shard, 1, 3, 4);
  EXPECT_EQ(groups.replica.ranks(), 8);
}

TEST(AllReduce, InsideANodeIsARing) {
  // 2 · 7/8 of 8 GB at 100 GB/s, and 14 messages.
  const Cost cost = AllReduce({8, 1, 1}, 8e9, kLinks);
  EXPECT_DOUBLE_EQ(cost.intra_bytes, 14e9);
  EXPECT_DOUBLE_EQ(cost.inter_bytes, 0);
  EXPECT_DOUBLE_EQ(cost.seconds, 0.14 + 14 * 3e-6);
}

TEST(AllReduce, OfTwoNodesTakesTheTimeOfTheSlowerLink) {
  // 14 GB at 100 GB/s beside 8 GB at 10 GB/s; 14 messages inside, 2 between.
  const Cost cost = AllReduce({8, 2, 1}, 8e9, kLinks);
  EXPECT_DOUBLE_EQ(cost.inter_bytes, 8e9);
  EXPECT_DOUBLE_EQ(cost.seconds, 0.8 + 14 * 3e-6 + 2 * 10e-6);
}

TEST(AllReduce, GroupsThatShareANodeShareItsLink) {
  const Cost cost = AllReduce({1, 2, 8}, 1e9, kLinks);
  EXPECT_DOUBLE_EQ(cost.inter_bytes, 8e9);
  EXPECT_DOUBLE_EQ(cost.seconds, 0.8 + 2 * 10e-6);
}

TEST(AllReduce, OfManyNodesIsATreeWhereLatencyMatters) {
  // 2,048 nodes: a ring has 4,094 messages, a tree 22.
  const Cost small = AllReduce({8, 2048, 1}, 1e6, kLinks);
  EXPECT_DOUBLE_EQ(small.seconds, 2e6 / 10e9 + 14 * 3e-6 + 22 * 10e-6);
  EXPECT_DOUBLE_EQ(small.inter_bytes, 2e6);
  // With much to send the ring's smaller share of it wins, though by little.
  const Cost large = AllReduce({8, 16, 1}, 1e12, kLinks);
  EXPECT_DOUBLE_EQ(large.inter_bytes, 2e12 * 15 / 16);
  EXPECT_DOUBLE_EQ(large.seconds, 187.5 + 14 * 3e-6 + 30 * 10e-6);
}

TEST(ReduceScatterAndAllGather, AreHalfARing) {
  const Cost scatter = ReduceScatter({8, 4, 2}, 8e9, kLinks), gather = AllGather({8, 4, 2}, 8e9, kLinks);
  EXPECT_DOUBLE_EQ(scatter.intra_bytes, 7e9);
  EXPECT_DOUBLE_EQ(scatter.inter_bytes, 12e9);
  EXPECT_DOUBLE_EQ(scatter.seconds, 1.2 + 7 * 3e-6 + 3 * 10e-6);
  EXPECT_DOUBLE_EQ(gather.seconds, scatter.seconds);
}

TEST(ReduceScatterAndAllGather, KeepTheRingsLatencyOverManyNodes) {
  EXPECT_DOUBLE_EQ(AllGather({1, 16384, 1}, 16384, kLinks).seconds, 16383 / 10e9 + 16383 * 10e-6);
}

TEST(Collectives, OfOneRankCostNothing) {
  for (const Cost& cost : {AllReduce({}, 1e12, kLinks), ReduceScatter({}, 1e12, kLinks), AllGather({}, 1e12, kLinks)}) {
    EXPECT_EQ(cost.seconds, 0);
    EXPECT_EQ(cost.intra_bytes, 0);
    EXPECT_EQ(cost.inter_bytes, 0);
  }
}

}  // namespace
}  // namespace gradgate::planner
