// One run of one scenario: the queue of what happens when, in virtual time, and everything that takes part.
//
// The same scenario is always the same run, on every machine. No thread, no clock.

#ifndef GRADGATE_TESTS_SIM_WORLD_H_
#define GRADGATE_TESTS_SIM_WORLD_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/book.h"
#include "tests/sim/collectives.h"
#include "tests/sim/nodes.h"
#include "tests/sim/random.h"
#include "tests/sim/rank.h"
#include "tests/sim/scenario.h"

namespace gradgate::sim {

class World {
 public:
  // `schedule`: if given, what happens is written into it, line by line.
  World(const Scenario& scenario, std::vector<std::string>* schedule, DeskMaker desk_maker = MakeModelDesk);

  // To the end, or to the first violation.
  void Run();

  Book& book() { return book_; }
  Random& random() { return random_; }
  Collectives& collectives() { return collectives_; }
  Nodes& nodes() { return nodes_; }
  int64_t now() const { return now_; }

  // The rank acts at `time`; what was set before for it is off.
  void Wake(uint32_t rank, int64_t time);
  void Queue(int64_t time, NodeEvent event, uint32_t who, uint64_t value);

  bool telling() const { return schedule_ != nullptr; }
  void Say(const char* format, ...) __attribute__((format(printf, 2, 3)));

 private:
  struct Event {
    int64_t time;
    uint64_t order;
    bool of_rank;
    NodeEvent event;
    uint32_t who;
    uint64_t value;

    bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };

  void Push(const Event& event);
  void JudgeEnd();

  const Scenario& s_;
  std::vector<std::string>* schedule_;
  Random random_;
  Book book_;
  Collectives collectives_;
  Nodes nodes_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::array<uint64_t, kMaxRanks> wake_order_{};
  std::vector<Event> queue_;  // a heap
  uint64_t order_ = 0;
  int64_t now_ = 0;
};

struct Outcomes {
  Violation violation;
  Coverage coverage;
};
Outcomes RunSeed(uint64_t seed, std::vector<std::string>* schedule, DeskMaker desk_maker = MakeModelDesk);

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_WORLD_H_
