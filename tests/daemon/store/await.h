// Waits for a condition by looking again and again, with a deadline.

#ifndef GRADGATE_TESTS_DAEMON_STORE_AWAIT_H_
#define GRADGATE_TESTS_DAEMON_STORE_AWAIT_H_

#include <chrono>
#include <functional>
#include <thread>

namespace gradgate::testing {

inline bool Await(const std::function<bool()>& condition, std::chrono::milliseconds longest = std::chrono::seconds(20)) {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_STORE_AWAIT_H_
