// The planner: what each sync mode costs under given numbers, which is best, and what other circumstances would do. Pure; any
// thread.

#ifndef GRADGATE_CLIENT_PLANNER_PLAN_H_
#define GRADGATE_CLIENT_PLANNER_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/planner/modes.h"
#include "client/planner/numbers.h"
#include "client/planner/parts.h"

namespace gradgate::planner {

inline constexpr size_t kMaxWhatIfs = 64;

struct Question {
  Numbers numbers = {};
  std::vector<Numbers> alternatives = {};  // others that what is known allows; they give the bounds
  std::vector<Numbers> what_ifs = {};      // what changes
  double tolerance = 0.01;                 // modes that differ by less are as fast
};

struct Plan {
  std::string label;
  Numbers numbers;
  Sharding sharding = Sharding::kNone;
  std::vector<ModeCost> modes;
  std::string why;
  double relative_throughput = 1;

  const ModeCost& best() const;
};

struct Answer {
  Plan plan;
  std::vector<Plan> what_ifs;
  std::string advice;
  std::string policy;  // as `gradgatectl policy set` takes it; empty: nothing would gain
  Notes notes;
};

// What is assumed where nothing is known. INVALID_ARGUMENT: counts that do not divide each other, with the remedy.
absl::StatusOr<Numbers> WithDefaults(const Numbers& numbers);

// `changes` to what was given: ranks per node stay, and full sharding stays full.
Numbers Changed(const Numbers& base, const Numbers& changes);

// INVALID_ARGUMENT: a number outside its range, or that contradicts others. FAILED_PRECONDITION: a number that is missing.
absl::StatusOr<Answer> MakePlan(const Question& question);

}  // namespace gradgate::planner

#endif  // GRADGATE_CLIENT_PLANNER_PLAN_H_
