// The time, passed in so that tests need not wait for it.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_NODE_CLOCK_H_
#define GRADGATE_DAEMON_NODE_CLOCK_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace gradgate {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class SystemClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_CLOCK_H_
