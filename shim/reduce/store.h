// The rendezvous store: a small key-value store that every rank of a job reaches. The handshake, the transport's connecting and
// the naming of missing ranks go through it; nothing on the hot path does.
//
// Keys are printable ASCII without spaces, at most 200 bytes; values are at most 64 KiB of any bytes. A value is whole or
// absent. Set replaces. Thread class: any thread. Every call has a timeout > 0, relative, in ns, and returns by then.

#ifndef GRADGATE_SHIM_REDUCE_STORE_H_
#define GRADGATE_SHIM_REDUCE_STORE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "shim/core/status.h"

namespace gradgate {

class Store {
 public:
  virtual ~Store() = default;

  // kInvalidArgument: key or size. kDeadlineExceeded, kUnavailable: the store does not answer.
  virtual Status Set(const std::string& key, std::string_view value, int64_t timeout_ns) = 0;

  // Waits until the key is there. kNotFound: not within timeout_ns. kUnavailable: the store does not answer.
  virtual Status Get(const std::string& key, int64_t timeout_ns, std::string* value) = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_STORE_H_
