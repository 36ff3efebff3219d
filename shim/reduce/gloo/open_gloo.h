// Opens a transport over Gloo (gloo_transport.h), or says that this library was built without.

#ifndef GRADGATE_SHIM_REDUCE_GLOO_OPEN_GLOO_H_
#define GRADGATE_SHIM_REDUCE_GLOO_OPEN_GLOO_H_

#include <cstdint>
#include <memory>
#include <string>

#include "shim/core/status.h"
#include "shim/reduce/store.h"
#include "shim/reduce/transport.h"

namespace gradgate {

struct GlooOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  Store* store = nullptr;  // during Open only; unused with one rank
  // Empty: the interface named by GLOO_SOCKET_IFNAME (its first, if a list), else that of the host name's address, else "lo". A
  // host name that stands for a loopback address keeps the group on one machine: name the interface then.
  std::string interface_name;
  // A name that the store has not seen before; at most 100 bytes, as in a store's key.
  std::string group_name;
  int64_t timeout_ns = 0;  // for all of Open; relative
};

// Errors: GlooTransport::Open's; kUnimplemented: built without Gloo.
Status OpenGlooTransport(const GlooOptions& options, std::unique_ptr<Transport>* transport);

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_GLOO_OPEN_GLOO_H_
