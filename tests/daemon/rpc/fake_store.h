// A store in memory, as if other daemons shared it: tests put nodes in and take them out. Any thread.

#ifndef GRADGATE_TESTS_DAEMON_RPC_FAKE_STORE_H_
#define GRADGATE_TESTS_DAEMON_RPC_FAKE_STORE_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/node/mutex.h"
#include "daemon/store/store.h"
#include "gradgate/store/v1/store.pb.h"

namespace gradgate::testing {

inline StoreHealth MakeHealth(bool shared, bool reachable, const std::string& name, const std::string& trouble = "") {
  StoreHealth health;
  health.shared = shared;
  health.reachable = reachable;
  health.name = name;
  health.trouble = trouble;
  return health;
}

class FakeStore final : public Store {
 public:
  // nodes/NAME.
  void AddNode(const std::string& name, const std::string& address, bool tls = false) {
    store::v1::StoredNode node;
    node.set_node_name(name);
    node.set_advertise_address(address);
    node.set_version("7.7.7");
    node.set_tls(tls);
    Set(absl::StrCat("nodes/", name), node.SerializeAsString());
  }
  void RemoveNode(const std::string& name) {
    MutexLock lock(&mutex_);
    values_.erase(absl::StrCat("nodes/", name));
  }
  void Set(const std::string& key, const std::string& value) {
    MutexLock lock(&mutex_);
    values_[key] = value;
  }
  void SetHealth(StoreHealth health) {
    MutexLock lock(&mutex_);
    health_ = std::move(health);
  }

  std::vector<StoredValue> List(absl::string_view prefix) const override {
    MutexLock lock(&mutex_);
    std::vector<StoredValue> found;
    for (const auto& [key, value] : values_) {
      if (absl::StartsWith(key, prefix)) found.push_back({key, value, 1});
    }
    return found;
  }
  StoreHealth Health() const override {
    MutexLock lock(&mutex_);
    return health_;
  }
  absl::StatusOr<int64_t> Put(absl::string_view, absl::string_view, std::optional<int64_t>, absl::Time) override {
    return absl::UnimplementedError("a fake");
  }
  absl::Status Delete(absl::string_view, absl::Time) override { return absl::UnimplementedError("a fake"); }
  void Announce(absl::string_view, absl::string_view) override {}
  void OnChange(Changed) override {}

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
  StoreHealth health_ ABSL_GUARDED_BY(mutex_) = MakeHealth(true, true, "fake");
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_RPC_FAKE_STORE_H_
