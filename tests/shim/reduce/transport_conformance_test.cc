// What every transport does, on each of them.

#include "tests/shim/reduce/transport_conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
int64_t InSeconds(double seconds) { return MonotonicNs() + static_cast<int64_t>(seconds * 1e9); }

class TransportTest : public testing::TestWithParam<std::tuple<TransportFactory, uint32_t>> {
 protected:
  void SetUp() override {
    group_ = std::get<0>(GetParam()).open(world());
    ASSERT_NE(group_, nullptr);
  }
  uint32_t world() const { return std::get<1>(GetParam()); }
  Transport* rank(uint32_t r) { return group_->ranks[r].get(); }

  std::unique_ptr<TransportGroup> group_;
};

// The done calls of one rank.
struct Calls {
  struct Call {
    uint64_t tag;
    bool ok;
    int64_t start_ns, done_ns;
  };
  std::atomic<size_t> count{0};
  std::vector<Call> calls = std::vector<Call>(1000);

  static void Done(void* user, uint64_t tag, bool ok, int64_t start_ns, int64_t done_ns) {
    auto* self = static_cast<Calls*>(user);
    self->calls[self->count] = {tag, ok, start_ns, done_ns};
    ++self->count;
  }
  void Attach(AllReduceRequest* request, uint64_t tag) {
    request->done = &Done;
    request->user = this;
    request->tag = tag;
  }
};

template <typename T>
constexpr DType kDTypeOf = std::is_same_v<T, float>    ? DType::kFloat32
                           : std::is_same_v<T, double> ? DType::kFloat64
                                                       : DType::kInt64;

template <typename T>
AllReduceRequest RequestFor(std::vector<T>* data, ReduceOp op, double seconds) {
  AllReduceRequest request;
  request.data = data->data();
  request.element_count = data->size();
  request.dtype = kDTypeOf<T>;
  request.op = op;
  request.deadline_ns = InSeconds(seconds);
  return request;
}

// An integer, small enough that sums of any dtype are exact.
int64_t Value(uint32_t rank, uint64_t i) { return static_cast<int64_t>((i * 31 + rank * 17) % 101) - 50; }

template <typename T>
std::vector<T> Expected(uint32_t world, uint64_t count, ReduceOp op) {
  std::vector<T> result(count);
  for (uint64_t i = 0; i < count; ++i) {
    int64_t value = Value(0, i);
    for (uint32_t r = 1; r < world; ++r) value = op == ReduceOp::kSum ? value + Value(r, i) : std::max(value, Value(r, i));
    result[i] = static_cast<T>(value);
  }
  return result;
}

template <typename T>
void ExpectExact(TransportGroup* group, uint64_t count, ReduceOp op) {
  const auto world = static_cast<uint32_t>(group->ranks.size());
  std::vector<std::vector<T>> data(world, std::vector<T>(count));
  std::vector<Ticket> tickets;
  for (uint32_t r = 0; r < world; ++r) {
    for (uint64_t i = 0; i < count; ++i) data[r][i] = static_cast<T>(Value(r, i));
    tickets.push_back(group->ranks[r]->Start(RequestFor(&data[r], op, 60)));
  }
  for (uint32_t r = 0; r < world; ++r) {
    const Status status = group->ranks[r]->Wait(tickets[r], InSeconds(60));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(data[r] == Expected<T>(world, count, op)) << "rank " << r << ", " << count << " elements";
  }
}

TEST_P(TransportTest, SumsAndMaximaAreExact) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{8}, uint64_t{24}, uint64_t{8184}, uint64_t{3} << 20}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      ExpectExact<float>(group_.get(), bytes / 4, op);
      ExpectExact<float>(group_.get(), bytes / 8, op);
      ExpectExact<double>(group_.get(), bytes / 8, op);
      ExpectExact<int64_t>(group_.get(), bytes / 8, op);
    }
  }
}

TEST_P(TransportTest, KnowsItsPlace) {
  for (uint32_t r = 0; r < world(); ++r) {
    EXPECT_EQ(rank(r)->rank(), r);
    EXPECT_EQ(rank(r)->world_size(), world());
    EXPECT_TRUE(rank(r)->Wait(0, InSeconds(0)).ok());
    EXPECT_EQ(rank(r)->Wait(1, InSeconds(60)).code(), Code::kInvalidArgument) << "a ticket that was never started";
  }
}

TEST_P(TransportTest, QueuedRequestsRunInTheirOrder) {
  constexpr uint64_t kRequests = 200;
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<Calls> calls(world());
  std::vector<std::vector<std::vector<int64_t>>> data(world());
  const int64_t before_ns = MonotonicNs();
  for (uint64_t n = 0; n < kRequests; ++n) {
    const uint64_t count = random() % 3000;
    for (uint32_t r = 0; r < world(); ++r) data[r].emplace_back(count, static_cast<int64_t>(n * 10 + r));
  }
  std::vector<uint32_t> order(world());
  for (uint32_t r = 0; r < world(); ++r) order[r] = r;
  for (uint64_t n = 0; n < kRequests; ++n) {
    std::shuffle(order.begin(), order.end(), random);
    for (const uint32_t r : order) {
      AllReduceRequest request = RequestFor(&data[r][n], ReduceOp::kMax, 60);
      calls[r].Attach(&request, 1000 + n);
      EXPECT_EQ(rank(r)->Start(request), n + 1);
    }
  }
  for (uint32_t r = 0; r < world(); ++r) {
    const Status status = rank(r)->Wait(kRequests, InSeconds(60));
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(calls[r].count, kRequests);
    for (uint64_t n = 0; n < kRequests; ++n) {
      const Calls::Call& call = calls[r].calls[n];
      EXPECT_EQ(call.tag, 1000 + n);
      EXPECT_TRUE(call.ok);
      EXPECT_LE(before_ns, call.start_ns);
      EXPECT_LE(call.start_ns, call.done_ns);
      EXPECT_LE(calls[r].calls[n == 0 ? 0 : n - 1].done_ns, call.done_ns);
      EXPECT_TRUE(data[r][n] == std::vector<int64_t>(data[r][n].size(), static_cast<int64_t>(n * 10 + world() - 1)));
    }
  }
}

TEST_P(TransportTest, EveryRankGetsTheSameBytes) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> data(world(), std::vector<float>(100'003));
  std::vector<double> exact(100'003);
  for (uint32_t r = 0; r < world(); ++r) {
    for (size_t i = 0; i < exact.size(); ++i)
      exact[i] += data[r][i] = normal(random) * std::exp2(static_cast<float>(random() % 20));
  }
  for (uint32_t r = 0; r < world(); ++r) rank(r)->Start(RequestFor(&data[r], ReduceOp::kSum, 60));
  for (uint32_t r = 0; r < world(); ++r) {
    const Status status = rank(r)->Wait(1, InSeconds(60));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::memcmp(data[r].data(), data[0].data(), data[0].size() * sizeof(float)), 0) << "rank " << r;
  }
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(data[0][i], exact[i], 4.0) << i;
}

TEST_P(TransportTest, DoneIsCalledOnceBeforeWaitReturns) {
  std::vector<Calls> calls(world());
  std::vector<std::vector<double>> data(world(), std::vector<double>(5, 1.0));
  for (uint64_t n = 1; n <= 300; ++n) {
    for (uint32_t r = 0; r < world(); ++r) {
      AllReduceRequest request = RequestFor(&data[r], ReduceOp::kMax, 60);
      calls[r].Attach(&request, n);
      rank(r)->Start(request);
    }
    for (uint32_t r = 0; r < world(); ++r) {
      ASSERT_TRUE(rank(r)->Wait(n, InSeconds(60)).ok());
      ASSERT_EQ(calls[r].count, n);
    }
  }
}

TEST_P(TransportTest, LeavingRightAfterTheLastRequestHurtsNobody) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t count = round % 2 == 0 ? 5 : 400'001;
    std::vector<Status> statuses(world());
    std::vector<std::thread> threads;
    std::vector<std::vector<float>> data(world(), std::vector<float>(count, 1));
    for (uint32_t r = 0; r < world(); ++r) {
      threads.emplace_back([&, r] {
        statuses[r] = rank(r)->Wait(rank(r)->Start(RequestFor(&data[r], ReduceOp::kSum, 60)), InSeconds(60));
        group_->ranks[r].reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t r = 0; r < world(); ++r) {
      ASSERT_TRUE(statuses[r].ok()) << "round " << round << " rank " << r << ": " << statuses[r].message();
      EXPECT_TRUE(data[r] == std::vector<float>(count, static_cast<float>(world())));
    }
    group_ = std::get<0>(GetParam()).open(world());
    ASSERT_NE(group_, nullptr);
  }
}

class TransportOfSeveralTest : public TransportTest {};

TEST_P(TransportOfSeveralTest, WaitGivesUpBeforeTheRequestAndALatePeerIsNoFailure) {
  std::vector<std::vector<float>> data(world(), std::vector<float>(1000, 2));
  for (uint32_t r = 1; r < world(); ++r) rank(r)->Start(RequestFor(&data[r], ReduceOp::kSum, 60));
  for (uint32_t r = 1; r < world(); ++r) EXPECT_EQ(rank(r)->Wait(1, InSeconds(0.1)).code(), Code::kDeadlineExceeded);
  rank(0)->Start(RequestFor(&data[0], ReduceOp::kSum, 60));
  for (uint32_t r = 0; r < world(); ++r) {
    const Status status = rank(r)->Wait(1, InSeconds(60));
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(data[r] == std::vector<float>(1000, static_cast<float>(2 * world())));
  }
}

TEST_P(TransportOfSeveralTest, APeerThatNeverStartsEndsRequestsAtTheirDeadline) {
  std::vector<Calls> calls(world());
  std::vector<std::vector<float>> data(world(), std::vector<float>(1000));
  const int64_t begin_ns = MonotonicNs();
  for (uint32_t r = 0; r + 1 < world(); ++r) {
    AllReduceRequest request = RequestFor(&data[r], ReduceOp::kSum, r == 0 ? 0.3 : 60);
    calls[r].Attach(&request, 7);
    rank(r)->Start(request);
  }
  EXPECT_EQ(rank(0)->Wait(1, InSeconds(60)).code(), Code::kDeadlineExceeded);
  EXPECT_GE(MonotonicNs() - begin_ns, 295'000'000);
  EXPECT_LT(MonotonicNs() - begin_ns, 5 * kSecond);
  for (uint32_t r = 1; r + 1 < world(); ++r) {
    const Status status = rank(r)->Wait(1, InSeconds(20));
    EXPECT_EQ(status.code(), Code::kUnavailable) << "a blocked rank hears of it at once: " << status.message();
  }
  for (uint32_t r = 0; r + 1 < world(); ++r) {
    ASSERT_EQ(calls[r].count, 1u);
    EXPECT_FALSE(calls[r].calls[0].ok);
  }
  // The group is dead: for the rank that failed, and for the one that comes too late.
  rank(0)->Start(RequestFor(&data[0], ReduceOp::kSum, 60));
  EXPECT_EQ(rank(0)->Wait(2, InSeconds(20)).message(), rank(0)->Wait(1, InSeconds(20)).message());
  rank(world() - 1)->Start(RequestFor(&data[world() - 1], ReduceOp::kSum, 60));
  const Status late = rank(world() - 1)->Wait(1, InSeconds(20));
  EXPECT_EQ(late.code(), Code::kUnavailable) << late.message();
}

TEST_P(TransportOfSeveralTest, AbortEndsABlockedRequestHereAndAtThePeers) {
  std::vector<Calls> calls(world());
  std::vector<std::vector<float>> data(world(), std::vector<float>(1000));
  for (uint32_t r = 0; r + 1 < world(); ++r) {
    AllReduceRequest request = RequestFor(&data[r], ReduceOp::kSum, 60);
    calls[r].Attach(&request, 7);
    rank(r)->Start(request);
  }
  EXPECT_EQ(rank(0)->Wait(1, InSeconds(0.05)).code(), Code::kDeadlineExceeded);
  rank(0)->Abort("the test says so");
  rank(0)->Abort("twice");
  const Status status = rank(0)->Wait(1, InSeconds(20));
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_NE(status.message().find("the test says so"), std::string::npos) << status.message();
  ASSERT_EQ(calls[0].count, 1u);
  EXPECT_FALSE(calls[0].calls[0].ok);

  AllReduceRequest later = RequestFor(&data[0], ReduceOp::kSum, 60);
  calls[0].Attach(&later, 8);
  EXPECT_EQ(rank(0)->Start(later), 2u);
  EXPECT_EQ(rank(0)->Wait(2, InSeconds(20)).code(), Code::kAborted);
  EXPECT_EQ(calls[0].count, 2u);

  rank(world() - 1)->Start(RequestFor(&data[world() - 1], ReduceOp::kSum, 60));
  for (uint32_t r = 1; r < world(); ++r) {
    const Status theirs = rank(r)->Wait(1, InSeconds(20));
    EXPECT_EQ(theirs.code(), Code::kUnavailable) << theirs.message();
  }
}

TEST_P(TransportOfSeveralTest, AbortWhileIdleFailsWhatComesLater) {
  std::vector<std::vector<float>> data(world(), std::vector<float>(10));
  rank(0)->Abort("idle");
  for (uint32_t r = 0; r < world(); ++r) rank(r)->Start(RequestFor(&data[r], ReduceOp::kSum, 60));
  for (uint32_t r = 0; r < world(); ++r) {
    const Status status = rank(r)->Wait(1, InSeconds(20));
    EXPECT_EQ(status.code(), r == 0 ? Code::kAborted : Code::kUnavailable) << status.message();
  }
}

TEST_P(TransportOfSeveralTest, ARankThatLeavesFailsTheOthers) {
  std::vector<std::vector<float>> data(world(), std::vector<float>(1000));
  for (uint32_t r = 0; r + 1 < world(); ++r) rank(r)->Start(RequestFor(&data[r], ReduceOp::kSum, 60));
  group_->ranks[world() - 1].reset();
  for (uint32_t r = 0; r + 1 < world(); ++r) {
    const Status status = rank(r)->Wait(1, InSeconds(20));
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
  }
}

TEST_P(TransportOfSeveralTest, TheDestructorFinishesWhatIsQueued) {
  Calls calls;
  std::vector<std::vector<float>> data(3, std::vector<float>(1000));
  for (size_t n = 0; n < data.size(); ++n) {
    AllReduceRequest request = RequestFor(&data[n], ReduceOp::kSum, 60);
    calls.Attach(&request, n);
    rank(0)->Start(request);
  }
  const int64_t begin_ns = MonotonicNs();
  group_->ranks[0].reset();
  EXPECT_LT(MonotonicNs() - begin_ns, 20 * kSecond);
  ASSERT_EQ(calls.count, data.size());
  for (size_t n = 0; n < data.size(); ++n) EXPECT_FALSE(calls.calls[n].ok);
}

std::string NameOf(const testing::TestParamInfo<std::tuple<TransportFactory, uint32_t>>& info) {
  return std::get<0>(info.param).name + std::to_string(std::get<1>(info.param));
}

const TransportFactory kFactories[] = {
    {"InProcess", &OpenInProcess}, {"GlooFile", &OpenGlooOverFileStore}, {"GlooTcp", &OpenGlooOverTcpStore}};

INSTANTIATE_TEST_SUITE_P(All, TransportTest, testing::Combine(testing::ValuesIn(kFactories), testing::Values(1, 2, 3, 4)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(All, TransportOfSeveralTest, testing::Combine(testing::ValuesIn(kFactories), testing::Values(2, 3, 4)),
                         NameOf);

}  // namespace
}  // namespace gradgate
