#include "daemon/node/frame_parser.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "daemon/node/rejection.h"
#include "proto/shm/stats_page.h"

namespace gradgate {
namespace {

template <typename Frame>
Frame Copy(absl::Span<const std::byte> bytes) {
  Frame frame;
  std::memcpy(&frame, bytes.data(), sizeof(frame));
  return frame;
}

absl::StatusOr<TrainerFrame> ParseHello(absl::Span<const std::byte> packet) {
  const auto hello = Copy<link::HelloFrame>(packet);
  if (hello.reserved != 0) {
    return Reject(Rejection::kFrameContents, absl::StrFormat("Hello: reserved field is %d, not zero", hello.reserved));
  }
  if (hello.layout_hash != page::kLayoutHash) {
    return Reject(Rejection::kPageLayout,
                  absl::StrFormat("stats page layout %016x is not this daemon's %016x; use a shim and a daemon of one release",
                                  hello.layout_hash, page::kLayoutHash));
  }
  return hello;
}

absl::StatusOr<TrainerFrame> ParseGoodbye(absl::Span<const std::byte> packet) {
  const auto goodbye = Copy<link::GoodbyeFrame>(packet);
  if (goodbye.reserved != 0 || goodbye.failed > 1) {
    return Reject(Rejection::kFrameContents,
                  absl::StrFormat("Goodbye: failed is %d (0 or 1), reserved is %d (zero)", goodbye.failed, goodbye.reserved));
  }
  return goodbye;
}

}  // namespace

absl::StatusOr<TrainerFrame> ParseTrainerFrame(absl::Span<const std::byte> packet_untrusted, bool truncated) {
  const size_t bytes = packet_untrusted.size();
  if (truncated || bytes > link::kMaxFrameBytes) {
    return Reject(Rejection::kFrameLong, absl::StrFormat("packet is longer than a frame's %d bytes", link::kMaxFrameBytes));
  }
  if (bytes < sizeof(link::FrameHeader)) {
    return Reject(Rejection::kFrameShort,
                  absl::StrFormat("packet of %d bytes is shorter than a frame header's %d", bytes, sizeof(link::FrameHeader)));
  }
  const auto header = Copy<link::FrameHeader>(packet_untrusted);
  if (header.magic != link::kMagic) {
    return Reject(Rejection::kFrameMagic, absl::StrFormat("frame magic is %08x, not %08x", header.magic, link::kMagic));
  }
  if (header.major != link::kMajor) {
    return Reject(Rejection::kFrameVersion,
                  absl::StrFormat("frame version %d.%d, this daemon speaks %d.%d; use a shim and a daemon of one major",
                                  header.major, header.minor, link::kMajor, link::kMinor));
  }
  const auto type = static_cast<link::FrameType>(header.type);
  if (type != link::FrameType::kHello && type != link::FrameType::kGoodbye) {
    return Reject(Rejection::kFrameUnknownType,
                  absl::StrFormat("frame type %d is not one that a trainer of version %d.%d sends", header.type, link::kMajor,
                                  link::kMinor));
  }
  const size_t expected = link::FrameBytes(type);
  if (bytes != expected || header.frame_bytes != expected) {
    return Reject(Rejection::kFrameSize, absl::StrFormat("frame of type %d has %d bytes and says %d, expected %d", header.type,
                                                         bytes, header.frame_bytes, expected));
  }
  if (header.reserved != 0) {
    return Reject(Rejection::kFrameContents, absl::StrFormat("frame header: reserved field is %d, not zero", header.reserved));
  }
  return type == link::FrameType::kHello ? ParseHello(packet_untrusted) : ParseGoodbye(packet_untrusted);
}

}  // namespace gradgate
