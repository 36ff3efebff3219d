#include "daemon/store/limits.h"

#include "absl/strings/str_cat.h"
#include "daemon/node/text_check.h"

namespace gradgate {

absl::Status CheckStoreKey(absl::string_view key) {
  if (key.empty()) return absl::InvalidArgumentError("the key is empty");
  if (key.size() > kMaxStoreKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key has ", key.size(), " bytes, at most ", kMaxStoreKeyBytes, " are stored"));
  }
  if (!IsPrintableUtf8(key)) return absl::InvalidArgumentError("the key is not printable UTF-8");
  return absl::OkStatus();
}

absl::Status CheckStoreValue(absl::string_view key, absl::string_view value) {
  if (value.size() <= kMaxStoreValueBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the value of ", key, " has ", value.size(), " bytes, at most ", kMaxStoreValueBytes, " are stored"));
}

absl::Status CheckStoreRoom(size_t key_count, size_t byte_count, absl::string_view key, absl::string_view value) {
  if (key_count >= kMaxStoreKeys) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", key, ": the store holds ", key_count,
                                                     " keys, which is all it may; remove policies of old jobs"));
  }
  if (byte_count + key.size() + value.size() > kMaxStoreBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", key, ": the store holds ", byte_count, " bytes, at most ",
                                                     kMaxStoreBytes, " fit; remove policies of old jobs"));
  }
  return absl::OkStatus();
}

}  // namespace gradgate
