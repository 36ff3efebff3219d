// The time, passed in so that tests need not wait for it.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_NODE_CLOCK_H_
#define GRADGATE_DAEMON_NODE_CLOCK_H_

#include <time.h>

#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace gradgate {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
  // CLOCK_MONOTONIC, which trainers of this machine share.
  virtual uint64_t MonotonicNs() const {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  }
};

class SystemClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_CLOCK_H_
