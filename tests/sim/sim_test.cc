#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/sim/small_scope.h"
#include "tests/sim/world.h"

namespace gradgate::sim {
namespace {

// GRADGATE_SIM_SEEDS lengthens the run; policy_sim --show=SEED prints a schedule.
uint64_t SeedCount() {
  const char* count = std::getenv("GRADGATE_SIM_SEEDS");
  return count != nullptr ? std::strtoull(count, nullptr, 10) : 30'000;
}

std::string Printed(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(PolicySim, NoScheduleBreaksAnInvariant) {
  Coverage coverage;
  for (uint64_t seed = 1; seed <= SeedCount(); ++seed) {
    const Outcomes outcomes = RunSeed(seed, nullptr);
    coverage.Add(outcomes.coverage);
    if (outcomes.violation.invariant.empty()) continue;
    std::vector<std::string> schedule;
    (void)RunSeed(seed, &schedule);
    FAIL() << "seed " << seed << " breaks " << outcomes.violation.invariant << ": " << outcomes.violation.text << "\n"
           << Describe(MakeScenario(seed)) << Printed(schedule);
  }
  // The schedules meet what they are meant to meet, all of it.
  for (const CoverageRow& row : CoverageRows()) EXPECT_GT(coverage.*row.count, SeedCount() / 200) << row.name;
  EXPECT_GT(coverage.adoptions, SeedCount());
  EXPECT_GT(coverage.split_votes, SeedCount());
}

TEST(PolicySim, TheSameSeedIsTheSameSchedule) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::vector<std::string> first, second;
    (void)RunSeed(seed, &first);
    (void)RunSeed(seed, &second);
    EXPECT_EQ(first, second) << "seed " << seed;
    EXPECT_FALSE(first.empty());
  }
}

TEST(PolicySim, EveryScheduleOfASmallJobHolds) {
  for (const SmallScope& scope : {SmallScope{.ranks = 1, .policies = 3, .windows = 2},
                                  SmallScope{.ranks = 2, .policies = 2, .windows = 2, .odd_rank = true},
                                  SmallScope{.ranks = 2, .policies = 2, .windows = 3, .same_contents = true},
                                  SmallScope{.ranks = 2, .policies = 2, .windows = 3},
                                  SmallScope{.ranks = 3, .policies = 1, .windows = 3, .rounds = 2, .votes_again = true}}) {
    const SmallScopeResult result = Explore(scope);
    EXPECT_EQ(result.violation, "") << Printed(result.schedule);
    EXPECT_GT(result.adoptions, 0u);
  }
}

}  // namespace
}  // namespace gradgate::sim
