// The other daemons of the common store, and the way to each: what the store says is checked, a channel is kept, and who was
// silent is remembered.
//
//   known --WayTo()--> channel --Silent()--> asked briefly for a while, by a new channel --Answered()--> channel
//
// Thread class: any thread; one lock, a leaf.

#ifndef GRADGATE_DAEMON_RPC_PEER_BOOK_H_
#define GRADGATE_DAEMON_RPC_PEER_BOOK_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/client_options.h"
#include "daemon/node/mutex.h"
#include "daemon/store/store.h"
#include "gradgate/store/v1/store.pb.h"
#include "grpcpp/channel.h"

namespace gradgate {

// What a key under nodes/ holds, unless no daemon can have written it: key and name differ, or text that is long or not
// printable.
std::optional<store::v1::StoredNode> ParseStoredNode(const StoredValue& entry_untrusted);

class PeerBook {
 public:
  PeerBook(const client::TlsFiles& tls, size_t max_answer_bytes) : tls_(tls), max_answer_bytes_(max_answer_bytes) {}

  struct Way {
    std::shared_ptr<grpc::Channel> channel;  // lazily connecting; null: none, and `trouble` says why
    absl::Status trouble;                    // for people
    bool briefly = false;                    // it was silent not long ago
  };
  // Beyond this machine always by TLS, whatever the store says.
  Way WayTo(const store::v1::StoredNode& node, absl::Time now);

  // What became of a call on `channel`. Those of a channel that is no longer in use change nothing.
  void Answered(const std::string& node_name, const grpc::Channel* channel);
  // The next call opens a new channel, since this one may lead nowhere. Calls are brief until `brief_until`.
  void Silent(const std::string& node_name, const grpc::Channel* channel, absl::Time brief_until);

  // Forgets all others.
  void KeepOnly(const std::vector<store::v1::StoredNode>& nodes);

 private:
  struct Entry {
    std::string address;
    bool tls = false;
    std::shared_ptr<grpc::Channel> channel;
    absl::Time brief_until = absl::InfinitePast();
  };

  absl::StatusOr<std::shared_ptr<grpc::Channel>> Open(const Entry& entry) const;

  const client::TlsFiles tls_;
  const size_t max_answer_bytes_;
  Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by node name
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_PEER_BOOK_H_
