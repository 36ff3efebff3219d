// A store of this daemon alone, in memory; and what the file store is made of.
//
// Thread class: as Store. Lock order, outer first: writing_, mutex_.

#ifndef GRADGATE_DAEMON_STORE_MEMORY_STORE_H_
#define GRADGATE_DAEMON_STORE_MEMORY_STORE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "daemon/node/mutex.h"
#include "daemon/store/change_notifier.h"
#include "daemon/store/store.h"

namespace gradgate {

// All that was Put.
struct StoreImage {
  int64_t revision = 0;  // of the last change, removals included
  std::map<std::string, StoredValue> values;
};

// Bytes of keys and values.
size_t ByteCount(const StoreImage& image);

class MemoryStore : public Store {
 public:
  MemoryStore() : MemoryStore(StoreImage()) {}
  // Goes on from `image`.
  explicit MemoryStore(StoreImage image) : image_(std::move(image)) {}

  absl::StatusOr<int64_t> Put(absl::string_view key, absl::string_view value, std::optional<int64_t> expected_revision,
                              absl::Time deadline) override ABSL_LOCKS_EXCLUDED(writing_, mutex_);
  absl::Status Delete(absl::string_view key, absl::Time deadline) override ABSL_LOCKS_EXCLUDED(writing_, mutex_);
  std::vector<StoredValue> List(absl::string_view prefix) const override ABSL_LOCKS_EXCLUDED(mutex_);
  void Announce(absl::string_view key, absl::string_view value) override ABSL_LOCKS_EXCLUDED(mutex_);
  StoreHealth Health() const override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnChange(Changed changed) override { notifier_.Start(std::move(changed)); }

 protected:
  // For destructors of what derives from this: whoever is being told may be calling it.
  void StopTelling() { notifier_.Stop(); }

 private:
  // Makes `next` last, before anybody sees it. One at a time. Errors as Put's; then nothing has changed.
  virtual absl::Status Save(const StoreImage& /*next*/) { return absl::OkStatus(); }

  StoreImage Copy() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Commit(StoreImage next, const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CountError(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex writing_;  // held while a change is being saved; reads do not wait for that
  mutable Mutex mutex_;
  StoreImage image_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, StoredValue> announced_ ABSL_GUARDED_BY(mutex_);
  uint64_t change_count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t error_count_ ABSL_GUARDED_BY(mutex_) = 0;
  ChangeNotifier notifier_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_MEMORY_STORE_H_
