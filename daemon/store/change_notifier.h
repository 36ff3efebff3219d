// Tells one listener which keys have changed, on a thread of its own, so that a slow listener holds up nobody else.
//
// A key that changes several times before the listener comes to it is told once.
//
// Thread class: any thread. The destructor waits for a call that is running; keys not told by then are forgotten.

#ifndef GRADGATE_DAEMON_STORE_CHANGE_NOTIFIER_H_
#define GRADGATE_DAEMON_STORE_CHANGE_NOTIFIER_H_

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "daemon/node/mutex.h"

namespace gradgate {

class ChangeNotifier {
 public:
  using Changed = std::function<void(const std::vector<std::string>& keys)>;

  ChangeNotifier() = default;
  ~ChangeNotifier();
  ChangeNotifier(const ChangeNotifier&) = delete;
  ChangeNotifier& operator=(const ChangeNotifier&) = delete;

  // Begins to tell `changed`. Once; before that Add() is ignored.
  void Start(Changed changed) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits while a listener is so far behind that more keys wait than a store may hold.
  void Add(const std::vector<std::string>& keys) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends: nothing is told after it, and nothing waits in Add(). Twice is fine.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run(const Changed& changed) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar condition_;
  std::set<std::string> pending_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_CHANGE_NOTIFIER_H_
