#include "daemon/store/etcd/etcd_state.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/store/limits.h"

namespace gradgate {
namespace {

constexpr absl::Duration kWorthTelling = absl::Seconds(3);

std::string Seconds(absl::Duration duration) { return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1))); }

}  // namespace

std::vector<StoredValue> EtcdState::List(absl::string_view prefix) const {
  MutexLock lock(&mutex_);
  return copy_.List(prefix);
}

std::optional<EtcdCopy::Entry> EtcdState::Find(absl::string_view key) const {
  MutexLock lock(&mutex_);
  const EtcdCopy::Entry* entry = copy_.Find(key);
  return entry == nullptr ? std::nullopt : std::optional<EtcdCopy::Entry>(*entry);
}

int64_t EtcdState::revision() const {
  MutexLock lock(&mutex_);
  return copy_.revision();
}

absl::Status EtcdState::CheckRoom(absl::string_view key, absl::string_view value) const {
  MutexLock lock(&mutex_);
  if (copy_.Find(key) != nullptr) return absl::OkStatus();
  return CheckStoreRoom(copy_.key_count(), copy_.byte_count(), key, value);
}

bool EtcdState::Announce(absl::string_view key, absl::string_view value) {
  MutexLock lock(&mutex_);
  const auto [kept, is_new] = announced_.emplace(key, value);
  if (!is_new && kept->second == value) return false;
  kept->second = std::string(value);
  announce_status_ = absl::UnavailableError("not announced yet");
  return true;
}

std::map<std::string, std::string> EtcdState::announced() const {
  MutexLock lock(&mutex_);
  return announced_;
}

void EtcdState::SetAnnounceStatus(const std::map<std::string, std::string>& announced, absl::Status status) {
  MutexLock lock(&mutex_);
  if (announced_ == announced) announce_status_ = std::move(status);
}

absl::Status EtcdState::AnnounceStatus() const {
  MutexLock lock(&mutex_);
  return announce_status_;
}

void EtcdState::SetReachable(absl::Time now) {
  std::string line;
  {
    MutexLock lock(&mutex_);
    const absl::Duration outage = trouble_since_ == absl::InfinitePast() ? absl::ZeroDuration() : now - trouble_since_;
    if (outage >= kWorthTelling) line = absl::StrCat(name_, " answers, after ", Seconds(outage));
    reachable_ = ever_reached_ = true;
    told_ = false;
    trouble_.clear();
    trouble_since_ = absl::InfinitePast();
  }
  Tell(line);
}

void EtcdState::SetTrouble(const absl::Status& status, absl::Time now) {
  std::string line;
  {
    MutexLock lock(&mutex_);
    reachable_ = false;
    trouble_ = std::string(status.message());
    if (trouble_since_ == absl::InfinitePast()) trouble_since_ = now;
    ++error_count_;
    if (!announced_.empty() && !absl::IsAlreadyExists(announce_status_)) announce_status_ = absl::UnavailableError(trouble_);
    if (ever_reached_ && !told_ && now - trouble_since_ >= kWorthTelling) {
      told_ = true;
      line = absl::StrCat(name_, " has not answered for ", Seconds(now - trouble_since_), ": ",
                          absl::Utf8SafeCHexEscape(trouble_), "; jobs go on, no policy can be changed until it does");
    }
  }
  Tell(line);
}

void EtcdState::Tell(const std::string& line) const {
  if (log_ && !line.empty()) log_(line);
}

void EtcdState::CountError() {
  MutexLock lock(&mutex_);
  ++error_count_;
}

StoreHealth EtcdState::Health() const {
  MutexLock lock(&mutex_);
  StoreHealth health;
  health.shared = true;
  health.reachable = reachable_;
  health.name = name_;
  if (!reachable_) {
    if (trouble_since_ != absl::InfinitePast()) health.unreachable_since = trouble_since_;
    health.trouble =
        trouble_since_ == absl::InfinitePast()
            ? trouble_
            : absl::StrCat(trouble_, " (since ", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", trouble_since_, absl::UTCTimeZone()),
                           "; what was known then is still used)");
  }
  health.warning = Warning();
  health.key_count = static_cast<int64_t>(copy_.key_count());
  health.change_count = copy_.change_count();
  health.error_count = error_count_;
  health.dropped_count = copy_.dropped_count();
  return health;
}

std::string EtcdState::Warning() const {
  std::string text;
  const auto add = [&text](absl::string_view warning) { absl::StrAppend(&text, text.empty() ? "" : "; ", warning); };
  if (copy_.lost_revision() != 0) {
    add(absl::StrCat("etcd was emptied, or restored from an older copy: its revision went back from ", copy_.lost_revision(),
                     " to ", copy_.revision(), ", and policies that were set in between are gone"));
  }
  if (copy_.left_out_count() != 0) {
    add(absl::StrCat(copy_.left_out_count(),
                     " values under the prefix are left out: too long, too many, or with keys that are no text"));
  }
  if (absl::IsAlreadyExists(announce_status_) || absl::IsPermissionDenied(announce_status_)) add(announce_status_.message());
  return text;
}

}  // namespace gradgate
