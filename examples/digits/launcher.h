// Ranks as processes of this machine.

#ifndef GRADGATE_EXAMPLES_DIGITS_LAUNCHER_H_
#define GRADGATE_EXAMPLES_DIGITS_LAUNCHER_H_

#include <chrono>
#include <cstdint>
#include <functional>

namespace digits {

// Forks `ranks` children, runs run(rank) in each and waits for all; returns 0 if all returned 0, else 1. When one fails the
// others get `grace` to end with a message of their own, then they are terminated. Children die with this process; none is left
// when it returns. Call before any thread is started.
int Launch(uint32_t ranks, std::chrono::seconds grace, const std::function<int(uint32_t rank)>& run);

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_LAUNCHER_H_
