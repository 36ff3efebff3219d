#include "shim/torch/completions.h"

#include <ATen/core/ivalue.h>
#include <pthread.h>

#include <optional>
#include <string>
#include <typeinfo>
#include <utility>

namespace gradgate::tap {

std::atomic<Completions*> Completions::instance_{new Completions};
const bool Completions::watching_fork_ = Completions::WatchFork();

bool Completions::WatchFork() { return pthread_atfork(nullptr, nullptr, &Completions::ReplaceInChild) == 0; }

void Completions::ReplaceInChild() { instance_.store(new Completions, std::memory_order_release); }

Completions::How Completions::Learn(c10d::Work& work, c10d::ProcessGroup& group, c10::Device device) {
  const std::string type = typeid(work).name();
  if (type.find("Py") != std::string::npos) return How::kUnknown;
  const std::string backend = group.getBackend(device.type())->getBackendName();
  if (backend == "fake") return How::kUnknown;
  if (backend != "gloo") return How::kPoll;
  try {
    return work.getFuture() ? How::kFuture : How::kUnknown;
  } catch (const std::exception&) {
    return How::kUnknown;
  }
}

// A backend has few kinds of Work, and each behaves alike; learning means an exception for some.
Completions::How Completions::HowOf(c10d::Work& work, c10d::ProcessGroup& group, c10::Device device) {
  thread_local const std::type_info* last_type = nullptr;
  thread_local How last_how = How::kUnknown;
  const std::type_info& type = typeid(work);
  if (last_type == &type) return last_how;
  std::optional<How> how;
  {
    MutexLock lock(mutex_);
    const auto known = known_.find(type);
    if (known != known_.end()) how = known->second;
  }
  if (!how) {
    how = Learn(work, group, device);
    MutexLock lock(mutex_);
    known_.emplace(type, *how);
  }
  last_type = &type;
  last_how = *how;
  return *how;
}

void Completions::Watch(const Issue& issue, const c10::intrusive_ptr<c10d::Work>& work, c10d::ProcessGroup& group,
                        c10::Device device, uint64_t bytes) {
  const How how = work ? HowOf(*work, group, device) : How::kUnknown;
  if (how == How::kUnknown) {
    Ledgers::Instance().Done(issue, GG_OUTCOME_UNKNOWN);
    return;
  }
  if (how == How::kFuture) {
    work->getFuture()->addCallback(
        [issue](c10::ivalue::Future& future) {
          Ledgers::Instance().Done(issue, future.hasError() ? GG_OUTCOME_FAILED : GG_OUTCOME_OK);
        },
        /*uses_future=*/false);
    return;
  }
  const bool light =
      bytes <= kSmallBytes || issue.traffic == GG_TRAFFIC_OURS || (issue.traffic == GG_TRAFFIC_GRADIENT && issue.in_micro_step);
  Waiting waiting{issue, light ? work : c10::intrusive_ptr<c10d::Work>(), c10::weak_intrusive_ptr<c10d::Work>(work)};
  std::optional<Waiting> oldest;  // destroyed without the lock
  {
    MutexLock lock(mutex_);
    if (waiting_.size() >= kCapacity) {
      oldest = std::move(waiting_.front());
      waiting_.pop_front();
    }
    waiting_.push_back(std::move(waiting));
    waiting_count_.store(waiting_.size(), std::memory_order_relaxed);
  }
  if (oldest) Ledgers::Instance().Done(oldest->issue, GG_OUTCOME_UNKNOWN);
}

bool Completions::Over(Waiting& waiting) {
  if (!Ledgers::Instance().Bound(waiting.issue.binding)) return true;
  const c10::intrusive_ptr<c10d::Work> work = waiting.strong ? waiting.strong : waiting.weak.lock();
  gg_outcome outcome = GG_OUTCOME_UNKNOWN;
  if (work) {
    try {
      if (!work->isCompleted()) return false;
      outcome = work->exception() ? GG_OUTCOME_FAILED : GG_OUTCOME_OK;
    } catch (const std::exception&) {
      // Such as an event that belongs to a captured graph.
    }
  }
  Ledgers::Instance().Done(waiting.issue, outcome);
  return true;
}

void Completions::Poll() {
  if (Outstanding() == 0) return;
  std::deque<Waiting> asked;
  {
    MutexLock lock(mutex_);
    asked.swap(waiting_);
  }
  std::deque<Waiting> left;
  for (Waiting& waiting : asked) {
    if (!Over(waiting)) left.push_back(std::move(waiting));
  }
  MutexLock lock(mutex_);
  waiting_.insert(waiting_.begin(), std::make_move_iterator(left.begin()), std::make_move_iterator(left.end()));
  waiting_count_.store(waiting_.size(), std::memory_order_relaxed);
}

}  // namespace gradgate::tap
