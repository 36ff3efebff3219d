// The simulation's only source of chance: splitmix64, the same on every machine.

#ifndef GRADGATE_TESTS_SIM_RANDOM_H_
#define GRADGATE_TESTS_SIM_RANDOM_H_

#include <cstdint>

namespace gradgate::sim {

constexpr uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed + 0x9e3779b97f4a7c15)) {}

  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15); }
  // In [0, bound).
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>((Next() >> 32) * bound >> 32); }
  // In [low, high].
  uint32_t Between(uint32_t low, uint32_t high) { return low + Below(high - low + 1); }
  bool Percent(uint32_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_RANDOM_H_
