#include "daemon/rpc/peer_book.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client/channel.h"
#include "client/target.h"
#include "daemon/node/text_check.h"

namespace gradgate {

using store::v1::StoredNode;

std::optional<StoredNode> ParseStoredNode(const StoredValue& entry_untrusted) {
  constexpr size_t kMaxBytes = 255;
  const auto fits = [](const std::string& text) { return text.size() <= kMaxBytes && IsPrintableUtf8(text); };
  StoredNode node;
  if (!node.ParseFromString(entry_untrusted.value)) return std::nullopt;
  if (node.node_name().empty() || entry_untrusted.key != absl::StrCat(kNodesPrefix, node.node_name())) return std::nullopt;
  if (!fits(node.node_name()) || !fits(node.advertise_address()) || !fits(node.version())) return std::nullopt;
  return node;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> PeerBook::Open(const Entry& entry) const {
  if (entry.address.empty()) {
    return absl::UnavailableError("announces no address where it could be asked; start it with --grpc_listen=HOST:PORT");
  }
  const absl::StatusOr<client::Target> target = client::ParseTarget(entry.address);
  if (!target.ok() || target->kind != client::Target::Kind::kTcp) {
    return absl::UnavailableError("announces an address that is not HOST:PORT");
  }
  const bool plain = target->loopback && !entry.tls;
  if (!plain && tls_.empty()) {
    return absl::UnavailableError("is asked by TLS, for which this daemon has no certificate (--tls_cert)");
  }
  const int max_bytes = static_cast<int>(std::min<size_t>(max_answer_bytes_, INT32_MAX));
  auto channel = client::OpenChannel(*target, plain ? client::TlsFiles{} : tls_, max_bytes);
  if (!channel.ok()) return absl::UnavailableError(channel.status().message());
  return channel;
}

PeerBook::Way PeerBook::WayTo(const StoredNode& node, absl::Time now) {
  Entry copy;
  {
    MutexLock lock(&mutex_);
    Entry& entry = entries_[node.node_name()];
    if (entry.address != node.advertise_address() || entry.tls != node.tls()) {
      entry = Entry{node.advertise_address(), node.tls(), nullptr, absl::InfinitePast()};
    }
    copy = entry;
  }
  Way way;
  way.briefly = now < copy.brief_until;
  way.channel = copy.channel;
  if (way.channel != nullptr) return way;
  auto opened = Open(copy);  // reads files: without the lock
  if (!opened.ok()) {
    way.trouble = opened.status();
    return way;
  }
  way.channel = *std::move(opened);
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(node.node_name());
  if (entry == entries_.end() || entry->second.address != copy.address || entry->second.tls != copy.tls) return way;
  if (entry->second.channel == nullptr) entry->second.channel = way.channel;
  way.channel = entry->second.channel;  // another question may have been quicker
  return way;
}

void PeerBook::Answered(const std::string& node_name, const grpc::Channel* channel) {
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(node_name);
  if (entry != entries_.end() && entry->second.channel.get() == channel) entry->second.brief_until = absl::InfinitePast();
}

void PeerBook::Silent(const std::string& node_name, const grpc::Channel* channel, absl::Time brief_until) {
  std::shared_ptr<grpc::Channel> dropped;  // let go without the lock
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(node_name);
  if (entry == entries_.end() || entry->second.channel.get() != channel) return;
  entry->second.brief_until = std::max(entry->second.brief_until, brief_until);
  dropped = std::exchange(entry->second.channel, nullptr);
}

void PeerBook::KeepOnly(const std::vector<StoredNode>& nodes) {
  absl::flat_hash_set<absl::string_view> names;
  for (const StoredNode& node : nodes) names.insert(node.node_name());
  std::vector<Entry> dropped;  // let go without the lock
  MutexLock lock(&mutex_);
  for (auto at = entries_.begin(); at != entries_.end();) {
    if (names.contains(at->first)) {
      ++at;
    } else {
      dropped.push_back(std::move(at->second));
      at = entries_.erase(at);
    }
  }
}

}  // namespace gradgate
