#include "planner/plan.h"

#include "gtest/gtest.h"

namespace gradgate::planner {
namespace {

TEST(Plan, Seed) {
  Question q;
  q.numbers.rank_count = 16;
  q.numbers.node_count = 2;
  q.numbers.shard_count = 8;
  q.numbers.accumulate = 4;
  q.numbers.compute_seconds = 10.8;
  q.numbers.sync_seconds = 11.4;
  const auto answer = MakePlan(q);
  ASSERT_TRUE(answer.ok()) << answer.status();
  for (const auto& m : answer->plan.modes) printf("%s %g\n", Name(m.mode).c_str(), m.step_seconds);
  puts(answer->advice.c_str());
}

}  // namespace
}  // namespace gradgate::planner
