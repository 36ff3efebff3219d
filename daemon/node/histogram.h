// A histogram with fixed bounds, as plain integers.
//
// Thread class: the caller's lock.

#ifndef GRADGATE_DAEMON_NODE_HISTOGRAM_H_
#define GRADGATE_DAEMON_NODE_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gradgate {

// Upper bounds in ns, ascending; a last bucket without bound follows.
template <size_t N>
using BoundsNs = std::array<uint64_t, N>;

inline constexpr uint64_t kUs = 1'000;
inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint64_t kSecond = 1'000'000'000;

// From a small message on one machine to a stalled link.
inline constexpr BoundsNs<13> kCollectiveBoundsNs = {30 * kUs,    100 * kUs,    300 * kUs,   1 * kMs,   3 * kMs,
                                                     10 * kMs,    30 * kMs,     100 * kMs,   300 * kMs, 1 * kSecond,
                                                     3 * kSecond, 10 * kSecond, 30 * kSecond};
// From a toy model's window to a large one's.
inline constexpr BoundsNs<12> kWindowBoundsNs = {1 * kMs,      3 * kMs,      10 * kMs,      30 * kMs,
                                                 100 * kMs,    300 * kMs,    1 * kSecond,   3 * kSecond,
                                                 10 * kSecond, 30 * kSecond, 100 * kSecond, 300 * kSecond};

template <size_t N>
struct Histogram {
  std::array<uint64_t, N + 1> counts{};  // not cumulative
  uint64_t count = 0;
  double sum_ns = 0;

  void Observe(uint64_t value_ns, const BoundsNs<N>& bounds) {
    ++counts[std::lower_bound(bounds.begin(), bounds.end(), value_ns) - bounds.begin()];
    ++count;
    sum_ns += static_cast<double>(value_ns);
  }
};

using CollectiveHistogram = Histogram<kCollectiveBoundsNs.size()>;
using WindowHistogram = Histogram<kWindowBoundsNs.size()>;

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_HISTOGRAM_H_
