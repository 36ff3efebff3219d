// How long a stress test runs.

#ifndef GRADGATE_TESTS_STRESS_STRESS_SECONDS_H_
#define GRADGATE_TESTS_STRESS_STRESS_SECONDS_H_

#include <algorithm>
#include <cstdlib>

namespace gradgate::testing {

// GRADGATE_STRESS_SECONDS, from 1 to 600; without it `in_ci`.
inline int StressSeconds(int in_ci) {
  const char* setting = std::getenv("GRADGATE_STRESS_SECONDS");
  return setting == nullptr || *setting == '\0' ? in_ci : std::clamp(std::atoi(setting), 1, 600);
}

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_STRESS_STRESS_SECONDS_H_
