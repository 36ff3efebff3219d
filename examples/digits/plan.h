// Which samples a rank trains on in which window. Pure arithmetic that every rank does alike, so that nobody has to be asked.
//
// An epoch is one shuffle, cut into micro-batches of batch_size samples (the last one may be shorter). Window w takes the next
// world × accumulate micro-batches; inside it the m-th goes to rank m mod world:
//
//   world 2, accumulate 2, 7 micro-batches      window 0         window 1
//                                   rank 0      0  2             4  6
//                                   rank 1      1  3             5            ← partial
//
// All ranks have the same number of windows. In the last one ranks may bring fewer micro-steps than others, or none.

#ifndef GRADGATE_EXAMPLES_DIGITS_PLAN_H_
#define GRADGATE_EXAMPLES_DIGITS_PLAN_H_

#include <algorithm>
#include <cstdint>

namespace digits {

struct Plan {
  uint32_t sample_count = 0;
  uint32_t batch_size = 1;
  uint32_t world = 1;
  uint32_t accumulate = 1;

  uint32_t MicroBatches() const { return (sample_count + batch_size - 1) / batch_size; }
  uint32_t PerWindow() const { return world * accumulate; }
  uint32_t Windows() const { return (MicroBatches() + PerWindow() - 1) / PerWindow(); }

  // Micro-batches of a window, over all ranks; at least 1.
  uint32_t InWindow(uint32_t window) const { return std::min(PerWindow(), MicroBatches() - window * PerWindow()); }

  // Micro-batches that a rank brings to a window; 0 … accumulate.
  uint32_t OfRank(uint32_t window, uint32_t rank) const { return (InWindow(window) + world - 1 - rank) / world; }

  // Ranks that bring at least one.
  uint32_t ActiveRanks(uint32_t window) const { return std::min(world, InWindow(window)); }

  // A rank's step-th micro-batch in a window, as an index into the epoch.
  uint32_t MicroBatch(uint32_t window, uint32_t rank, uint32_t step) const {
    return window * PerWindow() + step * world + rank;
  }

  // The samples of a micro-batch: [first, first + count) of the epoch's shuffle.
  uint32_t FirstSample(uint32_t micro_batch) const { return micro_batch * batch_size; }
  uint32_t SampleCount(uint32_t micro_batch) const { return std::min(batch_size, sample_count - FirstSample(micro_batch)); }
};

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_PLAN_H_
