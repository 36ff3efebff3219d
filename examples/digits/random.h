// Seeded numbers that are the same on every machine and standard library (SplitMix64), so that all ranks shuffle and initialise
// alike without talking to each other.

#ifndef GRADGATE_EXAMPLES_DIGITS_RANDOM_H_
#define GRADGATE_EXAMPLES_DIGITS_RANDOM_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace digits {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound); bound > 0. The bias is below bound / 2^64.
  uint64_t Below(uint64_t bound) { return Next() % bound; }

  // Uniform in [low, high).
  double Uniform(double low, double high) { return low + (high - low) * (static_cast<double>(Next() >> 11) * 0x1p-53); }

  // 0 … count − 1 in random order.
  std::vector<uint32_t> Permutation(uint32_t count) {
    std::vector<uint32_t> order(count);
    for (uint32_t i = 0; i < count; ++i) order[i] = i;
    for (uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[Below(i)]);
    return order;
  }

 private:
  uint64_t state_;
};

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_RANDOM_H_
