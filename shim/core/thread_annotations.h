// Clang's thread-safety attributes, and the two types that carry them: a mutex and its scoped lock.

#ifndef GRADGATE_SHIM_CORE_THREAD_ANNOTATIONS_H_
#define GRADGATE_SHIM_CORE_THREAD_ANNOTATIONS_H_

#include <mutex>

#if defined(__clang__)
#define GG_ATTRIBUTE(x) __attribute__((x))
#else
#define GG_ATTRIBUTE(x)
#endif
#define GG_GUARDED_BY(mutex) GG_ATTRIBUTE(guarded_by(mutex))
#define GG_REQUIRES(...) GG_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define GG_EXCLUDES(...) GG_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace gradgate {

class GG_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void lock() GG_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void unlock() GG_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class GG_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GG_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() GG_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CORE_THREAD_ANNOTATIONS_H_
