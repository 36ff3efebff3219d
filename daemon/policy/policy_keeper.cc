#include "daemon/policy/policy_keeper.h"

#include "absl/time/clock.h"

namespace gradgate {

PolicyKeeper::PolicyKeeper(const Registry* registry, PolicyDesk* desk)
    : registry_(registry), desk_(desk), thread_([this] { Run(); }) {}

PolicyKeeper::~PolicyKeeper() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

void PolicyKeeper::Run() {
  absl::Duration pause = kInterval;
  while (Wait(pause)) {
    pause = kInterval;
    for (const PolicyInForce& one : registry_->ListPoliciesInForce()) {
      if (ending()) return;
      if (!desk_->Keep(one, absl::Now() + kMaxWrite).ok()) pause = kPause;
    }
  }
}

bool PolicyKeeper::Wait(absl::Duration duration) {
  const absl::Time end = absl::Now() + duration;
  MutexLock lock(&mutex_);
  for (absl::Time now = absl::Now(); !ending_ && now < end; now = absl::Now()) {
    wake_.WaitFor(&mutex_, absl::ToChronoNanoseconds(end - now));
  }
  return !ending_;
}

bool PolicyKeeper::ending() {
  MutexLock lock(&mutex_);
  return ending_;
}

}  // namespace gradgate
