// policy_sim: runs seeds until one breaks an invariant, and then prints its scenario and its schedule.
//
//   policy_sim [--first=1] [--seeds=100000]   exit status 1: a seed broke something
//              [--shortest=N]                 of the first N such seeds, prints the one with the shortest schedule
//   policy_sim --show=SEED                    the schedule of one seed, broken or not
//   policy_sim --exhaustive                   every schedule of small jobs

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/sim/small_scope.h"
#include "tests/sim/world.h"

namespace gradgate::sim {
namespace {

struct Flags {
  uint64_t first = 1;
  uint64_t seeds = 100'000;
  uint64_t show = 0;
  uint64_t shortest = 1;
  bool exhaustive = false;
};

bool Parse(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const char* value = equals == std::string::npos ? "" : argv[i] + equals + 1;
    char* end = nullptr;
    const uint64_t number = std::strtoull(value, &end, 10);
    if (argument == "--exhaustive") {
      flags->exhaustive = true;
      continue;
    }
    uint64_t* const to = name == "--first"      ? &flags->first
                         : name == "--seeds"    ? &flags->seeds
                         : name == "--shortest" ? &flags->shortest
                         : name == "--show"     ? &flags->show
                                                : nullptr;
    if (to == nullptr || *value == '\0' || *end != '\0') {
      std::fprintf(stderr, "policy_sim: %s: give --first=N, --seeds=N, --shortest=N, --show=SEED or --exhaustive\n", argv[i]);
      return false;
    }
    *to = number;
  }
  return true;
}

void Print(uint64_t seed, const Violation& violation, const std::vector<std::string>& schedule) {
  std::printf("%s", Describe(MakeScenario(seed)).c_str());
  for (const std::string& line : schedule) std::printf("    %s\n", line.c_str());
  if (!violation.invariant.empty()) {
    std::printf("seed %llu breaks %s: %s\n", static_cast<unsigned long long>(seed), violation.invariant.c_str(),
                violation.text.c_str());
  }
}

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void Print(const Coverage& coverage) {
  for (const CoverageRow& row : CoverageRows())
    std::printf("  %-38s %12llu\n", row.name, static_cast<unsigned long long>(coverage.*row.count));
}

// Seeds after the first broken one that are looked at for a shorter schedule.
constexpr uint64_t kLookAhead = 2'000;

int RunSeeds(const Flags& flags) {
  const double from = Seconds();
  Coverage coverage;
  std::vector<std::string> shortest;
  uint64_t found = 0, shortest_seed = 0;
  uint64_t end = flags.first + flags.seeds;
  for (uint64_t seed = flags.first; seed < end && found < flags.shortest; ++seed) {
    const Outcomes outcomes = RunSeed(seed, nullptr);
    coverage.Add(outcomes.coverage);
    if (outcomes.violation.invariant.empty()) continue;
    std::vector<std::string> schedule;
    (void)RunSeed(seed, &schedule);
    if (found++ == 0) end = std::min(end, seed + kLookAhead);
    if (found > 1 && schedule.size() >= shortest.size()) continue;
    shortest = std::move(schedule);
    shortest_seed = seed;
  }
  if (found > 0) {
    Print(shortest_seed, RunSeed(shortest_seed, nullptr).violation, shortest);
    return 1;
  }
  const double took = Seconds() - from;
  std::printf("%llu schedules, seeds %llu to %llu, in %.1f s (%.0f a second): no invariant broken\n",
              static_cast<unsigned long long>(flags.seeds), static_cast<unsigned long long>(flags.first),
              static_cast<unsigned long long>(flags.first + flags.seeds - 1), took, static_cast<double>(flags.seeds) / took);
  Print(coverage);
  return 0;
}

int ExploreAll() {
  const SmallScope scopes[] = {
      {.ranks = 1, .policies = 3, .windows = 3, .rounds = 1},
      {.ranks = 2, .policies = 2, .windows = 3, .rounds = 1, .same_contents = true},
      {.ranks = 2, .policies = 2, .windows = 3, .rounds = 1, .odd_rank = true},
      {.ranks = 2, .policies = 2, .windows = 2, .rounds = 2, .votes_again = true, .odd_rank = true},
      {.ranks = 3, .policies = 2, .windows = 3, .rounds = 1},
      {.ranks = 2, .policies = 3, .windows = 3, .rounds = 1},
      {.ranks = 2, .policies = 3, .windows = 2, .rounds = 2},
  };
  for (const SmallScope& scope : scopes) {
    const double from = Seconds();
    const SmallScopeResult result = Explore(scope);
    for (const std::string& line : result.schedule) std::printf("    %s\n", line.c_str());
    std::printf("%u ranks, %u policies, %u windows, %u ballots each%s%s: %llu schedules in %.1f s, %llu adoptions: %s\n",
                scope.ranks, scope.policies, scope.windows, scope.rounds, scope.votes_again ? ", encoded twice" : "",
                scope.odd_rank ? ", an odd rank" : "", static_cast<unsigned long long>(result.schedules), Seconds() - from,
                static_cast<unsigned long long>(result.adoptions),
                result.violation.empty() ? "holds" : result.violation.c_str());
    if (!result.violation.empty()) return 1;
  }
  return 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!Parse(argc, argv, &flags)) return 2;
  if (flags.exhaustive) return ExploreAll();
  if (flags.show == 0) return RunSeeds(flags);
  std::vector<std::string> schedule;
  const Outcomes outcomes = RunSeed(flags.show, &schedule);
  Print(flags.show, outcomes.violation, schedule);
  return outcomes.violation.invariant.empty() ? 0 : 1;
}

}  // namespace
}  // namespace gradgate::sim

int main(int argc, char** argv) { return gradgate::sim::Main(argc, argv); }
