#include "shim/link/fork_guard.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace gradgate {

constinit Mutex ForkGuard::mutex_;
constinit ForkGuard* ForkGuard::first_ = nullptr;

ForkGuard::ForkGuard(int* fd, void* memory, uint64_t memory_bytes) : fd_(fd), memory_(memory), memory_bytes_(memory_bytes) {
  Install();
  MutexLock lock(mutex_);
  next_ = first_;
  if (next_ != nullptr) next_->previous_ = this;
  first_ = this;
}

ForkGuard::~ForkGuard() {
  MutexLock lock(mutex_);
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ != nullptr ? previous_->next_ : first_) = next_;
}

void ForkGuard::Install() {
  static const bool installed = [] {
    // It fails for want of memory alone; going on without would let a worker hide its parent's death.
    if (::pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild) != 0) throw std::bad_alloc();
    return true;
  }();
  static_cast<void>(installed);
}

void ForkGuard::BeforeFork() { mutex_.lock(); }

void ForkGuard::AfterForkInParent() { mutex_.unlock(); }

void ForkGuard::AfterForkInChild() {
  for (ForkGuard* guard = first_; guard != nullptr; guard = guard->next_) guard->Isolate();
  mutex_.unlock();
}

void ForkGuard::Isolate() {
  if (fd_ != nullptr && *fd_ >= 0) {
    ::close(*fd_);
    *fd_ = -1;
  }
  if (forked_.exchange(true, std::memory_order_relaxed)) return;  // a grandchild: the memory is private already
  if (memory_ == nullptr) return;
  const void* replaced =
      ::mmap(memory_, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  // A child that would use it faults, rather than write into its parent's counters.
  if (replaced == MAP_FAILED) ::munmap(memory_, memory_bytes_);
}

}  // namespace gradgate
