#include "daemon/store/memory_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/limits.h"

namespace gradgate {
namespace {

absl::Status CheckDeadline(absl::string_view key, absl::Time deadline) {
  if (absl::Now() <= deadline) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("no time left to write ", key, "; nothing was written"));
}

absl::Status CheckRevision(absl::string_view key, std::optional<int64_t> expected, int64_t present) {
  if (!expected.has_value() || *expected == present) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(key, " has revision ", present, ", not ", *expected));
}

}  // namespace

size_t ByteCount(const StoreImage& image) {
  size_t count = 0;
  for (const auto& [key, value] : image.values) count += key.size() + value.value.size();
  return count;
}

absl::StatusOr<int64_t> MemoryStore::Put(absl::string_view key, absl::string_view value,
                                         std::optional<int64_t> expected_revision, absl::Time deadline) {
  if (absl::Status s = CheckStoreKey(key); !s.ok()) return CountError(s);
  if (absl::Status s = CheckStoreValue(key, value); !s.ok()) return CountError(s);
  MutexLock writing(&writing_);
  if (absl::Status s = CheckDeadline(key, deadline); !s.ok()) return CountError(s);
  StoreImage next = Copy();
  const std::string name(key);
  const auto present = next.values.find(name);
  const int64_t revision = present == next.values.end() ? 0 : present->second.revision;
  if (absl::Status s = CheckRevision(key, expected_revision, revision); !s.ok()) return s;
  if (present != next.values.end()) next.values.erase(present);
  if (absl::Status s = CheckStoreRoom(next.values.size(), ByteCount(next), key, value); !s.ok()) return CountError(s);
  const int64_t written = ++next.revision;
  next.values[name] = {name, std::string(value), written};
  if (absl::Status s = Commit(std::move(next), name); !s.ok()) return s;
  return written;
}

absl::Status MemoryStore::Delete(absl::string_view key, absl::Time deadline) {
  if (absl::Status s = CheckStoreKey(key); !s.ok()) return CountError(s);
  MutexLock writing(&writing_);
  if (absl::Status s = CheckDeadline(key, deadline); !s.ok()) return CountError(s);
  StoreImage next = Copy();
  const std::string name(key);
  if (next.values.erase(name) == 0) return absl::OkStatus();
  ++next.revision;
  return Commit(std::move(next), name);
}

StoreImage MemoryStore::Copy() const {
  MutexLock lock(&mutex_);
  return image_;
}

absl::Status MemoryStore::Commit(StoreImage next, const std::string& key) {
  if (absl::Status s = Save(next); !s.ok()) {
    MutexLock lock(&mutex_);
    image_.revision = next.revision;  // it may be on the disk all the same: never given again
    ++error_count_;
    return s;
  }
  {
    MutexLock lock(&mutex_);
    image_ = std::move(next);
    ++change_count_;
  }
  notifier_.Add({key});
  return absl::OkStatus();
}

absl::Status MemoryStore::CountError(absl::Status status) {
  MutexLock lock(&mutex_);
  ++error_count_;
  return status;
}

std::vector<StoredValue> MemoryStore::List(absl::string_view prefix) const {
  std::vector<StoredValue> found;
  MutexLock lock(&mutex_);
  for (const auto* values : {&image_.values, &announced_}) {
    for (auto at = values->lower_bound(std::string(prefix)); at != values->end() && absl::StartsWith(at->first, prefix); ++at) {
      if (values == &announced_ || !announced_.contains(at->first)) found.push_back(at->second);
    }
  }
  std::sort(found.begin(), found.end(), [](const StoredValue& a, const StoredValue& b) { return a.key < b.key; });
  return found;
}

void MemoryStore::Announce(absl::string_view key, absl::string_view value) {
  const std::string name(key);
  {
    MutexLock lock(&mutex_);
    announced_[name] = {name, std::string(value), std::max<int64_t>(image_.revision, 1)};
    ++change_count_;
  }
  notifier_.Add({name});
}

StoreHealth MemoryStore::Health() const {
  StoreHealth health;
  health.name = "memory";
  MutexLock lock(&mutex_);
  health.key_count = static_cast<int64_t>(image_.values.size() + announced_.size());
  health.change_count = change_count_;
  health.error_count = error_count_;
  return health;
}

}  // namespace gradgate
