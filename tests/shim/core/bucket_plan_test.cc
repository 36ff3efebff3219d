#include "shim/core/bucket_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace gradgate {
namespace {

TEST(BucketPlan, FillsInReverseOrderUpToTheSize) {
  const BucketPlan plan = PlanBuckets({{10, 4, 1}, {20, 4, 1}, {30, 4, 1}}, 200);
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_EQ(plan.buckets[0].tensors, (std::vector<uint32_t>{2, 1}));
  EXPECT_EQ(plan.buckets[0].element_count, 50u);
  EXPECT_EQ(plan.buckets[1].tensors, (std::vector<uint32_t>{0}));
  EXPECT_EQ(plan.places[1].bucket, 0u);
  EXPECT_EQ(plan.places[1].offset, 30u);
}

TEST(BucketPlan, ABucketHoldsOneDtype) {
  const BucketPlan plan = PlanBuckets({{10, 4, 1}, {10, 8, 2}, {10, 4, 1}}, 1 << 20);
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_EQ(plan.buckets[1].dtype, 2u);
}

TEST(BucketPlan, ATensorLargerThanABucketStandsAlone) {
  const BucketPlan plan = PlanBuckets({{1, 4, 1}, {1000, 4, 1}, {1, 4, 1}}, 100);
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_EQ(plan.buckets[1].element_count, 1000u);
}

TEST(BucketPlan, NoTensorsNoBuckets) { EXPECT_TRUE(PlanBuckets({}, 100).buckets.empty()); }

TEST(BucketPlan, EveryElementHasOnePlace) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int run = 0; run < 200; ++run) {
    std::vector<TensorShape> tensors(random() % 30);
    for (TensorShape& tensor : tensors) {
      const bool wide = random() % 4 == 0;
      tensor = {random() % 100 + 1, wide ? 8u : 4u, wide ? 2u : 1u};
    }
    const BucketPlan plan = PlanBuckets(tensors, random() % 1000 + 1);
    std::vector<std::vector<int>> used;
    for (const auto& bucket : plan.buckets) used.emplace_back(bucket.element_count, 0);
    for (size_t i = 0; i < tensors.size(); ++i) {
      ASSERT_EQ(plan.buckets[plan.places[i].bucket].dtype, tensors[i].dtype);
      for (uint64_t k = 0; k < tensors[i].element_count; ++k) ++used[plan.places[i].bucket][plan.places[i].offset + k];
    }
    for (const auto& bucket : used) {
      for (int count : bucket) ASSERT_EQ(count, 1);
    }
  }
}

}  // namespace
}  // namespace gradgate
