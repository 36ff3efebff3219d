// Looks four times a second at what the jobs of this node have in force, and has the desk keep it for later attempts of their
// launches. A daemon that comes late does it from the pages that it is given.
//
// Thread class: the owner's thread makes and ends it. It has one thread, on which it waits for the store.

#ifndef GRADGATE_DAEMON_POLICY_POLICY_KEEPER_H_
#define GRADGATE_DAEMON_POLICY_POLICY_KEEPER_H_

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "daemon/node/mutex.h"
#include "daemon/node/registry.h"
#include "daemon/policy/policy_desk.h"

namespace gradgate {

class PolicyKeeper {
 public:
  static constexpr absl::Duration kInterval = absl::Milliseconds(250);
  static constexpr absl::Duration kMaxWrite = absl::Seconds(1);
  static constexpr absl::Duration kPause = absl::Seconds(2);  // after a write that failed; it is tried again

  // Neither pointer is owned; both outlive this.
  PolicyKeeper(const Registry* registry, PolicyDesk* desk);
  // Waits for a write under way, kMaxWrite at most.
  ~PolicyKeeper();
  PolicyKeeper(const PolicyKeeper&) = delete;
  PolicyKeeper& operator=(const PolicyKeeper&) = delete;

 private:
  void Run();
  // False once this ends.
  bool Wait(absl::Duration duration);
  bool ending();

  const Registry* const registry_;
  PolicyDesk* const desk_;
  Mutex mutex_;
  CondVar wake_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_POLICY_POLICY_KEEPER_H_
