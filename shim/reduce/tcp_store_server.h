// The serving side of TcpStore: one thread, a poll loop, the keys in memory.
//
//   request   u32 body bytes │ u8 op: 1 set, 2 get │ u8 key bytes │ key │ value (set only)
//   reply     u32 body bytes │ u8 status, as in Code │ value (get) or text (status ≠ 0)
//
// Integers are little-endian; "body" is what follows the first field. One request at a time on a connection: a get is answered
// when the key is there, however late, and bytes that come before its reply make the connection malformed. A malformed
// connection is closed, and no other notices. Limits: store_limits.h for keys and values, and the constants below.
//
// There is no authentication: whoever reaches the port can read and write.

#ifndef GRADGATE_SHIM_REDUCE_TCP_STORE_SERVER_H_
#define GRADGATE_SHIM_REDUCE_TCP_STORE_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "shim/core/status.h"
#include "shim/reduce/store_limits.h"

namespace gradgate {

constexpr size_t kTcpStoreHeaderBytes = 4;
constexpr size_t kTcpStoreMaxBodyBytes = 2 + kStoreMaxKeyBytes + kStoreMaxValueBytes;
constexpr uint8_t kTcpStoreOpSet = 1;
constexpr uint8_t kTcpStoreOpGet = 2;
constexpr size_t kTcpStoreMaxConnections = 4096;  // more are closed on arrival
constexpr size_t kTcpStoreMaxTotalBytes = size_t{256}
                                          << 20;  // of keys and values; a set above it is answered with kResourceExhausted

class TcpStoreServer {
 public:
  // A numeric host, or "localhost", is bound as it is. Another name binds all addresses, since machines often know their own
  // name as a loopback address. port 0: any free one. kUnavailable: the address cannot be bound.
  static Status Listen(const std::string& host, uint16_t port, std::unique_ptr<TcpStoreServer>* server);

  // Serves on until the last client has gone, at most 2 s; then stops the thread and closes what is left.
  virtual ~TcpStoreServer() = default;

  virtual uint16_t port() const = 0;
  // Where a client of this process finds it.
  virtual std::string local_host() const = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_TCP_STORE_SERVER_H_
