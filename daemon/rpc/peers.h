// The other daemons of the common store, and asking all of them one question at once.
//
// Who they are is read from the store's copy (nodes/…) at each question; a channel to each is opened when it is first asked and
// kept until it leaves the store. A daemon presents its own certificate, as it does to its callers.
//
//   asked --(an answer, an error, the deadline, Cancel) of each--> done, once
//
// Nothing blocks and no thread waits: answers come on gRPC's threads. All calls of a question have one deadline. One that did
// not keep it is given less (kBriefly) for some seconds, so that a node that hangs does not slow every question. At most
// `max_calls` calls are under way and `max_total_bytes` of answers are kept; those beyond are told so as if they had not
// answered.
//
// Thread class: any thread. One lock, a leaf; `done` is called with none held, on the caller's thread where there is nobody to
// ask.

#ifndef GRADGATE_DAEMON_RPC_PEERS_H_
#define GRADGATE_DAEMON_RPC_PEERS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client_options.h"
#include "daemon/store/store.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message.h"
#include "gradgate/store/v1/store.pb.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate {

struct PeersOptions {
  std::string node_name = "";  // of this daemon, which is not asked; empty: it has none
  std::string address = "";    // where it serves TCP; empty: nowhere
  client::TlsFiles tls = {};   // its own certificate
  size_t max_calls = 2048;     // under way, of all questions
  size_t max_answer_bytes = size_t{16} << 20;
  size_t max_total_bytes = size_t{48} << 20;  // of all answers to one question
};

// What one daemon said. `answer`: NOT_FOUND and the other codes of the service are its own answer; then node.answered is true
// all the same. UNAVAILABLE (cannot be reached), DEADLINE_EXCEEDED, UNIMPLEMENTED (another version), RESOURCE_EXHAUSTED (too
// large, too many calls), DATA_LOSS (garbage) and CANCELLED mean that it did not answer; node.error says which, for people.
// Text in `node` is printable; the messages of `answer` are the peer's own and untrusted.
template <typename Response>
struct PeerAnswer {
  v1::NodeAnswer node;
  absl::StatusOr<Response> answer;
};

// One question under way. Any thread.
class Asking {
 public:
  virtual ~Asking() = default;
  // Ends its calls; `done` comes all the same, soon. Twice is fine, and after `done`.
  virtual void Cancel() = 0;
};

class Peers {
 public:
  // How long a caller's question may take here, and how much of its own time is kept for the answer.
  static constexpr absl::Duration kMaxWait = absl::Seconds(2);
  static constexpr absl::Duration kBriefly = absl::Milliseconds(300);
  static constexpr absl::Duration kBrieflyFor = absl::Seconds(10);

  // `store` may be null and is not owned; it outlives this.
  static std::unique_ptr<Peers> Create(const Store* store, const PeersOptions& options);
  // Cancels what is under way and waits until each `done` has returned; so not from a `done`.
  virtual ~Peers() = default;

  virtual const PeersOptions& options() const = 0;

  // The other daemons as the store has them, by name. Entries that are not valid are left out.
  virtual std::vector<store::v1::StoredNode> Known() const = 0;

  // What the caller's answer is to say of this daemon itself: answered, with a note where there is no common store.
  virtual v1::NodeAnswer Self() const = 0;

  // When the others must have answered a caller who waits until `caller_deadline`.
  static absl::Time DeadlineFor(absl::Time caller_deadline, absl::Time now);

  // Asks each of the others, or those in `only`, with scope NODE whatever `request` says. `done` has an answer for each, by
  // name.
  //   peers.AskAll<v1::GetJobStatsResponse>("/gradgate.v1.SyncStatsService/GetJobStats", request, deadline, done)
  template <typename Response, typename Request>
  std::shared_ptr<Asking> AskAll(absl::string_view method, Request request, absl::Time deadline,
                                 std::function<void(std::vector<PeerAnswer<Response>>)> done,
                                 const std::optional<absl::flat_hash_set<std::string>>& only = std::nullopt) {
    request.set_scope(v1::SCOPE_NODE);
    const auto parse = [](google::protobuf::io::ZeroCopyInputStream* bytes) -> std::unique_ptr<google::protobuf::Message> {
      auto response = std::make_unique<Response>();
      return response->ParseFromZeroCopyStream(bytes) ? std::move(response) : nullptr;
    };
    return Ask(method, request.SerializeAsString(), deadline, only, parse, [done = std::move(done)](std::vector<Raw> raw) {
      std::vector<PeerAnswer<Response>> answers;
      answers.reserve(raw.size());
      for (Raw& one : raw) {
        if (one.status.ok()) {
          answers.push_back({std::move(one.node), std::move(static_cast<Response&>(*one.response))});
        } else {
          answers.push_back({std::move(one.node), one.status});
        }
      }
      done(std::move(answers));
    });
  }

 protected:
  struct Raw {
    v1::NodeAnswer node;
    absl::Status status;
    std::unique_ptr<google::protobuf::Message> response;  // set if OK
  };
  using Parse = std::function<std::unique_ptr<google::protobuf::Message>(google::protobuf::io::ZeroCopyInputStream*)>;
  using RawDone = std::function<void(std::vector<Raw>)>;
  virtual std::shared_ptr<Asking> Ask(absl::string_view method, std::string request, absl::Time deadline,
                                      const std::optional<absl::flat_hash_set<std::string>>& only, Parse parse,
                                      RawDone done) = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_PEERS_H_
