#include "daemon/rpc/connection_table.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace gradgate {

ConnectionTable::ConnectionTable(size_t max_count, InodeOf inode_of)
    : max_count_(max_count), max_per_peer_(max_count - max_count / 4), inode_of_(std::move(inode_of)) {}

ino_t ConnectionTable::FileInode(int fd) {
  struct stat file;
  return fstat(fd, &file) == 0 ? file.st_ino : 0;
}

void ConnectionTable::Forget(std::map<int, Entry>::iterator at) {
  const auto count = of_peer_.find(at->second.peer.name);
  if (--count->second == 0) of_peer_.erase(count);
  open_.erase(at);
}

void ConnectionTable::Sweep() {
  since_sweep_ = 0;
  for (auto at = open_.begin(); at != open_.end();) {
    const auto next = std::next(at);
    if (inode_of_(at->first) != at->second.inode) Forget(at);
    at = next;
  }
}

size_t ConnectionTable::CountOf(const std::string& peer) const {
  const auto count = of_peer_.find(peer);
  return count == of_peer_.end() ? 0 : count->second;
}

absl::Status ConnectionTable::Admit(int fd, Peer peer) {
  const ino_t inode = inode_of_(fd);
  MutexLock lock(&mutex_);
  if (const auto former = open_.find(fd); former != open_.end()) Forget(former);  // its number is in use again
  const auto full = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return open_.size() >= max_count_ || CountOf(peer.name) >= max_per_peer_;
  };
  if (++since_sweep_ >= kSweepEvery || full()) Sweep();
  if (full()) {
    ++refused_count_;
    return absl::ResourceExhaustedError(absl::StrCat("a connection of ", peer.name, " was refused: it has ", CountOf(peer.name),
                                                     " of ", open_.size(), "; raise --max_connections"));
  }
  ++of_peer_[peer.name];
  open_.insert_or_assign(fd, Entry{inode, std::move(peer)});
  return absl::OkStatus();
}

std::optional<uint32_t> ConnectionTable::UidOf(const std::string& grpc_peer) {
  absl::string_view number = grpc_peer;
  int fd;
  if (!absl::ConsumePrefix(&number, "fd:") || !absl::SimpleAtoi(number, &fd)) return std::nullopt;
  MutexLock lock(&mutex_);
  const auto at = open_.find(fd);
  if (at == open_.end() || inode_of_(fd) != at->second.inode) return std::nullopt;
  return at->second.peer.uid;
}

size_t ConnectionTable::Count() {
  MutexLock lock(&mutex_);
  Sweep();
  return open_.size();
}

uint64_t ConnectionTable::refused_count() {
  MutexLock lock(&mutex_);
  return refused_count_;
}

}  // namespace gradgate
