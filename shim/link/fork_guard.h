// What must not live on in a forked child: descriptors that are closed there, and shared pages that are replaced there by private zero
// memory at the same address. One pthread_atfork handler serves all; registration is setup only.
//
// The handler makes only async-signal-safe calls, since the parent may have had several threads.

#ifndef GRADGATE_SHIM_LINK_FORK_GUARD_H_
#define GRADGATE_SHIM_LINK_FORK_GUARD_H_

#include <atomic>
#include <cstdint>

namespace gradgate {

// Registers for as long as it lives. `fd` (may be null) is read in the child when it forks: closed and set to −1 if ≥ 0. `memory` (may be
// null) is replaced. Neither may move.
class ForkGuard {
 public:
  ForkGuard(int* fd, void* memory, uint64_t memory_bytes);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // True in a child that was forked after this guard was made. Any thread.
  bool forked() const { return forked_.load(std::memory_order_relaxed); }

 private:
  static void AtForkChild();

  int* fd_;
  void* memory_;
  uint64_t memory_bytes_;
  std::atomic<bool> forked_{false};
  ForkGuard* previous_ = nullptr;
  ForkGuard* next_ = nullptr;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_LINK_FORK_GUARD_H_
