// The one clock of the shim's deadlines.

#ifndef GRADGATE_SHIM_REDUCE_CLOCK_H_
#define GRADGATE_SHIM_REDUCE_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace gradgate {

// CLOCK_MONOTONIC, ns.
inline int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_CLOCK_H_
