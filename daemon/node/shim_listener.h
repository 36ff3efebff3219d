// The loop behind shim.sock: accepts trainers, checks what they send, and tells the registry who came and who went.
//
// A connection: accepted --Hello--> registered --Goodbye or end of file--> gone; any garbage, a second Hello, or no Hello in
// time ends it. Nothing here waits for a client: a hostile one is dropped and no other notices. While the bin of descriptors
// is full, sockets are left alone: connected trainers are counted on, new ones wait.
//
// Thread class: Run() on one thread; Stop() from any thread, once or more; the rest before Run(). The callbacks run on Run()'s
// thread, with no lock held, and must not block.

#ifndef GRADGATE_DAEMON_NODE_SHIM_LISTENER_H_
#define GRADGATE_DAEMON_NODE_SHIM_LISTENER_H_

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/node/clock.h"
#include "daemon/node/descriptor_bin.h"
#include "daemon/node/policy_source.h"
#include "daemon/node/registry.h"
#include "daemon/node/rejection.h"
#include "daemon/node/shim_client.h"
#include "daemon/node/socket_file.h"
#include "daemon/node/unique_fd.h"

namespace gradgate {

struct ListenerOptions {
  std::string socket_path = "";
  std::string version = "";
  size_t max_clients = 256;           // connections, registered or not
  size_t max_clients_per_user = 192;  // of which one user may have so many
  absl::Duration hello_timeout = absl::Seconds(5);
  absl::Duration poll_interval = absl::Milliseconds(100);
  std::function<void(uint64_t monotonic_ns)> alive = [](auto) {};  // at each tick, on Run()'s thread; must not block
};

struct ListenerCallbacks {
  std::function<void()> changed = [] {};                     // the registry may have something new for a watcher
  std::function<void(absl::string_view)> log = [](auto) {};  // one line for a person; at most some 20 a second
};

class ShimListener {
 public:
  // Binds the socket (mode 0666). Neither pointer is owned; both outlive this. Errors as ListeningSocket::Listen.
  static absl::StatusOr<std::unique_ptr<ShimListener>> Create(const ListenerOptions& options, const Clock* clock,
                                                              Registry* registry, RejectionCounts* rejections,
                                                              ListenerCallbacks callbacks);
  ShimListener(const ShimListener&) = delete;
  ShimListener& operator=(const ShimListener&) = delete;
  ~ShimListener();

  // Trainers are offered what it has for them; not owned, outlives this.
  void Offer(const PolicySource* policies) { policies_ = policies; }

  // Serves until Stop(). Connections are closed when this object goes, so that trainers try again elsewhere.
  void Run();
  void Stop();

 private:
  using Clients = std::map<uint64_t, ShimClient>;

  ShimListener(ListeningSocket socket, const ListenerOptions& options, const Clock* clock, Registry* registry,
               RejectionCounts* rejections, ListenerCallbacks callbacks);
  absl::Status SetUp();

  int Wait(epoll_event* events, int max_count);
  void Accept();
  // OK, or why this socket cannot become a client.
  absl::Status CheckLimits(uint32_t user_id) const;
  void PauseAccepting(bool pause);
  void Tick();
  void OfferPolicies();
  bool OfferPolicy(ShimClient& client);
  void HandleReadable(uint64_t id);
  // Returns false when the client is to be dropped.
  bool HandlePacket(uint64_t id, ShimClient& client, Packet& packet);
  bool HandleHello(uint64_t id, ShimClient& client, const Packet& packet);
  absl::Status CheckDescriptors(const Packet& packet, bool is_hello) const;
  bool DropWith(const ShimClient& client, const absl::Status& why);
  void Forget(uint64_t id, Ending ending);
  void Log(absl::string_view line);

  const ListenerOptions options_;
  const Clock* const clock_;
  Registry* const registry_;
  RejectionCounts* const rejections_;
  const ListenerCallbacks callbacks_;
  const PolicySource* policies_ = nullptr;

  ListeningSocket socket_;
  UniqueFd epoll_;
  UniqueFd timer_;
  UniqueFd stop_;
  DescriptorBin bin_;
  Clients clients_;  // by event id
  uint64_t next_id_;
  bool stopping_ = false;
  bool accept_paused_ = false;
  int log_budget_;
  absl::Time log_refill_ = absl::InfinitePast();
  uint64_t told_generation_ = 0;
  uint64_t offered_generation_ = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_SHIM_LISTENER_H_
