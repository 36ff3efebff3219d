// Transports for tests: the ranks of one group as objects of one process.
//
// A request runs on the hub's thread when every rank has started it: reduced in rank order 0…W−1, the same bytes to all.
// Trouble of any kind ends the whole group at once:
//
//   what happened                                    status of that rank          status of the others
//   a request's deadline passed                      kDeadlineExceeded            kUnavailable
//   ranks differ in count, dtype or op               kInternal, naming the ranks  the same
//   Kill(rank)                                       kUnavailable                 kUnavailable
//   Abort, or the handle of Open destroyed           kAborted                     kUnavailable
//
// Data of a failed request is as the caller left it.
// Thread class: the hub, any thread; a transport as in transport.h.

#ifndef GRADGATE_SHIM_REDUCE_IN_PROCESS_TRANSPORT_H_
#define GRADGATE_SHIM_REDUCE_IN_PROCESS_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "shim/reduce/transport.h"

namespace gradgate {

struct InProcessCount {
  uint64_t request_count = 0;
  uint64_t byte_count = 0;
};

class InProcessHub {
 public:
  // On the hub's thread, no lock held, when all ranks have started the n-th request (from 1), before it is reduced. It may
  // block, and may call the hub: after Kill the request fails.
  using Hook = std::function<void(uint64_t number)>;

  explicit InProcessHub(uint32_t world_size);  // ≥ 1
  // Fails what is pending with kAborted, calls its `done`, joins the thread. Every transport of the hub must be out of use.
  ~InProcessHub();

  // The rank's transport, owned by the hub. rank < world_size.
  Transport* transport(uint32_t rank);

  // The same transport behind an object of its own. Destroying it is the rank's leaving: what is pending has failed when the
  // destructor returns. The last use of that rank.
  std::unique_ptr<Transport> Open(uint32_t rank);

  void Kill(uint32_t rank);

  // null: none. Before the first Start.
  void SetHook(Hook hook);

  // What this rank completed without an error.
  InProcessCount count(uint32_t rank, DType dtype, ReduceOp op) const;

 private:
  class State;
  class Rank;
  class Handle;
  const std::unique_ptr<State> state_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_IN_PROCESS_TRANSPORT_H_
