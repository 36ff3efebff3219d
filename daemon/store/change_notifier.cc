#include "daemon/store/change_notifier.h"

#include <chrono>
#include <utility>

#include "daemon/store/limits.h"

namespace gradgate {
namespace {

constexpr std::chrono::seconds kLongestNap(10);

}  // namespace

ChangeNotifier::~ChangeNotifier() { Stop(); }

void ChangeNotifier::Start(Changed changed) {
  MutexLock lock(&mutex_);
  if (started_ || stopped_) return;
  started_ = true;
  thread_ = std::thread([this, changed = std::move(changed)] { Run(changed); });
}

void ChangeNotifier::Add(const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  MutexLock lock(&mutex_);
  while (started_ && !stopped_ && pending_.size() > kMaxStoreKeys) condition_.WaitFor(&mutex_, kLongestNap);
  if (!started_ || stopped_) return;
  pending_.insert(keys.begin(), keys.end());
  condition_.NotifyAll();
}

void ChangeNotifier::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    condition_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ChangeNotifier::Run(const Changed& changed) {
  while (true) {
    std::set<std::string> keys;
    {
      MutexLock lock(&mutex_);
      while (pending_.empty() && !stopped_) condition_.WaitFor(&mutex_, kLongestNap);
      if (stopped_) return;
      keys.swap(pending_);
      condition_.NotifyAll();
    }
    changed(std::vector<std::string>(keys.begin(), keys.end()));
  }
}

}  // namespace gradgate
