// What the conformance suite asks of a transport: a way to open a group whose ranks live in this process.

#ifndef GRADGATE_TESTS_SHIM_REDUCE_TRANSPORT_CONFORMANCE_H_
#define GRADGATE_TESTS_SHIM_REDUCE_TRANSPORT_CONFORMANCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "shim/reduce/transport.h"

namespace gradgate {

// Owns what the transports stand on. Destroying a transport early is a rank that leaves.
struct TransportGroup {
  virtual ~TransportGroup() = default;
  std::vector<std::unique_ptr<Transport>> ranks;
};

struct TransportFactory {
  const char* name;
  std::unique_ptr<TransportGroup> (*open)(uint32_t world_size);  // null: a failure was added
};

std::unique_ptr<TransportGroup> OpenInProcess(uint32_t world_size);
std::unique_ptr<TransportGroup> OpenGlooOverFileStore(uint32_t world_size);
std::unique_ptr<TransportGroup> OpenGlooOverTcpStore(uint32_t world_size);

}  // namespace gradgate

#endif  // GRADGATE_TESTS_SHIM_REDUCE_TRANSPORT_CONFORMANCE_H_
