// A connected Gloo group: everything of Gloo that the transport uses, without exceptions. A thread watches the connections:
// when a peer's ends without Leave, all are closed.
//
// Thread class: Connect and AllReduce, one thread at a time; Interrupt, any thread after Connect.

#ifndef GRADGATE_SHIM_REDUCE_GLOO_GLOO_GROUP_H_
#define GRADGATE_SHIM_REDUCE_GLOO_GLOO_GROUP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "shim/core/status.h"
#include "shim/reduce/store.h"
#include "shim/reduce/transport.h"

namespace gradgate {

class GlooGroup {
 public:
  // Chooses the network interface (gloo_transport.h says how) and makes Gloo's thread. kInvalidArgument: the interface, naming
  // it.
  static Status Create(const std::string& interface_name, std::unique_ptr<GlooGroup>* group);

  virtual ~GlooGroup() = default;

  // Exchanges addresses under `key_prefix` and connects to all. To be called once.
  virtual Status Connect(uint32_t rank, uint32_t world_size, Store* store, const std::string& key_prefix,
                         int64_t deadline_ns) = 0;

  // `number` distinguishes the requests of a group. Gloo has no access to the memory any more when this returns.
  virtual Status AllReduce(const AllReduceRequest& request, uint64_t number) = 0;

  // Tells the peers that this rank goes in peace: its closed connections are no failure unless a request still needs them. To
  // be followed by the destructor. Returns within a second per peer.
  virtual void Leave() = 0;

  // Closes all connections; a blocked AllReduce fails. Twice is fine.
  virtual void Interrupt() = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_GLOO_GLOO_GROUP_H_
