// Byte parity: whatever the mode, the buckets, who owns the memory and how many micro-steps each rank brings, every rank ends
// each window with the bytes of the exact sum. Gradients lie on a grid on which every sum and division is exact.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "shim/capi/session.h"
#include "tests/shim/capi/job.h"

namespace gradgate {
namespace {

struct Plan {
  uint64_t seed;
  uint32_t world_size;
  uint32_t accumulate;
  uint32_t windows;
  SyncMode mode;
  Divide divide;
  uint64_t bucket_bytes;
  std::vector<uint64_t> sizes;                     // elements by tensor
  std::vector<DType> dtypes;                       // by tensor
  std::vector<bool> views;                         // by tensor
  std::vector<std::vector<uint32_t>> micro_steps;  // by window, by rank
  std::vector<std::vector<bool>> told;             // by window, by rank: the last micro-step is told to be the last

  std::string Describe() const {
    return "seed " + std::to_string(seed) + ", world " + std::to_string(world_size) + ", N " + std::to_string(accumulate) +
           ", mode " + std::string(Name(mode)) + ", divide " + std::to_string(static_cast<int>(divide));
  }
};

Plan MakePlan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t n) { return random() % n; };
  Plan plan;
  plan.seed = seed;
  plan.world_size = static_cast<uint32_t>(below(4) + 1);
  plan.accumulate = static_cast<uint32_t>(below(5) + 1);
  plan.windows = 4;
  plan.mode = below(2) ? SyncMode::kWindow : SyncMode::kEveryMicroStep;
  plan.divide = std::vector<Divide>{Divide::kWorld, Divide::kActive, Divide::kItems, Divide::kNone}[below(4)];
  plan.bucket_bytes = below(200) + 8;
  for (uint64_t i = 0, n = below(6) + 1; i < n; ++i) {
    plan.sizes.push_back(below(20) + 1);
    plan.dtypes.push_back(below(3) ? DType::kFloat64 : DType::kFloat32);
    plan.views.push_back(below(2));
  }
  for (uint32_t window = 0; window < plan.windows; ++window) {
    std::vector<uint32_t> brought;
    std::vector<bool> told;
    for (uint32_t rank = 0; rank < plan.world_size; ++rank) {
      brought.push_back(static_cast<uint32_t>(below(3) ? plan.accumulate : below(plan.accumulate + 1)));
      told.push_back(below(2));
    }
    plan.micro_steps.push_back(brought);
    plan.told.push_back(told);
  }
  return plan;
}

// Small integers times world^accumulate: exact in float32 for these sizes, divided by the world once a micro-step.
double GridValue(const Plan& plan, uint32_t window, uint32_t rank, uint32_t micro_step, uint64_t element) {
  double value = static_cast<double>((window * 31 + rank * 17 + micro_step * 7 + element * 3) % 13) - 6;
  for (uint32_t i = 0; i < plan.accumulate; ++i) value *= plan.world_size;
  return value;
}

int64_t Items(uint32_t rank, uint32_t micro_step) { return rank + micro_step + 1; }

template <typename T>
T Expected(const Plan& plan, uint32_t window, uint64_t element) {
  double sum = 0;
  int64_t items = 0;
  double active = 0;
  for (uint32_t rank = 0; rank < plan.world_size; ++rank) {
    active += plan.micro_steps[window][rank] > 0;
    for (uint32_t k = 0; k < plan.micro_steps[window][rank]; ++k) {
      sum += GridValue(plan, window, rank, k, element);
      items += Items(rank, k);
    }
  }
  switch (plan.divide) {
    case Divide::kWorld:
      return static_cast<T>(sum) / static_cast<T>(plan.world_size);
    case Divide::kActive:
      return active > 0 ? static_cast<T>(sum) / static_cast<T>(active) : T{0};
    case Divide::kItems:
      return items > 0 ? static_cast<T>(sum) / static_cast<T>(items) : T{0};
    case Divide::kNone:
      return static_cast<T>(sum);
  }
  return 0;
}

template <typename T>
void AddAndCheck(const Plan& plan, T* gradient, uint64_t size, uint32_t window, uint32_t rank, int micro_step) {
  for (uint64_t e = 0; e < size; ++e) {
    if (micro_step >= 0) {
      gradient[e] += static_cast<T>(GridValue(plan, window, rank, static_cast<uint32_t>(micro_step), e));
      continue;
    }
    const T want = Expected<T>(plan, window, e);
    ASSERT_EQ(std::memcmp(&gradient[e], &want, sizeof(T)) == 0 || (gradient[e] == 0 && want == 0), true)
        << "rank " << rank << " window " << window << " element " << e << ": " << gradient[e] << " where " << want
        << " is right";
    gradient[e] = 0;
  }
}

void ForAll(const Plan& plan, Session& session, uint32_t tensor, uint32_t window, uint32_t rank, int micro_step) {
  void* gradient = session.reducer().gradient(tensor);
  if (plan.dtypes[tensor] == DType::kFloat32) {
    AddAndCheck(plan, static_cast<float*>(gradient), plan.sizes[tensor], window, rank, micro_step);
  } else {
    AddAndCheck(plan, static_cast<double*>(gradient), plan.sizes[tensor], window, rank, micro_step);
  }
}

void RunRank(const Plan& plan, uint32_t rank, Session& session) {
  std::mt19937_64 random(plan.seed * 31 + rank);
  const auto tensors = static_cast<uint32_t>(plan.sizes.size());
  for (uint32_t window = 0; window < plan.windows; ++window) {
    const uint32_t brought = plan.micro_steps[window][rank];
    for (uint32_t k = 0; k < brought; ++k) {
      const bool last = k + 1 == brought && plan.told[window][rank];
      bool boundary = false;
      ASSERT_TRUE(session.BeginMicroStep(last ? Last::kYes : Last::kByCount, Items(rank, k), &boundary).ok());
      for (uint32_t i = tensors; i-- > 0;) {
        ForAll(plan, session, i, window, rank, static_cast<int>(k));
        if (random() % 4 == 0) continue;
        ASSERT_TRUE(session.GradientReady(i).ok());
      }
      const Status ended = session.EndMicroStep();
      ASSERT_TRUE(ended.ok()) << ended.message();
    }
    ClosedWindow report;
    const Status reduced = session.BeforeStep(&report);
    ASSERT_TRUE(reduced.ok()) << reduced.message();
    ASSERT_EQ(report.window_index, window);
    if (report.max_micro_steps == 0) continue;
    for (uint32_t i = 0; i < tensors; ++i) ForAll(plan, session, i, window, rank, -1);
  }
  EXPECT_EQ(Count(session.page().totals.window_mismatched_count), 0u);
  const page::CollectiveCell& cell = session.page().cells[0][0];
  EXPECT_EQ(Count(cell.completed_count), Count(cell.issued_count[0]) + Count(cell.issued_count[1]));
}

TEST(SessionParity, EveryWindowHasTheBytesOfTheExactSum) {
  const char* given = std::getenv("GRADGATE_TEST_SEED");
  const uint64_t first = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  const int runs = given ? 1 : 400;
  for (int run = 0; run < runs; ++run) {
    const Plan plan = MakePlan(first + static_cast<uint64_t>(run));
    SCOPED_TRACE("GRADGATE_TEST_SEED=" + std::to_string(plan.seed) + " (" + plan.Describe() + ")");
    Job job(plan.world_size);
    std::vector<std::vector<std::vector<double>>> own(plan.world_size);  // memory of tensors that are no views
    job.Run(
        [&](uint32_t rank, SessionOptions& o) {
          o.accumulate = plan.accumulate;
          o.mode = plan.mode;
          o.divide = plan.divide;
          o.variable_windows = true;
          o.bucket_bytes = plan.bucket_bytes;
          o.tensors.clear();
          o.tensor_names.assign(plan.sizes.size(), "t");
          for (size_t i = 0; i < plan.sizes.size(); ++i) {
            own[rank].emplace_back(plan.sizes[i], 0.0);
            o.tensors.push_back({plan.views[i] ? nullptr : own[rank][i].data(), plan.sizes[i], plan.dtypes[i]});
          }
        },
        [&](uint32_t rank, Session& session) { RunRank(plan, rank, session); });
    for (uint32_t rank = 0; rank < plan.world_size; ++rank) ASSERT_TRUE(job.created(rank).ok()) << job.created(rank).message();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

}  // namespace
}  // namespace gradgate
