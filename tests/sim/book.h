// What must hold, checked as the simulated job goes: everything that ranks say of themselves ends up here, and is compared.
//
//   invariant              broken when
//   ---------              -----------
//   one-policy             two ranks begin the same window under different policies, or carry them out differently
//   effect-inside-window   what is in force on a rank changes between the beginning and the end of a window
//   version-not-above      a version comes into force that is not above the one before
//   not-adopted            every rank had accepted a policy, none had a newer one, and it is not in force two windows later
//   unreduced-step         an optimizer steps on other gradients than the mean of all that was brought to the window
//   reductions             a window was reduced more or less often than the policy in force asks
//   collectives            ranks pair collectives of different kinds or shapes (NCCL would hang)
//   disagreement           ranks find each other in different windows, rounds or modes, and nobody caused that
//   refused                an engine refuses what its loop may do
//   stuck                  a wait ends at its deadline without a cause, or a rank does not end by then where there is one
//   silent                 a rank goes on although the job is broken

#ifndef GRADGATE_TESTS_SIM_BOOK_H_
#define GRADGATE_TESTS_SIM_BOOK_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shim/core/policy_stage.h"
#include "tests/sim/scenario.h"

namespace gradgate::sim {

// Gradients are numbers modulo a prime, so that means are exact and any mistake shows.
inline constexpr uint64_t kPrime = (uint64_t{1} << 31) - 1;
inline constexpr uint32_t kTensors = 3;
using Gradient = std::array<uint64_t, kTensors>;
uint64_t InverseOf(uint64_t number);

bool Same(const SyncPolicy& a, const SyncPolicy& b);

struct Violation {
  std::string invariant;  // empty: none
  std::string text;
};

// What the schedules have met, to show that they meet it.
struct Coverage {
  uint64_t windows = 0;
  uint64_t outruns = 0;
  uint64_t ballots = 0;
  uint64_t late_reductions = 0;
  uint64_t steps = 0;
  uint64_t offers = 0;
  uint64_t stale_offers = 0;
  uint64_t rejections = 0;
  uint64_t accepted = 0;
  uint64_t accepted_inside = 0;
  uint64_t other_contents = 0;
  uint64_t garbage = 0;
  uint64_t split_votes = 0;
  uint64_t adoptions = 0;
  uint64_t refused_alone = 0;
  uint64_t deaths = 0;
  uint64_t stops = 0;
  uint64_t lost_results = 0;
  uint64_t jobs_done = 0;
  uint64_t jobs_failed = 0;

  void Add(const Coverage& other);
};

struct CoverageRow {
  const char* name;
  uint64_t Coverage::*count;
};
std::span<const CoverageRow> CoverageRows();

class Book {
 public:
  explicit Book(const Scenario& scenario);

  const Violation& violation() const { return violation_; }
  bool broken() const { return !violation_.invariant.empty(); }
  void Fail(const char* invariant, std::string text);

  void WindowBegun(uint32_t rank, uint64_t window, const PolicyStage& stage, const Settings& settings);
  // `before` was in force until now.
  void Adopted(uint32_t rank, uint64_t window, uint64_t before, const SyncPolicy& policy);
  void Inside(uint32_t rank, uint64_t window, const PolicyStage& stage, const Settings& settings);
  // A rank does what ends the job, or has ended with an error.
  void Faulted(int64_t now);
  void Ended(uint32_t rank, int64_t now);
  void Accepted(uint32_t rank, uint64_t window, const SyncPolicy& policy);
  void Contributed(uint64_t window, const Gradient& gradient);
  void Stepping(uint32_t rank, uint64_t window, const Gradient& gradient);
  void Reduced(uint32_t rank, uint64_t window, uint32_t reductions, uint32_t asked);

  Coverage coverage;

 private:
  struct Window {
    bool begun = false;
    uint32_t by = 0;
    SyncPolicy policy;
    Settings settings;
    Gradient sum{};
  };
  struct Acceptance {
    uint32_t rank;
    uint64_t window;
    uint64_t version;
    uint64_t content_hash;
  };

  Window& At(uint64_t window);
  void CheckAdopted(uint32_t rank, uint64_t window, const PolicyStage& stage);

  const Scenario& s_;
  Violation violation_;
  int64_t faulted_at_ = -1;
  std::vector<Window> windows_;
  std::vector<Acceptance> acceptances_;
};

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_BOOK_H_
