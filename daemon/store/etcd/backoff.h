// How long to wait before the next try: doubled each time up to a limit, and then a random part of it, so that a thousand
// daemons do not come back at the same instant. Pure apart from the seed.
//
// Thread class: one thread per object.

#ifndef GRADGATE_DAEMON_STORE_ETCD_BACKOFF_H_
#define GRADGATE_DAEMON_STORE_ETCD_BACKOFF_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace gradgate {

class Backoff {
 public:
  Backoff(absl::Duration least, absl::Duration most, uint64_t seed)
      : least_(least), most_(most), limit_(least), random_(seed) {}

  void Reset() { limit_ = least_; }

  // Between half of the limit and all of it.
  absl::Duration Next() {
    const absl::Duration limit = limit_;
    limit_ = std::min(2 * limit_, most_);
    return limit * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  }

 private:
  const absl::Duration least_;
  const absl::Duration most_;
  absl::Duration limit_;
  std::mt19937_64 random_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_BACKOFF_H_
