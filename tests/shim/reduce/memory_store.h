// A rendezvous store within one process.

#ifndef GRADGATE_TESTS_SHIM_REDUCE_MEMORY_STORE_H_
#define GRADGATE_TESTS_SHIM_REDUCE_MEMORY_STORE_H_

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "shim/reduce/store.h"

namespace gradgate {

class MemoryStore : public Store {
 public:
  Status Set(const std::string& key, std::string_view value, int64_t) override {
    const std::lock_guard lock(mutex_);
    values_[key] = std::string(value);
    changed_.notify_all();
    return OkStatus();
  }
  Status Get(const std::string& key, int64_t timeout_ns, std::string* value) override {
    std::unique_lock lock(mutex_);
    const bool there =
        changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return values_.find(key) != values_.end(); });
    if (!there) return NotFound(key);
    *value = values_[key];
    return OkStatus();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace gradgate

#endif  // GRADGATE_TESTS_SHIM_REDUCE_MEMORY_STORE_H_
