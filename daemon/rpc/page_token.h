// Opaque tokens for paged lists. A token says which list it belongs to and where the next page begins; one that this process
// did not make, or made for another list, is refused.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_RPC_PAGE_TOKEN_H_
#define GRADGATE_DAEMON_RPC_PAGE_TOKEN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gradgate {

// What a token carries. `list` tells lists apart: a job's id and the direction, say.
struct PageStart {
  uint64_t list = 0;
  int64_t first = 0;  // the meaning is the list's
  uint64_t second = 0;
  bool operator==(const PageStart&) const = default;
};

class PageTokens {
 public:
  // `key` makes tokens of one process worthless to another; random.
  explicit PageTokens(uint64_t key) : key_(key) {}

  std::string Make(const PageStart& start) const;

  // INVALID_ARGUMENT: not one of ours, or not for `list`.
  absl::StatusOr<PageStart> Parse(absl::string_view token_untrusted, uint64_t list) const;

  // Parse in two steps, where the list is known only later.
  absl::StatusOr<PageStart> Open(absl::string_view token_untrusted) const;
  static absl::Status CheckList(const PageStart& start, uint64_t list);

 private:
  uint64_t Check(const PageStart& start) const;

  const uint64_t key_;
};

inline constexpr int32_t kMaxPageSize = 1000;

// The page size to use. INVALID_ARGUMENT: negative. 0 means 100; more than 1000 means 1000.
absl::StatusOr<size_t> CheckPageSize(int32_t page_size);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_PAGE_TOKEN_H_
