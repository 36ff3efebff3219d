#include "daemon/rpc/page_token.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace gradgate {
namespace {

struct Wire {
  PageStart start;
  uint64_t check;
};
static_assert(sizeof(Wire) == 32);

constexpr int32_t kDefaultPageSize = 100;

}  // namespace

// Not a signature: it catches tokens that were changed or mixed up, and nothing secret hangs on it.
uint64_t PageTokens::Check(const PageStart& start) const {
  uint64_t hash = key_ ^ 0xcbf29ce484222325;
  for (const uint64_t word : {start.list, static_cast<uint64_t>(start.first), start.second, key_}) {
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((word >> shift) & 0xff)) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash;
}

std::string PageTokens::Make(const PageStart& start) const {
  const Wire wire{start, Check(start)};
  return absl::WebSafeBase64Escape(absl::string_view(reinterpret_cast<const char*>(&wire), sizeof(wire)));
}

absl::StatusOr<PageStart> PageTokens::Open(absl::string_view token_untrusted) const {
  std::string bytes;
  Wire wire;
  if (token_untrusted.size() > 64 || !absl::WebSafeBase64Unescape(token_untrusted, &bytes) || bytes.size() != sizeof(wire)) {
    return absl::InvalidArgumentError("page_token is not one that this daemon made; start again without one");
  }
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  if (wire.check != Check(wire.start)) {
    return absl::InvalidArgumentError("page_token is not one that this daemon made; start again without one");
  }
  return wire.start;
}

absl::Status PageTokens::CheckList(const PageStart& start, uint64_t list) {
  if (start.list == list) return absl::OkStatus();
  return absl::InvalidArgumentError("page_token belongs to another list; ask with the same job, order and scope as before");
}

absl::StatusOr<PageStart> PageTokens::Parse(absl::string_view token_untrusted, uint64_t list) const {
  absl::StatusOr<PageStart> start = Open(token_untrusted);
  if (!start.ok()) return start;
  if (absl::Status status = CheckList(*start, list); !status.ok()) return status;
  return start;
}

absl::StatusOr<size_t> CheckPageSize(int32_t page_size) {
  if (page_size < 0) return absl::InvalidArgumentError(absl::StrCat("page_size is ", page_size, ", must not be negative"));
  return static_cast<size_t>(page_size == 0 ? kDefaultPageSize : std::min(page_size, kMaxPageSize));
}

}  // namespace gradgate
