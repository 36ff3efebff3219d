// shim/link
// What must not live on in a forked child: descriptors that are closed there, and shared pages that are replaced there by
// private zero memory at the same address. One set of pthread_atfork handlers serves all; registration is setup only.
//
// The child's handler makes only async-signal-safe calls, since the parent may have had several threads.

#ifndef GRADGATE_SHIM_LINK_FORK_GUARD_H_
#define GRADGATE_SHIM_LINK_FORK_GUARD_H_

#include <atomic>
#include <cstdint>

#include "shim/core/thread_annotations.h"

namespace gradgate {

// Registers for as long as it lives. `fd` (may be null) is read in the child when it forks: closed and set to −1 if ≥ 0.
// `memory` (may be null; page-aligned, whole pages) is replaced. Neither may move, and the memory must outlive the guard.
class ForkGuard {
 public:
  ForkGuard(int* fd, void* memory, uint64_t memory_bytes);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // True in a child that was forked after this guard was made. Any thread.
  bool forked() const { return forked_.load(std::memory_order_relaxed); }

  // Held by every fork() from before it until after it. Its holder may open, close or replace a guarded descriptor, and no
  // child is made meanwhile that has a copy which its guard does not know. Innermost: nothing is called and no fork made under
  // it.
  static Mutex& ForkMutex() GG_ATTRIBUTE(lock_returned(mutex_)) { return mutex_; }

 private:
  static void Install();
  static void BeforeFork() GG_ATTRIBUTE(acquire_capability(mutex_));
  static void AfterForkInParent() GG_ATTRIBUTE(release_capability(mutex_));
  static void AfterForkInChild() GG_ATTRIBUTE(release_capability(mutex_));
  void Isolate() GG_REQUIRES(mutex_);

  static Mutex mutex_;
  static ForkGuard* first_ GG_GUARDED_BY(mutex_);

  int* const fd_;
  void* const memory_;
  const uint64_t memory_bytes_;
  std::atomic<bool> forked_{false};
  ForkGuard* previous_ GG_GUARDED_BY(mutex_) = nullptr;
  ForkGuard* next_ GG_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_LINK_FORK_GUARD_H_
