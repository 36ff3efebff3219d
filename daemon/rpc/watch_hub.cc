#include "daemon/rpc/watch_hub.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace gradgate {

absl::Status WatchHub::Add(std::shared_ptr<Watcher> watcher) {
  MutexLock lock(&mutex_);
  if (shut_down_) return absl::UnavailableError("the daemon is shutting down");
  if (watchers_.size() >= max_watchers_) {
    return absl::ResourceExhaustedError(absl::StrCat("too many watchers: ", watchers_.size(), "; raise --max_watchers"));
  }
  watchers_.insert(std::move(watcher));
  return absl::OkStatus();
}

void WatchHub::Remove(const std::shared_ptr<Watcher>& watcher) {
  MutexLock lock(&mutex_);
  watchers_.erase(watcher);
}

size_t WatchHub::watcher_count() {
  MutexLock lock(&mutex_);
  return watchers_.size();
}

void WatchHub::WakeAll() {
  for (const auto& watcher : Copy()) watcher->Wake();
}

void WatchHub::ShutDown() {
  {
    MutexLock lock(&mutex_);
    shut_down_ = true;
  }
  for (const auto& watcher : Copy()) watcher->ShutDown();
}

std::vector<std::shared_ptr<Watcher>> WatchHub::Copy() {
  MutexLock lock(&mutex_);
  return {watchers_.begin(), watchers_.end()};
}

}  // namespace gradgate
