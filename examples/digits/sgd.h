// Stochastic gradient descent with momentum: v = momentum · v + g; p −= lr · v.

#ifndef GRADGATE_EXAMPLES_DIGITS_SGD_H_
#define GRADGATE_EXAMPLES_DIGITS_SGD_H_

#include <cstdint>
#include <span>
#include <vector>

namespace digits {

template <typename T>
class Sgd {
 public:
  Sgd(double lr, double momentum) : lr_(static_cast<T>(lr)), momentum_(static_cast<T>(momentum)) {}

  // Steps one tensor; the same tensor numbers and sizes each time.
  void Step(uint32_t tensor, std::span<const T> gradient, std::span<T> parameters) {
    if (velocities_.size() <= tensor) velocities_.resize(tensor + 1);
    std::vector<T>& velocity = velocities_[tensor];
    velocity.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      velocity[i] = momentum_ * velocity[i] + gradient[i];
      parameters[i] -= lr_ * velocity[i];
    }
  }

 private:
  const T lr_;
  const T momentum_;
  std::vector<std::vector<T>> velocities_;
};

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_SGD_H_
