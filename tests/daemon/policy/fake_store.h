// A store that does what a test says: late copies, errors, foreign values. Reads show `copy`, writes go where the test can see
// them.
//
// Thread class: any thread; the fields are the test's to set while nobody else is in.

#ifndef GRADGATE_TESTS_DAEMON_POLICY_FAKE_STORE_H_
#define GRADGATE_TESTS_DAEMON_POLICY_FAKE_STORE_H_

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/mutex.h"
#include "daemon/store/store.h"

namespace gradgate::testing {

class FakeStore final : public Store {
 public:
  absl::StatusOr<int64_t> Put(absl::string_view key, absl::string_view value, std::optional<int64_t> expected_revision,
                              absl::Time deadline) override {
    ++put_count;
    while (hang && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    MutexLock lock(&mutex_);
    if (hang) return absl::DeadlineExceededError("the store does not answer");
    // One of its own: what counts the users of a shared one is not instrumented, and reads to a sanitizer as a race.
    if (!fail_.ok()) return absl::Status(fail_.code(), fail_.message());
    const auto at = values_.find(std::string(key));
    const int64_t present = at == values_.end() ? 0 : at->second.revision;
    if (expected_revision && *expected_revision != present) {
      return absl::AbortedError(absl::StrCat("its revision is ", present));
    }
    values_[std::string(key)] = {std::string(key), std::string(value), ++revision};
    if (!late) copy_ = values_;
    return revision;
  }

  absl::Status Delete(absl::string_view key, absl::Time) override {
    MutexLock lock(&mutex_);
    values_.erase(std::string(key));
    if (!late) copy_ = values_;
    return absl::OkStatus();
  }

  std::vector<StoredValue> List(absl::string_view prefix) const override {
    MutexLock lock(&mutex_);
    std::vector<StoredValue> out;
    for (const auto& [key, value] : copy_) {
      if (absl::StartsWith(key, prefix)) out.push_back(value);
    }
    return out;
  }

  void Announce(absl::string_view, absl::string_view) override {}
  StoreHealth Health() const override {
    StoreHealth health;
    health.name = "fake";
    return health;
  }
  void OnChange(Changed) override {}

  // What somebody else has written.
  void Write(const std::string& key, const std::string& value, int64_t at_revision) {
    MutexLock lock(&mutex_);
    values_[key] = {key, value, at_revision};
    revision = std::max(revision, at_revision);
    if (!late) copy_ = values_;
  }
  // From now on, unless OK.
  void Fail(absl::Status status) {
    MutexLock lock(&mutex_);
    fail_ = std::move(status);
  }
  // The copy sees what was written.
  void CatchUp() {
    MutexLock lock(&mutex_);
    copy_ = values_;
  }
  void Empty() {
    MutexLock lock(&mutex_);
    values_.clear();
    copy_.clear();
    revision = 0;
  }

  std::atomic<bool> late = false;  // the copy does not follow by itself; as `hang`
  std::atomic<bool> hang = false;  // any thread's to set
  int64_t revision = 0;
  std::atomic<int> put_count = 0;  // begun

 private:
  mutable Mutex mutex_;
  absl::Status fail_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, StoredValue> values_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, StoredValue> copy_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_DAEMON_POLICY_FAKE_STORE_H_
