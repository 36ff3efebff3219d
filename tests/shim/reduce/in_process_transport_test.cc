#include "shim/reduce/in_process_transport.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

int64_t InSeconds(double seconds) { return MonotonicNs() + static_cast<int64_t>(seconds * 1e9); }

AllReduceRequest Request(std::vector<float>* data, ReduceOp op = ReduceOp::kSum) {
  AllReduceRequest request;
  request.data = data->data();
  request.element_count = data->size();
  request.op = op;
  request.deadline_ns = InSeconds(60);
  return request;
}

TEST(InProcessTransport, RanksThatDifferFailNamingThem) {
  for (const char* what : {"count", "dtype", "op"}) {
    InProcessHub hub(3);
    std::vector<std::vector<float>> data(3, std::vector<float>(8, 1));
    for (uint32_t r = 0; r < 3; ++r) {
      AllReduceRequest request = Request(&data[r]);
      if (r == 2 && what == std::string("count")) request.element_count = 7;
      if (r == 2 && what == std::string("dtype")) request.dtype = DType::kInt64, request.element_count = 4;
      if (r == 2 && what == std::string("op")) request.op = ReduceOp::kMax;
      hub.transport(r)->Start(request);
    }
    for (uint32_t r = 0; r < 3; ++r) {
      const Status status = hub.transport(r)->Wait(1, InSeconds(20));
      EXPECT_EQ(status.code(), Code::kInternal) << what;
      EXPECT_NE(status.message().find("ranks 0 and 2 differ"), std::string::npos) << status.message();
      EXPECT_TRUE(data[r] == std::vector<float>(8, 1)) << "the data stays";
    }
  }
}

TEST(InProcessTransport, KillFailsEveryRank) {
  InProcessHub hub(3);
  std::vector<std::vector<float>> data(3, std::vector<float>(8, 1));
  hub.transport(0)->Start(Request(&data[0]));
  hub.Kill(2);
  for (uint32_t r = 1; r < 3; ++r) hub.transport(r)->Start(Request(&data[r]));
  for (uint32_t r = 0; r < 3; ++r) {
    const Status status = hub.transport(r)->Wait(1, InSeconds(20));
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
  }
}

TEST(InProcessTransport, AKillFromTheHookFailsThatRequest) {
  InProcessHub hub(2);
  std::vector<uint64_t> numbers;
  hub.SetHook([&](uint64_t number) {
    numbers.push_back(number);
    if (number == 2) hub.Kill(1);
  });
  std::vector<std::vector<float>> data(2, std::vector<float>(8, 1));
  for (int n = 0; n < 3; ++n) {
    for (uint32_t r = 0; r < 2; ++r) hub.transport(r)->Start(Request(&data[r]));
  }
  for (uint32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(hub.transport(r)->Wait(3, InSeconds(20)).code(), Code::kUnavailable);
    EXPECT_TRUE(hub.transport(r)->Wait(1, InSeconds(20)).ok()) << "what was done before stays done";
    EXPECT_EQ(data[r][0], 2) << "reduced once";
    EXPECT_EQ(hub.count(r, DType::kFloat32, ReduceOp::kSum).request_count, 1u);
  }
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 2}));
}

TEST(InProcessTransport, ABlockedHookHoldsTheRequest) {
  InProcessHub hub(2);
  std::promise<void> go;
  hub.SetHook([future = go.get_future().share()](uint64_t) { future.wait(); });
  std::vector<std::vector<float>> data(2, std::vector<float>(8, 1));
  for (uint32_t r = 0; r < 2; ++r) hub.transport(r)->Start(Request(&data[r]));
  EXPECT_EQ(hub.transport(0)->Wait(1, InSeconds(0.05)).code(), Code::kDeadlineExceeded);
  go.set_value();
  for (uint32_t r = 0; r < 2; ++r) EXPECT_TRUE(hub.transport(r)->Wait(1, InSeconds(20)).ok());
}

TEST(InProcessTransport, CountsWhatWasCompleted) {
  InProcessHub hub(2);
  std::vector<std::vector<float>> data(2, std::vector<float>(10, 1));
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMax}) {
    for (uint32_t r = 0; r < 2; ++r) hub.transport(r)->Start(Request(&data[r], op));
  }
  hub.transport(0)->Wait(3, InSeconds(20)).ok();
  for (uint32_t r = 0; r < 2; ++r) {
    ASSERT_TRUE(hub.transport(r)->Wait(3, InSeconds(20)).ok());
    EXPECT_EQ(hub.count(r, DType::kFloat32, ReduceOp::kSum).request_count, 2u);
    EXPECT_EQ(hub.count(r, DType::kFloat32, ReduceOp::kSum).byte_count, 80u);
    EXPECT_EQ(hub.count(r, DType::kFloat32, ReduceOp::kMax).request_count, 1u);
    EXPECT_EQ(hub.count(r, DType::kInt64, ReduceOp::kMax).request_count, 0u);
  }
}

TEST(InProcessTransport, TheHubsDestructorFinishesWhatIsPending) {
  int calls = 0;
  std::vector<float> data(4);
  AllReduceRequest request = Request(&data);
  request.user = &calls;
  request.done = [](void* user, uint64_t, bool ok, int64_t, int64_t) { *static_cast<int*>(user) += ok ? 100 : 1; };
  {
    InProcessHub hub(2);
    hub.transport(0)->Start(request);
    hub.transport(0)->Start(request);
  }
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace gradgate
