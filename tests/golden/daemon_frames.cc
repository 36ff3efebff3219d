// The frames that a daemon of this version of proto/link/frames.h sends, one to standard output: welcome, reject or policy; of
// a version without policies nothing. Standard library alone: record.py compiles it against older headers.

#include <cstdio>
#include <cstring>
#include <string_view>

#include "proto/link/frames.h"

namespace {

using namespace gradgate::link;

template <typename Frame>
int Write(const Frame& frame) {
  return std::fwrite(&frame, sizeof(frame), 1, stdout) == 1 ? 0 : 1;
}

int Policy() {
#ifdef WITH_POLICY
  PolicyFrame frame{};
  frame.header = MakeHeader(FrameType::kPolicy, sizeof(frame));
  frame.version = 7;
  frame.sync_mode = 1;  // every micro-step
  frame.content_hash = PolicyContentHash(frame);
  return Write(frame);
#else
  return 0;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  if (name == "welcome") {
    WelcomeFrame frame{};
    frame.header = MakeHeader(FrameType::kWelcome, sizeof(frame));
    frame.slot = 5;
    std::strcpy(frame.daemon_version, "0.1.0");
    return Write(frame);
  }
  if (name == "reject") {
    RejectFrame frame{};
    frame.header = MakeHeader(FrameType::kReject, sizeof(frame));
    frame.reason = static_cast<uint32_t>(RejectReason::kLimit);
    std::strcpy(frame.message, "256 trainers are connected, as many as --max_clients allows");
    return Write(frame);
  }
  return name == "policy" ? Policy() : 2;
}
