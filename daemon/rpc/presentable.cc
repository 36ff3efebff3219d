#include "daemon/rpc/presentable.h"

#include <cstddef>

#include "daemon/node/text_check.h"

namespace gradgate {

std::string Presentable(absl::string_view text_untrusted) {
  constexpr size_t kMaxBytes = 300;
  const absl::string_view text = text_untrusted.substr(0, kMaxBytes);
  for (size_t cut = 0; cut < 4 && cut <= text.size(); ++cut) {  // the limit may have split a character
    const absl::string_view shown = text.substr(0, text.size() - cut);
    if (IsPrintableUtf8(shown)) return std::string(shown);
    if (text.size() < kMaxBytes) break;
  }
  return "(text that cannot be shown)";
}

}  // namespace gradgate
