// Names the ranks that others wait for. A rank that has waited a while for a collective writes where it is to the rendezvous
// store; one whose wait fails reads what the others wrote: who has not come to the same round is missing. A rank that leaves or
// fails writes why.
//
// Thread class: one thread at a time. Every call blocks for at most the time it is given.

#ifndef GRADGATE_SHIM_REDUCE_ARRIVAL_BOARD_H_
#define GRADGATE_SHIM_REDUCE_ARRIVAL_BOARD_H_

#include <cstdint>
#include <string>

#include "shim/reduce/store.h"

namespace gradgate {

class ArrivalBoard {
 public:
  // `store` is borrowed. `prefix` distinguishes jobs and attempts on one store.
  ArrivalBoard(Store* store, std::string prefix, uint32_t rank, uint32_t world_size);

  // This rank waits in round `round` of window `window`.
  void Arrived(uint64_t window, uint64_t round, int64_t timeout_ns);

  // This rank waited in that round, and its wait failed: it came, and is alive.
  void GaveUp(uint64_t window, uint64_t round, int64_t timeout_ns);

  // This rank will never arrive anywhere again; `why` for people.
  void Left(uint64_t window, const std::string& why, int64_t timeout_ns);

  // Says who is to blame for a failed wait in that round, after giving the others up to budget_ns to give up too:
  // "ranks [2] did not come (rank 2: last seen waiting in window 16)", or "ranks [1] came and then fell silent": killed or
  // frozen while they waited. Empty if all have given up.
  std::string DescribeMissing(uint64_t window, uint64_t round, int64_t budget_ns);

 private:
  std::string Key(uint32_t rank) const { return prefix_ + "at/" + std::to_string(rank); }

  Store* store_;
  std::string prefix_;
  uint32_t rank_;
  uint32_t world_size_;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_ARRIVAL_BOARD_H_
