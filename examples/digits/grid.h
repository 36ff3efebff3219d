// The grid that makes sums of gradients exact, whatever their order: with it, a parameter that differs in one bit between two
// ways of training shows a fault and not a rounding.
//
// Every micro-batch's gradient is rounded to a multiple of
//
//   unit = 2^-40 × world^accumulate × lcm(1 … max(world, accumulate))
//
// so that every division on the way to the optimizer leaves a multiple of 2^-40: by the world at each of `accumulate`
// micro-steps, by the actual length of a partial window, by the number of active ranks. A double holds such multiples exactly
// up to 2^13.

#ifndef GRADGATE_EXAMPLES_DIGITS_GRID_H_
#define GRADGATE_EXAMPLES_DIGITS_GRID_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>

namespace digits {

class Grid {
 public:
  // Throws std::invalid_argument where the unit would be too coarse to learn on.
  Grid(uint32_t world, uint32_t accumulate) {
    double unit = kFinest;
    uint64_t multiple = 1;
    for (uint32_t i = 2; i <= std::max(world, accumulate) && multiple < (uint64_t{1} << 40); ++i)
      multiple = std::lcm(multiple, i);
    unit *= static_cast<double>(multiple) * std::pow(world, accumulate);
    if (unit > kCoarsest) {
      throw std::invalid_argument("--exact: " + std::to_string(world) + " ranks and " + std::to_string(accumulate) +
                                  " micro-steps need a grid coarser than 1/1024: use fewer");
    }
    unit_ = unit;
    limit_ = 0x1p53 * kFinest / (double{1} * world * accumulate);
  }

  double unit() const { return unit_; }

  // target += (source rounded to the grid) / divisor; source = 0. Throws std::range_error if a sum over the window might not be
  // exact.
  void AddRounded(std::span<double> source, double divisor, std::span<double> target) const {
    for (size_t i = 0; i < source.size(); ++i) {
      if (!(std::abs(source[i]) < limit_)) throw std::range_error("--exact: gradient beyond the grid: lower --lr or --batch");
      target[i] += std::nearbyint(source[i] / unit_) * unit_ / divisor;
      source[i] = 0;
    }
  }

 private:
  static constexpr double kFinest = 0x1p-40;
  static constexpr double kCoarsest = 0x1p-10;

  double unit_;
  double limit_;
};

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_GRID_H_
