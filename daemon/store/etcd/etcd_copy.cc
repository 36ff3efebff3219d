#include "daemon/store/etcd/etcd_copy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "daemon/store/limits.h"

namespace gradgate {
namespace {

constexpr int32_t kRemovedEvent = 1;

bool Fits(size_t key_count, size_t byte_count, const std::string& key, const std::string& value) {
  return CheckStoreValue(key, value).ok() && CheckStoreRoom(key_count, byte_count, key, value).ok();
}

}  // namespace

std::string EtcdCopy::OwnKey(const std::string& key_untrusted) const {
  if (!absl::StartsWith(key_untrusted, prefix_)) return "";
  std::string key = key_untrusted.substr(prefix_.size());
  return CheckStoreKey(key).ok() ? key : "";
}

void EtcdCopy::Read(const etcdserverpb::KeyValue& pair_untrusted) {
  const std::string key = OwnKey(pair_untrusted.key());
  if (key.empty() || pair_untrusted.mod_revision() < 1 ||
      !Fits(reading_.entries.size(), reading_.byte_count, key, pair_untrusted.value())) {
    ++reading_.left_out_count;
    return;
  }
  reading_.byte_count += key.size() + pair_untrusted.value().size();
  reading_.entries[key] = {pair_untrusted.value(), pair_untrusted.mod_revision(), pair_untrusted.lease()};
}

std::vector<std::string> EtcdCopy::Finish(int64_t revision, uint64_t cluster_id) {
  const bool is_other = revision_ > 0 && (revision < revision_ || cluster_id != cluster_id_);
  if (is_other) {
    ++reset_count_;
    lost_revision_ = std::max(lost_revision_, revision_);
    removed_ahead_.clear();
  } else {
    // Own writes since the reading.
    for (auto& [key, entry] : entries_) {
      if (entry.revision > revision) reading_.entries.insert_or_assign(key, entry);
    }
    for (const auto& [key, removal] : removed_ahead_) {
      if (removal > revision) reading_.entries.erase(key);
    }
  }
  std::vector<std::string> changed;
  for (const auto& [key, entry] : reading_.entries) {
    const Entry* known = Find(key);
    if (known == nullptr || known->revision != entry.revision || known->value != entry.value) changed.push_back(key);
  }
  for (const auto& [key, entry] : entries_) {
    if (!reading_.entries.contains(key)) changed.push_back(key);
  }
  entries_ = std::move(reading_.entries);
  byte_count_ = 0;
  for (const auto& [key, entry] : entries_) byte_count_ += key.size() + entry.value.size();
  left_out_count_ = reading_.left_out_count;
  dropped_count_ += reading_.left_out_count;
  change_count_ += changed.size();
  cluster_id_ = cluster_id;
  revision_ = 0;  // it may go back
  NoteRevision(revision);
  Begin();
  return changed;
}

std::vector<std::string> EtcdCopy::Apply(const etcdserverpb::WatchResponse& response_untrusted) {
  std::vector<std::string> changed;
  int64_t newest = revision_;
  for (const etcdserverpb::Event& event : response_untrusted.events()) {
    const etcdserverpb::KeyValue& pair = event.kv();
    const int64_t revision = pair.mod_revision();
    if (revision <= revision_) continue;  // known
    newest = std::max(newest, revision);
    const std::string key = OwnKey(pair.key());
    const Entry* known = Find(key);
    const auto removed = removed_ahead_.find(key);
    if ((known != nullptr && known->revision >= revision) || (removed != removed_ahead_.end() && removed->second >= revision))
      continue;
    const size_t others = key.empty() ? 0 : entries_.size() - (known != nullptr ? 1 : 0);
    const size_t bytes = byte_count_ - (known != nullptr ? key.size() + known->value.size() : 0);
    if (event.type() == kRemovedEvent) {
      if (Erase(key)) changed.push_back(key);
    } else if (key.empty() || !Fits(others, bytes, key, pair.value())) {
      ++left_out_count_;
      ++dropped_count_;
      if (Erase(key)) changed.push_back(key);  // its former value is no longer true
    } else {
      Set(key, {pair.value(), revision, pair.lease()});
      changed.push_back(key);
    }
  }
  change_count_ += changed.size();
  // The rest of the newest revision may come with the next piece.
  NoteRevision(response_untrusted.fragment() && newest > revision_ ? newest - 1 : newest);
  return changed;
}

bool EtcdCopy::Wrote(absl::string_view key, absl::string_view value, int64_t revision, int64_t lease) {
  const Entry* known = Find(key);
  if (revision <= revision_ || (known != nullptr && known->revision >= revision)) return false;
  Set(std::string(key), {std::string(value), revision, lease});
  removed_ahead_.erase(std::string(key));
  ++change_count_;
  return true;
}

bool EtcdCopy::Removed(absl::string_view key, int64_t revision) {
  const Entry* known = Find(key);
  if (revision <= revision_ || (known != nullptr && known->revision >= revision)) return false;
  removed_ahead_[std::string(key)] = revision;
  if (!Erase(std::string(key))) return false;
  ++change_count_;
  return true;
}

const EtcdCopy::Entry* EtcdCopy::Find(absl::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<StoredValue> EtcdCopy::List(absl::string_view prefix) const {
  std::vector<StoredValue> found;
  for (auto at = entries_.lower_bound(prefix); at != entries_.end() && absl::StartsWith(at->first, prefix); ++at) {
    found.push_back({at->first, at->second.value, at->second.revision});
  }
  return found;
}

void EtcdCopy::Set(const std::string& key, Entry entry) {
  Erase(key);
  byte_count_ += key.size() + entry.value.size();
  entries_[key] = std::move(entry);
}

bool EtcdCopy::Erase(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  byte_count_ -= key.size() + found->second.value.size();
  entries_.erase(found);
  return true;
}

void EtcdCopy::NoteRevision(int64_t revision) {
  revision_ = revision;
  if (revision_ > lost_revision_) lost_revision_ = 0;
  for (auto at = removed_ahead_.begin(); at != removed_ahead_.end();) {
    at = at->second <= revision_ ? removed_ahead_.erase(at) : std::next(at);
  }
}

}  // namespace gradgate
