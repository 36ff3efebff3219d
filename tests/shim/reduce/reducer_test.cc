#include "shim/reduce/reducer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gradgate {
namespace {

// Remembers what was started; completes nothing.
class Recording : public Transport {
 public:
  uint32_t rank() const override { return 0; }
  uint32_t world_size() const override { return 2; }
  Ticket Start(const AllReduceRequest& request) override {
    requests.push_back(request);
    return requests.size();
  }
  Status Wait(Ticket, int64_t) override { return OkStatus(); }
  void Abort(const char*) override {}

  std::vector<AllReduceRequest> requests;
};

void LaunchReady(Reducer& reducer, Transport& transport) {
  while (reducer.NextReady()) reducer.Launch(transport, {});
}

TEST(Reducer, BucketsLaunchInOrderWhenTheirLastGradientIsReady) {
  Recording transport;
  Reducer reducer({{nullptr, 4}, {nullptr, 4}, {nullptr, 4}, {nullptr, 4}}, 32);  // buckets {3, 2}, {1, 0}
  ASSERT_EQ(reducer.bucket_count(), 2u);
  reducer.Reset(true);
  EXPECT_TRUE(reducer.MarkReady(0));
  EXPECT_TRUE(reducer.MarkReady(1));
  LaunchReady(reducer, transport);
  EXPECT_TRUE(transport.requests.empty()) << "bucket 1 is ready, but bucket 0 goes first";
  reducer.MarkReady(3);
  LaunchReady(reducer, transport);
  EXPECT_TRUE(transport.requests.empty());
  reducer.MarkReady(2);
  LaunchReady(reducer, transport);
  ASSERT_EQ(transport.requests.size(), 2u);
  EXPECT_EQ(transport.requests[0].data, reducer.gradient(3));
  EXPECT_EQ(transport.requests[0].element_count, 8u);
  EXPECT_FALSE(reducer.NextReady());
}

TEST(Reducer, MarkingTwiceIsSeenInEveryMicroStep) {
  Reducer reducer({{nullptr, 1}, {nullptr, 1}}, 1024);
  for (bool reducing : {false, true, false}) {
    reducer.Reset(reducing);
    EXPECT_TRUE(reducer.MarkReady(0));
    EXPECT_FALSE(reducer.MarkReady(0));
    EXPECT_TRUE(reducer.MarkReady(1));
  }
}

TEST(Reducer, ReadinessOfASuppressedMicroStepDoesNotCount) {
  Recording transport;
  Reducer reducer({{nullptr, 1}, {nullptr, 1}}, 1024);
  reducer.Reset(false);
  reducer.MarkReady(0);
  reducer.Reset(true);
  reducer.MarkReady(1);
  EXPECT_FALSE(reducer.NextReady());
  reducer.MarkAllReady();
  LaunchReady(reducer, transport);
  EXPECT_EQ(transport.requests.size(), 1u);
}

TEST(Reducer, OwnMemoryIsCopiedInAndOutAndViewsAreNot) {
  Recording transport;
  double own[2] = {3, 6};
  Reducer reducer({{own, 2, DType::kFloat64}, {nullptr, 1, DType::kFloat64}}, 1024);
  static_cast<double*>(reducer.gradient(1))[0] = 9;
  reducer.Reset(true);
  reducer.MarkAllReady();
  LaunchReady(reducer, transport);
  ASSERT_EQ(transport.requests.size(), 1u);
  auto* bucket = static_cast<double*>(transport.requests[0].data);
  EXPECT_EQ(bucket[0], 9);
  EXPECT_EQ(bucket[1], 3);
  EXPECT_EQ(bucket[2], 6);
  for (int i = 0; i < 3; ++i) bucket[i] *= 2;
  EXPECT_EQ(own[0], 3) << "not before Finish";
  for (uint32_t i = 0; i < reducer.bucket_count(); ++i) reducer.Finish(i, 1, 3);
  EXPECT_EQ(own[0], 2);
  EXPECT_EQ(own[1], 4);
  EXPECT_EQ(static_cast<double*>(reducer.gradient(1))[0], 6);
}

// x / 3 is exact for multiples of 3; x · (1 / 3) need not be.
TEST(Reducer, DivisionIsTrueDivision) {
  Recording transport;
  std::vector<float> own(1000);
  Reducer reducer({{own.data(), own.size(), DType::kFloat32}}, 1 << 20);
  for (size_t i = 0; i < own.size(); ++i) own[i] = static_cast<float>(7 * i);
  reducer.Scale(1, 7);
  for (size_t i = 0; i < own.size(); ++i) ASSERT_EQ(own[i], static_cast<float>(i));
}

TEST(Reducer, ZeroClearsViewsAndOwnMemory) {
  float own[2] = {1, 2};
  Reducer reducer({{own, 2}, {nullptr, 2}}, 1024);
  static_cast<float*>(reducer.gradient(1))[1] = 5;
  reducer.Zero();
  EXPECT_EQ(own[1], 0);
  EXPECT_EQ(static_cast<float*>(reducer.gradient(1))[1], 0);
}

TEST(Reducer, BucketsAreAligned) {
  Reducer reducer({{nullptr, 3}, {nullptr, 5}, {nullptr, 1, DType::kFloat64}}, 8);
  EXPECT_EQ(reducer.bucket_count(), 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(reinterpret_cast<uintptr_t>(reducer.gradient(i)) % 64, 0u);
}

TEST(Reducer, NoTensorsNoBuckets) {
  Reducer reducer({}, 1024);
  reducer.Reset(true);
  reducer.MarkAllReady();
  EXPECT_FALSE(reducer.NextReady());
}

}  // namespace
}  // namespace gradgate
