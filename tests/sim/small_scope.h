// Every schedule of a small job, instead of many of a large one: a few ranks, policies and windows, and each policy reaching
// each rank at every point between the steps of its ballots, or never.
//
// Ranks meet in ballots alone, so where a frame lies among a rank's own steps is all that can matter: the order between ranks
// cannot.

#ifndef GRADGATE_TESTS_SIM_SMALL_SCOPE_H_
#define GRADGATE_TESTS_SIM_SMALL_SCOPE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace gradgate::sim {

struct SmallScope {
  uint32_t ranks = 2;
  uint32_t policies = 2;
  uint32_t windows = 3;
  uint32_t rounds = 1;         // ballots in a window
  bool votes_again = false;    // each ballot is encoded a second time before it is read
  bool odd_rank = false;       // beside good ones: rank 0 rejects some policies, or was given another content for them
  bool same_contents = false;  // all versions are the same content
};

struct SmallScopeResult {
  uint64_t schedules = 0;
  uint64_t adoptions = 0;
  std::string violation;  // of the first schedule that has one
  std::vector<std::string> schedule;
};

// To the end, or to the first violation.
SmallScopeResult Explore(const SmallScope& scope);

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_SMALL_SCOPE_H_
