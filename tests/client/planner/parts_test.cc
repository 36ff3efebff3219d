#include "client/planner/parts.h"

#include "client/planner/plan.h"
#include "gtest/gtest.h"

namespace gradgate::planner {
namespace {

TEST(Exposed, IsWhatComputingDoesNotHide) {
  // Four buckets beside 3 s of backward: three quarters of it can hide, the last bucket never.
  EXPECT_DOUBLE_EQ(ExposedSeconds(10, 3, 1, 4), 10 - 2.25);
  EXPECT_DOUBLE_EQ(ExposedSeconds(3, 3, 1, 4), 0.75);
  EXPECT_DOUBLE_EQ(ExposedSeconds(1, 3, 1, 4), 0.25);
  EXPECT_DOUBLE_EQ(ExposedSeconds(0, 3, 1, 4), 0);
  EXPECT_DOUBLE_EQ(ExposedSeconds(10, 3, 1, 1), 10);  // one bucket: all of it
  EXPECT_DOUBLE_EQ(ExposedSeconds(10, 3, 0, 4), 10);  // computing that hides nothing
  EXPECT_DOUBLE_EQ(ExposedSeconds(10, 3, 0.5, 4), 10 - 1.125);
}

TEST(Exposed, TellsHowMuchTherewas) {
  for (const double total : {0.001, 0.3, 1.0, 2.9, 3.0, 3.1, 50.0}) {
    for (const double collectives : {1.0, 2.0, 4.0, 1000.0}) {
      for (const double overlap : {0.0, 0.4, 1.0}) {
        EXPECT_NEAR(TotalSeconds(ExposedSeconds(total, 3, overlap, collectives), 3, overlap, collectives), total, 1e-9)
            << total << " " << collectives << " " << overlap;
      }
    }
  }
  EXPECT_EQ(TotalSeconds(0, 3, 1, 4), 0);
}

Numbers Numbered(double ranks, double nodes, double shards) {
  Numbers n;
  n.rank_count = ranks;
  n.node_count = nodes;
  n.shard_count = shards;
  n.accumulate = 4;
  n.compute_seconds = 3;
  n.backward_share = 2.0 / 3;
  n.parameter_count = 1e9;
  n.link_bytes_per_second = 1e9;
  n.link_latency_seconds = 0;
  n.intra_bytes_per_second = 10e9;
  n.intra_latency_seconds = 0;
  n.collective_count = 4;
  return n;
}

Parts Derived(const Numbers& numbers) {
  Notes notes;
  const auto filled = WithDefaults(numbers);
  EXPECT_TRUE(filled.ok()) << filled.status();
  const auto parts = PartsOf(*filled, &notes);
  EXPECT_TRUE(parts.ok()) << parts.status();
  return parts.value_or(Parts{});
}

TEST(Derived, PlainDataParallel) {
  // 2 · 1/2 of 4 GB over 1 GB/s; of 2 s of backward 1.5 hide.
  const Parts parts = Derived(Numbered(16, 2, 1));
  EXPECT_DOUBLE_EQ(parts.replica_sync, 4 - 1.5);
  EXPECT_DOUBLE_EQ(parts.kept_replica_sync, parts.replica_sync);
  EXPECT_DOUBLE_EQ(parts.shard_sync + parts.gather_forward + parts.gather_backward, 0);
  EXPECT_DOUBLE_EQ(parts.compute, 3);
}

TEST(Derived, FullShardingSharesTheBackwardBetweenGathersAndReductions) {
  // Each pass: 1/2 of 4 GB over 1 GB/s. Forward: 1 s, of which 0.75 hide; backward: 2 s, of which 1.5 hide.
  const Parts parts = Derived(Numbered(2, 2, 2));
  EXPECT_DOUBLE_EQ(parts.gather_forward, 2 - 0.75);
  EXPECT_DOUBLE_EQ(parts.gather_backward, 0.5);       // the last of four, and what is beyond 1.5
  EXPECT_DOUBLE_EQ(parts.shard_sync, 4 - 1.5 - 0.5);  // behind the gathers nothing is left to hide it
  EXPECT_DOUBLE_EQ(parts.kept_shard_sync, 0.5);       // with no gathers it gets all
}

TEST(Derived, HybridShardingReducesInTwoStages) {
  // Inside: 7/8 of 4 GB over 10 GB/s; between: 8 shards' 2 · 1/2 of 0.5 GB over 1 GB/s.
  Numbers n = Numbered(16, 2, 8);
  n.overlap_share = 0;
  const Parts parts = Derived(n);
  EXPECT_NEAR(parts.gather_forward, 0.35, 1e-12);
  EXPECT_NEAR(parts.gather_backward, 0.35, 1e-12);
  EXPECT_NEAR(parts.shard_sync, 0.35, 1e-12);
  EXPECT_NEAR(parts.replica_sync, 4, 1e-12);
}

TEST(Derived, WireTypeAndParameterTypeScaleTheirBytes) {
  Numbers n = Numbered(16, 2, 8);
  n.overlap_share = 0;
  n.wire_element_bytes = 2;
  n.parameter_element_bytes = 1;
  const Parts parts = Derived(n);
  EXPECT_NEAR(parts.gather_forward, 0.35 / 4, 1e-12);
  EXPECT_NEAR(parts.shard_sync, 0.35 / 2, 1e-12);
  EXPECT_NEAR(parts.replica_sync, 2, 1e-12);
}

TEST(Derived, BucketsFollowFromTheirSize) {
  Numbers n = Numbered(16, 2, 1);
  n.collective_count.reset();
  n.bucket_bytes = 1e9;
  EXPECT_EQ(*WithDefaults(n)->collective_count, 4);
  n.bucket_bytes = 3e9;
  EXPECT_EQ(*WithDefaults(n)->collective_count, 2);
  n.bucket_bytes = 1e8;
  n.link_latency_seconds = 1;  // 40 buckets, 2 messages each
  n.overlap_share = 0;
  EXPECT_DOUBLE_EQ(Derived(n).replica_sync, 4 + 80);
}

TEST(Derived, NeedsTheLinksThatCarrySomething) {
  Notes notes;
  Numbers n = *WithDefaults(Numbered(16, 2, 1));
  n.link_bytes_per_second.reset();
  EXPECT_EQ(PartsOf(n, &notes).status().message(),
            "link-gbit, the speed of a node's link, is not known; give it, or sync-s as it was measured");
  n = *WithDefaults(Numbered(16, 1, 1));
  n.link_bytes_per_second.reset();
  EXPECT_TRUE(PartsOf(n, &notes).ok());
  n.intra_bytes_per_second.reset();
  EXPECT_EQ(PartsOf(n, &notes).status().message(),
            "intra-gbit, the speed of a rank's link inside its node, is not known; give it, or sync-s as it was measured");
  n = *WithDefaults(Numbered(1, 1, 1));
  n.parameter_count.reset();
  EXPECT_TRUE(PartsOf(n, &notes).ok());
}

// The one plan under one what-if.
absl::StatusOr<Parts> Changed(const Numbers& base, absl::string_view what_if, Notes* notes) {
  const Numbers changes = *ParseChanges(what_if);
  const auto before = WithDefaults(base), after = WithDefaults(planner::Changed(base, changes));
  if (!before.ok()) return before.status();
  if (!after.ok()) return after.status();
  return PartsAfter(*before, changes, *after, notes);
}

double Replica(const Numbers& base, absl::string_view what_if) {
  Notes notes;
  const auto parts = Changed(base, what_if, &notes);
  EXPECT_TRUE(parts.ok()) << parts.status() << " " << what_if;
  return parts.ok() ? parts->replica_sync : -1;
}

// 3 s of an all-reduce shown beside 2 s of backward: 4.5 s of it in all.
Numbers Measured() {
  Numbers n = Numbered(16, 2, 1);
  n.sync_seconds = 3;
  return n;
}

TEST(WhatIf, MeasuredReductionsChangeAsTheModelSays) {
  EXPECT_DOUBLE_EQ(Replica(Measured(), "link-gbit=4"), 9 - 1.5);            // half the speed, twice the time, the same hides
  EXPECT_DOUBLE_EQ(Replica(Measured(), "link-gbit=16"), 2.25 - 1.5);        // twice the speed
  EXPECT_DOUBLE_EQ(Replica(Measured(), "link-gbit=40"), 0.9 / 4);           // all but the last bucket is hidden
  EXPECT_DOUBLE_EQ(Replica(Measured(), "link-gbit=400"), 4.5 * 0.175 / 4);  // now the links inside are the slower ones
  EXPECT_DOUBLE_EQ(Replica(Measured(), "nodes=4"), 4.5 * 1.5 - 1.5);        // 2 · 3/4 instead of 2 · 1/2
  EXPECT_DOUBLE_EQ(Replica(Measured(), "wire-type=bf16"), 2.25 - 1.5);
  EXPECT_DOUBLE_EQ(Replica(Measured(), "params=2e9"), 9 - 1.5);
}

TEST(WhatIf, OtherComputingHidesAnotherPart) {
  EXPECT_DOUBLE_EQ(Replica(Measured(), "compute-s=1.5"), 4.5 - 0.75);
  EXPECT_DOUBLE_EQ(Replica(Measured(), "overlap-share=0"), 4.5);
}

TEST(WhatIf, MoreMicroStepsLeaveAReductionAsItIs) { EXPECT_DOUBLE_EQ(Replica(Measured(), "accumulate=64"), 3); }

TEST(WhatIf, GivenSecondsAreTaken) { EXPECT_DOUBLE_EQ(Replica(Measured(), "sync-s=5,link-gbit=1"), 5); }

TEST(WhatIf, PartsChangeEachByItsOwnLink) {
  Numbers n = Numbered(16, 2, 8);
  n.overlap_share = 0;
  n.shard_sync_seconds = 0.5;
  n.replica_sync_seconds = 3;
  n.gather_forward_seconds = n.gather_backward_seconds = 0.25;
  Notes notes;
  auto parts = Changed(n, "link-gbit=4", &notes);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_DOUBLE_EQ(parts->replica_sync, 6);
  EXPECT_DOUBLE_EQ(parts->kept_replica_sync, 6);
  EXPECT_DOUBLE_EQ(parts->shard_sync, 0.5);
  EXPECT_DOUBLE_EQ(parts->gather_backward, 0.25);
  parts = Changed(n, "intra-gbit=160", &notes);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_DOUBLE_EQ(parts->replica_sync, 3);
  EXPECT_DOUBLE_EQ(parts->shard_sync, 0.25);
  EXPECT_DOUBLE_EQ(parts->gather_forward, 0.125);
}

TEST(WhatIf, AReductionOfWhichNothingShowedIsDerived) {
  Numbers n = Measured();
  n.sync_seconds = 0;
  EXPECT_DOUBLE_EQ(Replica(n, "link-gbit=4"), 8 - 1.5);
}

TEST(WhatIf, WithoutLinksOnlyBytesCanChange) {
  Numbers n = Measured();
  n.link_bytes_per_second.reset();
  Notes notes;
  EXPECT_DOUBLE_EQ(Replica(n, "nodes=4"), 4.5 * 1.5 - 1.5);
  EXPECT_DOUBLE_EQ(Replica(n, "wire-type=bf16"), 2.25 - 1.5);
  const absl::Status status = Changed(n, "link-gbit=400", &notes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "what \"link-gbit=400\" would give can be told only from the present params and link-gbit (inside one node: "
            "intra-gbit); give "
            "them too");
}

TEST(WhatIf, MoreNodesNeedTheirLink) {
  Numbers n = Numbered(8, 1, 1);
  n.sync_seconds = 1;
  n.link_bytes_per_second.reset();
  Notes notes;
  EXPECT_EQ(Changed(n, "nodes=2", &notes).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Changed(n, "nodes=2,link-gbit=100", &notes).ok());
}

TEST(WhatIf, AnotherShardingNeedsItsOwnSeconds) {
  Notes notes;
  EXPECT_EQ(Changed(Measured(), "shards=8", &notes).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Changed(Numbered(16, 2, 1), "shards=8", &notes).ok());
}

TEST(WhatIf, KeepsRanksPerNodeAndFullSharding) {
  const auto changed = [](const Numbers& base, absl::string_view text) { return planner::Changed(base, *ParseChanges(text)); };
  Numbers n = Numbered(16, 2, 16);
  EXPECT_EQ(changed(n, "ranks=64").node_count, 8);
  EXPECT_EQ(changed(n, "ranks=64").shard_count, 64);
  EXPECT_EQ(changed(n, "nodes=4").rank_count, 32);
  EXPECT_EQ(changed(n, "ranks=64,nodes=64").node_count, 64);
  EXPECT_EQ(changed(n, "ranks=64,shards=8").shard_count, 8);
  EXPECT_EQ(changed(n, "ranks=4").node_count, 1);
  n.shard_count = 8;
  EXPECT_EQ(changed(n, "ranks=64").shard_count, 8);
  n.node_count.reset();
  EXPECT_EQ(changed(n, "ranks=64").node_count, std::nullopt);
}

}  // namespace
}  // namespace gradgate::planner
