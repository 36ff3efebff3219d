// How much a store holds. etcd's own limits are larger: whoever may write there can write anything.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_STORE_LIMITS_H_
#define GRADGATE_DAEMON_STORE_LIMITS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gradgate {

inline constexpr size_t kMaxStoreKeyBytes = 512;
inline constexpr size_t kMaxStoreValueBytes = 64 << 10;
inline constexpr size_t kMaxStoreKeys = 32768;
inline constexpr size_t kMaxStoreBytes = 64 << 20;  // keys and values together

// INVALID_ARGUMENT: the key is empty, too long, or no printable UTF-8.
absl::Status CheckStoreKey(absl::string_view key);

// INVALID_ARGUMENT: too long.
absl::Status CheckStoreValue(absl::string_view key, absl::string_view value);

// Whether a store with so much in it, this key's old value not counted, has room. RESOURCE_EXHAUSTED.
absl::Status CheckStoreRoom(size_t key_count, size_t byte_count, absl::string_view key, absl::string_view value);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_LIMITS_H_
