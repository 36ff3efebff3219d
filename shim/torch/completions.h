// When a collective is over: by its future where that tells (Gloo), by asking its Work from time to time, else never.
//
//   backend              Work                        how
//   gloo                 with a future               the future calls back, on Gloo's thread
//   gloo                 reduce-scatter, send, recv  unknown at once: nothing says so
//   fake                 any                         unknown at once
//   any                  implemented in Python       unknown at once: asking it would need the interpreter
//   others (NCCL, …)     any                         Poll asks isCompleted
//
// NCCL has futures too, but completes them when the collective is enqueued.
//
// A Work that waits for Poll is held by a strong reference only where that keeps no memory of consequence: small ones, and
// gradients within a micro-step, whose buffers the wrapper or the parameters hold anyway. Others are watched by a weak one, and
// become unknown if they are gone when asked. At most kCapacity wait; the oldest gives way, as unknown.

#ifndef GRADGATE_SHIM_TORCH_COMPLETIONS_H_
#define GRADGATE_SHIM_TORCH_COMPLETIONS_H_

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <typeindex>
#include <unordered_map>

#include "shim/core/thread_annotations.h"
#include "shim/torch/ledgers.h"

namespace gradgate::tap {

class Completions {
 public:
  static constexpr size_t kCapacity = 4096;
  static constexpr uint64_t kSmallBytes = 65536;

  static Completions& Instance() { return *instance_.load(std::memory_order_acquire); }

  // Sees to it that Ledgers::Done is called for `issue`. Any thread. Throws only what torch throws.
  void Watch(const Issue& issue, const c10::intrusive_ptr<c10d::Work>& work, c10d::ProcessGroup& group, c10::Device device,
             uint64_t bytes);

  // Asks all that wait; does not block. One thread at a time. Not while a CUDA graph is captured, which asking an event would
  // end.
  void Poll();

  // Works that wait.
  size_t Outstanding() const { return waiting_count_.load(std::memory_order_relaxed); }

 private:
  enum class How : uint8_t { kFuture, kPoll, kUnknown };
  struct Waiting {
    Issue issue;
    c10::intrusive_ptr<c10d::Work> strong;
    c10::weak_intrusive_ptr<c10d::Work> weak;
  };

  static void ReplaceInChild();
  static bool WatchFork();
  static How Learn(c10d::Work& work, c10d::ProcessGroup& group, c10::Device device);
  static bool Over(Waiting& waiting);

  How HowOf(c10d::Work& work, c10d::ProcessGroup& group, c10::Device device) GG_EXCLUDES(mutex_);

  static std::atomic<Completions*> instance_;
  static const bool watching_fork_;

  std::atomic<size_t> waiting_count_{0};
  Mutex mutex_;
  std::unordered_map<std::type_index, How> known_ GG_GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ GG_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace gradgate::tap

#endif  // GRADGATE_SHIM_TORCH_COMPLETIONS_H_
