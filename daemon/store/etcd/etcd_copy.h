// The copy of what lies under the prefix, and the rules by which it follows etcd. Pure.
//
// It is read as a whole at one revision (Begin, Read…, Finish), and then follows a watch from the next one on (Apply). Own
// writes are taken in at once (Wrote, Removed), ahead of the watch, which later brings them again. What is older than what is
// known is ignored.
//
// Everything that comes from etcd may have been written by anybody: keys outside the prefix, that are no text, or beyond
// limits.h are left out and counted.
//
// Thread class: one thread at a time.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ETCD_COPY_H_
#define GRADGATE_DAEMON_STORE_ETCD_ETCD_COPY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/store/store.h"
#include "etcdserverpb/etcd.pb.h"

namespace gradgate {

class EtcdCopy {
 public:
  explicit EtcdCopy(std::string prefix) : prefix_(std::move(prefix)) {}

  struct Entry {
    std::string value;
    int64_t revision = 0;
    int64_t lease = 0;
  };

  // A whole reading. What was begun and not finished leaves no trace.
  void Begin() { reading_ = Reading(); }
  void Read(const etcdserverpb::KeyValue& pair_untrusted);
  // There is one whose value is too long to be read.
  void ReadTooLong() { ++reading_.left_out_count; }
  // It was of `revision`. Returns the keys that have changed.
  std::vector<std::string> Finish(int64_t revision, uint64_t cluster_id);

  // Takes in changes. Returns the keys that have changed.
  std::vector<std::string> Apply(const etcdserverpb::WatchResponse& response_untrusted);

  // This store's own, with the revision that etcd gave it. False if something newer is known.
  bool Wrote(absl::string_view key, absl::string_view value, int64_t revision, int64_t lease);
  bool Removed(absl::string_view key, int64_t revision);

  const Entry* Find(absl::string_view key) const;
  std::vector<StoredValue> List(absl::string_view prefix) const;

  int64_t revision() const { return revision_; }  // all changes up to it are known
  size_t key_count() const { return entries_.size(); }
  size_t byte_count() const { return byte_count_; }
  uint64_t change_count() const { return change_count_; }
  uint64_t dropped_count() const { return dropped_count_; }
  uint64_t left_out_count() const { return left_out_count_; }  // since the last whole reading
  // The highest revision that etcd had before it went back, while it has not come beyond that; 0: it never went back.
  int64_t lost_revision() const { return lost_revision_; }
  // It is another cluster than before, or went back, ever.
  uint64_t reset_count() const { return reset_count_; }

 private:
  struct Reading {
    std::map<std::string, Entry, std::less<>> entries;
    size_t byte_count = 0;
    uint64_t left_out_count = 0;
  };

  // The key without the prefix; empty if it is not for us.
  std::string OwnKey(const std::string& key_untrusted) const;
  void Set(const std::string& key, Entry entry);
  bool Erase(const std::string& key);
  void NoteRevision(int64_t revision);

  const std::string prefix_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, int64_t, std::less<>> removed_ahead_;  // own removals that the watch has not brought yet
  size_t byte_count_ = 0;
  int64_t revision_ = 0;
  uint64_t cluster_id_ = 0;
  int64_t lost_revision_ = 0;
  uint64_t reset_count_ = 0;
  uint64_t change_count_ = 0;
  uint64_t dropped_count_ = 0;
  uint64_t left_out_count_ = 0;
  Reading reading_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ETCD_COPY_H_
