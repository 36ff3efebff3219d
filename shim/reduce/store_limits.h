// The limits of store.h, checked the same way by every store.

#ifndef GRADGATE_SHIM_REDUCE_STORE_LIMITS_H_
#define GRADGATE_SHIM_REDUCE_STORE_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shim/core/status.h"

namespace gradgate {

constexpr size_t kStoreMaxKeyBytes = 200;
constexpr size_t kStoreMaxValueBytes = size_t{64} * 1024;

inline bool IsStoreKey(std::string_view key) {
  if (key.empty() || key.size() > kStoreMaxKeyBytes) return false;
  for (const char c : key) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

// kInvalidArgument, or ok.
inline Status CheckStoreCall(std::string_view key, size_t value_bytes, int64_t timeout_ns) {
  if (!IsStoreKey(key)) {
    return InvalidArgument("store key '" + std::string(key.substr(0, 64)) + "' of " + std::to_string(key.size()) +
                           " bytes: use 1 to " + std::to_string(kStoreMaxKeyBytes) + " printable ASCII characters, no spaces");
  }
  if (value_bytes > kStoreMaxValueBytes) {
    return InvalidArgument("store value of key '" + std::string(key) + "' has " + std::to_string(value_bytes) +
                           " bytes: at most " + std::to_string(kStoreMaxValueBytes));
  }
  if (timeout_ns <= 0) {
    return InvalidArgument("store timeout of " + std::to_string(timeout_ns) + " ns: must be above 0");
  }
  return OkStatus();
}

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_STORE_LIMITS_H_
