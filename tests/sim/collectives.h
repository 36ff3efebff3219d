// The job's collectives without a network: each rank's k-th on a channel pairs with every other rank's k-th, and is done some
// time after the last rank issued it. A rank that is gone leaves what it had not issued undone for ever; what it had issued,
// perhaps.

#ifndef GRADGATE_TESTS_SIM_COLLECTIVES_H_
#define GRADGATE_TESTS_SIM_COLLECTIVES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "shim/core/ballot.h"
#include "tests/sim/book.h"

namespace gradgate::sim {

class World;

enum class Kind : uint8_t { kBallot, kBucket };
enum class Outcome : uint8_t { kDone, kWaiting, kBroken, kLate };
inline constexpr uint32_t kChannels = 2;  // a ledger's ballots have a group of their own

struct Payload {
  std::array<int64_t, Ballot::kWords> words;  // by maximum
  Gradient gradient;                          // by sum
};

class Collectives {
 public:
  Collectives(World& world, const Scenario& scenario) : world_(world), s_(scenario) {}

  // Returns the ticket.
  uint32_t Issue(uint32_t rank, uint32_t channel, Kind kind, uint32_t shape, const Payload& payload);

  // kWaiting: the rank will be woken, at `deadline` at the latest.
  Outcome Await(uint32_t rank, uint32_t channel, uint32_t ticket, int64_t deadline);
  const Payload& result(uint32_t channel, uint32_t ticket) const { return slots_[channel][ticket].payload; }

  // The rank takes part no more; the others may hear of it soon, or never.
  void Leave(uint32_t rank);
  bool anybody_left() const { return left_ > 0; }

 private:
  struct Slot {
    Kind kind;
    uint32_t shape;
    uint32_t issued = 0;
    uint32_t left_when_done = 0;
    bool lost = false;
    int64_t done_at = 0;
    Payload payload;
  };
  struct Member {
    std::array<uint32_t, kChannels> next{};
    bool waiting = false;
    uint32_t channel = 0;
    uint32_t ticket = 0;
    int64_t torn_at = INT64_MAX;  // it hears that somebody left
    bool left = false;
  };

  void Complete(uint32_t channel, uint32_t ticket);

  World& world_;
  const Scenario& s_;
  std::array<std::vector<Slot>, kChannels> slots_;
  std::array<Member, kMaxRanks> members_;
  uint32_t left_ = 0;
};

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_COLLECTIVES_H_
