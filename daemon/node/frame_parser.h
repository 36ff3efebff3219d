// Checks one packet that a trainer sent on shim.sock. A pure function over bytes.

#ifndef GRADGATE_DAEMON_NODE_FRAME_PARSER_H_
#define GRADGATE_DAEMON_NODE_FRAME_PARSER_H_

#include <cstddef>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/link/frames.h"

namespace gradgate {

using TrainerFrame = std::variant<link::HelloFrame, link::GoodbyeFrame>;

// Copies the packet into the frame that it is. `packet_untrusted` needs no alignment; `truncated` tells that the kernel cut it.
// Errors: those of Rejection::kFrame…, each with its own message.
absl::StatusOr<TrainerFrame> ParseTrainerFrame(absl::Span<const std::byte> packet_untrusted, bool truncated);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_FRAME_PARSER_H_
