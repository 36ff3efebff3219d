// Collectives over TCP by Gloo's ring.
//
// Trouble on one rank reaches the others at once: a rank whose request failed, or which aborts, is destroyed or dies, closes
// its connections, and each rank that sees one close closes its own. A request that is blocked on a silent peer ends at its
// deadline, or at Abort.
//
// A request queued behind others cannot fail before these are done: give later requests later deadlines. A deadline is met to
// about a ms. Ranks that differ in the size of a request are not told apart from a broken peer, or end the process inside Gloo:
// check sizes before.
//
// Threads: one runs the collectives and calls `done`, one watches the connections, one is Gloo's. All have all signals blocked.
// No exception leaves.

#ifndef GRADGATE_SHIM_REDUCE_GLOO_GLOO_TRANSPORT_H_
#define GRADGATE_SHIM_REDUCE_GLOO_GLOO_TRANSPORT_H_

#include <cstdint>
#include <memory>

#include "shim/reduce/gloo/open_gloo.h"
#include "shim/reduce/transport.h"

namespace gradgate {

class GlooTransport final : public Transport {
 public:
  // Meets the other ranks in the store and connects to each.
  // kInvalidArgument: an option, an interface, or a rank with another world size. kDeadlineExceeded: "ranks [2, 5] did not come
  // within 3.0 s" (found out up to 50 ms late per missing rank). kUnavailable: the store, or connecting failed.
  static Status Open(const GlooOptions& options, std::unique_ptr<Transport>* transport);

  // Aborts what is not done, and returns when it is.
  ~GlooTransport() override;

  uint32_t rank() const override;
  uint32_t world_size() const override;
  Ticket Start(const AllReduceRequest& request) override;
  Status Wait(Ticket ticket, int64_t deadline_ns) override;
  // Interrupts a running collective. The request is done when Wait says so, very soon after.
  void Abort(const char* reason) override;

 private:
  class Worker;
  explicit GlooTransport(std::unique_ptr<Worker> worker);
  const std::unique_ptr<Worker> worker_;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_GLOO_GLOO_TRANSPORT_H_
