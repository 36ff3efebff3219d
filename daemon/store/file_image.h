// The bytes of a file store. Pure.
//
//   offset  bytes  what
//   0       8      "ggstore1"
//   8       8      length of what follows the header, little-endian
//   16      8      FNV-1a, 64 bits, of what follows
//   24      …      gradgate.store.v1.StoreFile
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_STORE_FILE_IMAGE_H_
#define GRADGATE_DAEMON_STORE_FILE_IMAGE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/store/limits.h"
#include "daemon/store/memory_store.h"

namespace gradgate {

inline constexpr size_t kMaxStoreFileBytes = kMaxStoreBytes + kMaxStoreKeys * 64 + 4096;

std::string EncodeStoreFile(const StoreImage& image);

// DATA_LOSS says what is wrong: foreign, truncated, too long, damaged, or beyond the limits of a store.
absl::StatusOr<StoreImage> DecodeStoreFile(absl::string_view bytes_untrusted);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_FILE_IMAGE_H_
