// What must hold for any numbers: over random ones, whose seed is printed.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"
#include "client/planner/answer.h"
#include "client/planner/plan.h"
#include "gtest/gtest.h"

namespace gradgate::planner {
namespace {

constexpr int kTimes = 4000;

uint64_t Seed() {
  const char* given = std::getenv("GRADGATE_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

class Property : public ::testing::Test {
 protected:
  Property() : seed_(Seed()), random_(seed_) { RecordProperty("seed", absl::StrCat(seed_)); }
  ~Property() override {
    if (HasFailure()) std::printf("GRADGATE_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  }

  int Int(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  double PowerOfTwo(int high) { return std::exp2(Int(0, high)); }
  // From low to high, as many per decade.
  double Spread(double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(random_));
  }
  bool Half() { return Int(0, 1) == 1; }

  Numbers Any() {
    Numbers n;
    const double per_node = PowerOfTwo(4), nodes = PowerOfTwo(10);
    n.rank_count = per_node * nodes;
    n.node_count = nodes;
    n.shard_count = std::min(*n.rank_count, PowerOfTwo(14));
    n.accumulate = std::round(Spread(1, 16384));
    n.parameter_count = std::round(Spread(1, 1e13));
    n.parameter_element_bytes = Half() ? 2 : 4;
    n.gradient_element_bytes = Half() ? 2 : 8;
    n.compute_seconds = Spread(1e-6, 1e4);
    n.link_bytes_per_second = Spread(1e6, 1e13);
    n.link_latency_seconds = Spread(1e-7, 1);
    n.intra_bytes_per_second = Spread(1e6, 1e13);
    n.intra_latency_seconds = Spread(1e-8, 1);
    n.overlap_share = Int(0, 4) / 4.0;
    if (Half()) n.collective_count = std::round(Spread(1, 1e5));
    if (Half()) n.memory_limit_bytes = Spread(1e9, 1e12);
    if (Half()) n.activation_bytes = Spread(1e6, 1e11);
    return n;
  }

  // With exposed seconds instead of links.
  Numbers AnyMeasured() {
    Numbers n = Any();
    n.link_bytes_per_second.reset();
    switch (ShardingOf(n)) {
      case Sharding::kNone:
        n.sync_seconds = Spread(1e-6, 1e3);
        break;
      case Sharding::kHybrid:
        n.replica_sync_seconds = Spread(1e-6, 1e3);
        [[fallthrough]];
      case Sharding::kFull:
        n.shard_sync_seconds = Spread(1e-6, 1e3);
        n.gather_forward_seconds = Spread(1e-6, 1e3);
        n.gather_backward_seconds = Spread(1e-6, 1e3);
    }
    return n;
  }

  static Plan Planned(const Numbers& numbers) {
    const auto answer = MakePlan({.numbers = numbers});
    EXPECT_TRUE(answer.ok()) << answer.status() << " of " << Label(numbers);
    return answer.ok() ? answer->plan : Plan{};
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
};

const ModeCost* Find(const Plan& plan, const Mode& mode) {
  for (const ModeCost& cost : plan.modes) {
    if (cost.mode == mode) return &cost;
  }
  return nullptr;
}

TEST_F(Property, NothingIsNegativeOrNotANumber) {
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    const Numbers numbers = Half() ? Any() : AnyMeasured();
    const Plan plan = Planned(numbers);
    int best = 0;
    for (const ModeCost& c : plan.modes) {
      for (const double value :
           {c.step_seconds, c.min_step_seconds, c.max_step_seconds, c.exposed_seconds + 1e-9 * c.step_seconds, c.speedup,
            c.reduction_count, c.collective_count, c.intra_bytes, c.inter_bytes, c.memory_bytes, c.deferred_gradient_bytes,
            c.kept_parameter_bytes}) {
        EXPECT_TRUE(std::isfinite(value) && value >= 0) << value << " in " << Name(c.mode) << " of " << Label(numbers);
      }
      EXPECT_GT(c.step_seconds, 0) << Label(numbers);
      EXPECT_LE(c.min_step_seconds, c.step_seconds);
      EXPECT_GE(c.max_step_seconds, c.step_seconds);
      best += c.best;
    }
    EXPECT_EQ(best, 1) << Label(numbers);
  }
}

TEST_F(Property, MessagesHoldEveryCount) {
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    v1::PlanSyncRequest request;
    Numbers numbers = Any();
    numbers.accumulate = 65536;
    numbers.parameter_count = 1e13;
    *request.mutable_numbers() = ToMessage(numbers);
    const auto response = AnswerFromNumbers(request);
    ASSERT_TRUE(response.ok()) << response.status();
    for (const v1::ModePlan& mode : response->plan().modes()) {
      EXPECT_GE(mode.intra_bytes(), 0);
      EXPECT_GE(mode.inter_bytes(), 0);
      EXPECT_GT(mode.memory_bytes(), 0);
    }
  }
}

// Any bits in any field: an error of the two kinds, or finite numbers.
TEST_F(Property, RequestsOfAnyNumbersAreAnsweredOrRefused) {
  const double kOdd[] = {0, -1, 1, 2, 4, 7, 1e-300, 1e300, 1e18, NAN, INFINITY, -INFINITY, 0.5, 3e9};
  const auto odd = [&] { return kOdd[Int(0, std::size(kOdd) - 1)]; };
  int answered = 0;
  for (int i = 0; i < 10 * kTimes && !HasFailure(); ++i) {
    v1::PlanSyncRequest request;
    *request.mutable_numbers() = ToMessage(Half() ? Any() : AnyMeasured());
    v1::PlanNumbers* what_if = request.add_what_ifs();
    for (v1::PlanNumbers* numbers : {request.mutable_numbers(), what_if}) {
      const auto* descriptor = v1::PlanNumbers::descriptor();
      for (int times = Int(0, 3); times > 0; --times) {
        const auto* field = descriptor->field(Int(0, descriptor->field_count() - 1));
        using Kind = google::protobuf::FieldDescriptor;
        if (field->cpp_type() == Kind::CPPTYPE_DOUBLE) numbers->GetReflection()->SetDouble(numbers, field, odd());
        if (field->cpp_type() == Kind::CPPTYPE_INT64) numbers->GetReflection()->SetInt64(numbers, field, Int(-2, 70));
        if (field->cpp_type() == Kind::CPPTYPE_ENUM) numbers->GetReflection()->SetEnumValue(numbers, field, Int(-1, 9));
      }
    }
    const auto response = AnswerFromNumbers(request);
    if (!response.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(response.status()) || absl::IsFailedPrecondition(response.status()))
          << response.status();
      EXPECT_NE(response.status().message(), "");
      continue;
    }
    ++answered;
    for (const v1::Plan* plan : {&response->plan(), &response->what_ifs(0)}) {
      EXPECT_TRUE(std::isfinite(plan->relative_throughput()) && plan->relative_throughput() > 0) << request.ShortDebugString();
      for (const v1::ModePlan& mode : plan->modes()) {
        for (const double value : {mode.step_seconds(), mode.min_step_seconds(), mode.max_step_seconds(), mode.speedup()}) {
          EXPECT_TRUE(std::isfinite(value) && value > 0) << request.ShortDebugString();
        }
        EXPECT_GE(std::min({mode.memory_bytes(), mode.inter_bytes(), mode.intra_bytes()}), 0) << request.ShortDebugString();
      }
    }
  }
  EXPECT_GT(answered, kTimes);
}

TEST_F(Property, AFasterLinkIsNeverSlower) {
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    const Numbers slow = Any();
    Numbers fast = slow;
    fast.link_bytes_per_second = *slow.link_bytes_per_second * Spread(1, 10);
    fast.intra_bytes_per_second = *slow.intra_bytes_per_second * Spread(1, 10);
    const Plan a = Planned(slow), b = Planned(fast);
    for (size_t m = 0; m < a.modes.size(); ++m) {
      EXPECT_LE(b.modes[m].step_seconds, a.modes[m].step_seconds * (1 + 1e-9))
          << Name(a.modes[m].mode) << " of " << Label(slow);
    }
  }
}

TEST_F(Property, MoreMicroStepsTakeLongerAndLessForEach) {
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    const Numbers few = Half() ? Any() : AnyMeasured();
    Numbers many = few;
    many.accumulate = *few.accumulate * Int(2, 4);
    const Plan a = Planned(few), b = Planned(many);
    for (size_t m = 0; m < a.modes.size(); ++m) {
      EXPECT_GT(b.modes[m].step_seconds, a.modes[m].step_seconds) << Label(few);
      EXPECT_LE(b.modes[m].step_seconds / *many.accumulate, a.modes[m].step_seconds / *few.accumulate * (1 + 1e-9))
          << Label(few);
    }
  }
}

TEST_F(Property, DeferringAndKeepingAreNeverSlower) {
  const std::pair<Mode, Mode> kPairs[] = {
      {{Sync::kEvery, false}, {Sync::kReplica, false}},  {{Sync::kReplica, false}, {Sync::kWindow, false}},
      {{Sync::kEvery, false}, {Sync::kWindow, false}},   {{Sync::kEvery, false}, {Sync::kEvery, true}},
      {{Sync::kReplica, false}, {Sync::kReplica, true}}, {{Sync::kWindow, false}, {Sync::kWindow, true}},
      {{Sync::kReplica, true}, {Sync::kWindow, true}},
  };
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    const Numbers numbers = Half() ? Any() : AnyMeasured();
    const Plan plan = Planned(numbers);
    for (const auto& [slow, fast] : kPairs) {
      const ModeCost *a = Find(plan, slow), *b = Find(plan, fast);
      if (a == nullptr || b == nullptr) continue;
      EXPECT_LE(b->step_seconds, a->step_seconds * (1 + 1e-9)) << Name(fast) << " of " << Label(numbers);
      EXPECT_LE(b->inter_bytes, a->inter_bytes * (1 + 1e-9)) << Name(fast) << " of " << Label(numbers);
      EXPECT_GE(b->memory_bytes, a->memory_bytes) << Name(fast) << " of " << Label(numbers);
    }
  }
}

TEST_F(Property, WithFreeReductionsModesAreAsFast) {
  for (int i = 0; i < kTimes / 4 && !HasFailure(); ++i) {
    Numbers n = AnyMeasured();
    n.shard_count = 1;
    n.shard_sync_seconds = n.replica_sync_seconds = n.gather_forward_seconds = n.gather_backward_seconds = std::nullopt;
    n.sync_seconds = 0;
    for (const ModeCost& c : Planned(n).modes) EXPECT_DOUBLE_EQ(c.speedup, 1);
  }
}

TEST_F(Property, WithCostlyReductionsDeferringGainsNTimes) {
  for (int i = 0; i < kTimes / 4 && !HasFailure(); ++i) {
    Numbers n = AnyMeasured();
    if (*n.rank_count == 1) continue;
    n.shard_count = 1;
    n.shard_sync_seconds = n.replica_sync_seconds = n.gather_forward_seconds = n.gather_backward_seconds = std::nullopt;
    n.sync_seconds = 1e4;
    n.compute_seconds = 1e-9;
    EXPECT_NEAR(Planned(n).modes.back().speedup, *n.accumulate, 1e-6 * *n.accumulate);
  }
}

TEST_F(Property, AWhatIfThatChangesNothingChangesNothing) {
  for (int i = 0; i < kTimes && !HasFailure(); ++i) {
    Numbers numbers = AnyMeasured();
    numbers.link_bytes_per_second = 1e9;
    Numbers same;
    same.link_bytes_per_second = 1e9;
    const auto answer = MakePlan({.numbers = numbers, .what_ifs = {same}});
    ASSERT_TRUE(answer.ok()) << answer.status();
    for (size_t m = 0; m < answer->plan.modes.size(); ++m) {
      const double before = answer->plan.modes[m].step_seconds, after = answer->what_ifs[0].modes[m].step_seconds;
      EXPECT_NEAR(after, before, 1e-6 * before) << Name(answer->plan.modes[m].mode) << " of " << Label(numbers);
    }
    EXPECT_NEAR(answer->what_ifs[0].relative_throughput, answer->plan.relative_throughput,
                1e-6 * answer->plan.relative_throughput);
  }
}

}  // namespace
}  // namespace gradgate::planner
