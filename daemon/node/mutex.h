// std::mutex with the attributes that thread-safety analysis needs.
//
// Not absl::Mutex: the race detector cannot see inside the one of Debian's library, which is built without it, and would report
// every field that it guards.
//
// Thread class: any thread. Not recursive.

#ifndef GRADGATE_DAEMON_NODE_MUTEX_H_
#define GRADGATE_DAEMON_NODE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace gradgate {
// A name of its own for the linker: the shim, which some tests link as well, has others of the same names.
inline namespace daemon_mutex {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex for as long as it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// What threads that hold a mutex wait for.
class CondVar {
 public:
  void NotifyAll() { condition_.notify_all(); }

  // Releases the mutex meanwhile. Also returns early for no reason.
  void WaitUntil(Mutex* mutex, std::chrono::steady_clock::time_point deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait_until(lock, deadline);
    lock.release();
  }
  void WaitFor(Mutex* mutex, std::chrono::nanoseconds longest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    WaitUntil(mutex, std::chrono::steady_clock::now() + longest);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace daemon_mutex
}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_MUTEX_H_
