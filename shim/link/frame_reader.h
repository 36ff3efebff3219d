// shim/link
// Decides what a packet from the daemon is. Pure: bytes in, verdict out; nothing is trusted, no text is read past its array.

#ifndef GRADGATE_SHIM_LINK_FRAME_READER_H_
#define GRADGATE_SHIM_LINK_FRAME_READER_H_

#include <cstddef>
#include <string>

#include "proto/link/frames.h"

namespace gradgate::link {

enum class Verdict {
  kWelcome,  // `welcome` is set
  kReject,   // `reject` is set
  kPolicy,   // `policy` is set, its version and content hash are sound; its values may be unknown to this shim
  kIgnored,  // well formed, of a type younger than this shim
  kGarbage,  // `fault` says why; the connection is of no use
};

struct Incoming {
  Verdict verdict = Verdict::kGarbage;
  WelcomeFrame welcome = {};
  RejectFrame reject = {};
  PolicyFrame policy = {};
  std::string fault;
};

// `bytes` is the packet, whole.
Incoming ReadPacket(const void* bytes, size_t byte_count);

// `text` of a frame, fit for a log line: control characters are replaced.
std::string Printable(const char* text);

}  // namespace gradgate::link

#endif  // GRADGATE_SHIM_LINK_FRAME_READER_H_
