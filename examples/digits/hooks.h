// What tests make a trainer do: stop at a known place, break in a known way. A real trainer has nothing of it.

#ifndef GRADGATE_EXAMPLES_DIGITS_HOOKS_H_
#define GRADGATE_EXAMPLES_DIGITS_HOOKS_H_

#include <cstdint>

#include "examples/digits/options.h"

namespace digits {

class Hooks {
 public:
  Hooks(const Options& options, uint32_t rank) : options_(options), rank_(rank) {}

  // Once the session is there.
  void Started() const;
  // Before a window; returns the seconds it waited for stdin.
  double BeforeWindow(uint64_t window) const;
  // Micro-steps to leave out of a window: 0 or 1.
  uint32_t Dropped(uint64_t window) const { return At(options_.drop, window) || options_.shorten == rank_ ? 1 : 0; }
  void BeforeForward() const;
  void InMicroStep() const;
  // After the first gradient of a window's last backward.
  void InLastBackward(uint64_t window) const;

 private:
  bool At(const std::optional<Spot>& spot, uint64_t window) const {
    return spot && spot->rank == rank_ && spot->window == window;
  }

  const Options& options_;
  const uint32_t rank_;
};

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_HOOKS_H_
