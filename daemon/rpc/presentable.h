// Text of another daemon, or of the store, made fit for people. A pure function.

#ifndef GRADGATE_DAEMON_RPC_PRESENTABLE_H_
#define GRADGATE_DAEMON_RPC_PRESENTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gradgate {

// At most 300 bytes of it; something else instead where it is not printable UTF-8.
std::string Presentable(absl::string_view text_untrusted);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_PRESENTABLE_H_
