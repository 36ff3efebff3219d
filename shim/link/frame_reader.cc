#include "shim/link/frame_reader.h"

#include <cstring>

namespace gradgate::link {
namespace {

template <size_t kBytes>
bool Terminated(const char (&text)[kBytes]) {
  return std::memchr(text, '\0', kBytes) != nullptr;
}

std::string Numbers(const char* before, size_t first, const char* between, size_t second) {
  return before + std::to_string(first) + between + std::to_string(second);
}

// Empty if the header is sound.
std::string HeaderFault(const FrameHeader& header, size_t byte_count) {
  if (header.magic != kMagic) return Numbers("frame magic ", header.magic, ", expected ", kMagic);
  if (header.major != kMajor) return Numbers("frame major version ", header.major, ", this shim speaks ", kMajor);
  if (header.frame_bytes != byte_count) return Numbers("frame_bytes ", header.frame_bytes, " in a packet of ", byte_count);
  if (header.reserved != 0) return Numbers("frame reserved word ", header.reserved, ", expected ", 0);
  return {};
}

// Empty if *out was filled.
template <typename Frame>
std::string CopyWhole(const void* bytes, size_t byte_count, Frame* out) {
  if (byte_count != sizeof(Frame)) return Numbers("frame of ", byte_count, " bytes, its type has ", sizeof(Frame));
  std::memcpy(out, bytes, sizeof(Frame));
  return {};
}

template <typename Frame>
std::string Copy(const void* bytes, size_t byte_count, Frame* out) {
  if (std::string fault = CopyWhole(bytes, byte_count, out); !fault.empty()) return fault;
  if (out->reserved != 0) return Numbers("body reserved word ", out->reserved, ", expected ", 0);
  return {};
}

// A version is voted on as a signed number.
std::string PolicyFault(const PolicyFrame& policy) {
  if (policy.version == 0 || policy.version >> 63 != 0) return "policy version " + std::to_string(policy.version);
  if (policy.content_hash != PolicyContentHash(policy)) return "a content hash that is not that of the policy";
  return {};
}

}  // namespace

Incoming ReadPacket(const void* bytes, size_t byte_count) {
  Incoming in;
  FrameHeader header;
  if (byte_count < sizeof(header)) {
    in.fault = Numbers("packet of ", byte_count, " bytes, a frame has at least ", sizeof(header));
    return in;
  }
  std::memcpy(&header, bytes, sizeof(header));
  in.fault = HeaderFault(header, byte_count);
  if (!in.fault.empty()) return in;

  switch (static_cast<FrameType>(header.type)) {
    case FrameType::kWelcome:
      in.fault = Copy(bytes, byte_count, &in.welcome);
      if (in.fault.empty() && !Terminated(in.welcome.daemon_version)) in.fault = "daemon_version is not terminated";
      if (in.fault.empty()) in.verdict = Verdict::kWelcome;
      return in;
    case FrameType::kReject:
      in.fault = Copy(bytes, byte_count, &in.reject);
      if (in.fault.empty() && !Terminated(in.reject.message)) in.fault = "message is not terminated";
      if (in.fault.empty()) in.verdict = Verdict::kReject;
      return in;
    case FrameType::kPolicy:
      in.fault = CopyWhole(bytes, byte_count, &in.policy);
      if (in.fault.empty()) in.fault = PolicyFault(in.policy);
      if (in.fault.empty()) in.verdict = Verdict::kPolicy;
      return in;
    case FrameType::kHello:
    case FrameType::kGoodbye:
    case FrameType::kInvalid:
      in.fault = "frame type " + std::to_string(header.type) + ", which a daemon never sends";
      return in;
  }
  in.verdict = Verdict::kIgnored;
  return in;
}

std::string Printable(const char* text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

}  // namespace gradgate::link
