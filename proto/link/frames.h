// The frames that a trainer's shim and the daemon exchange on shim.sock, specified byte by byte.
//
// shim.sock is AF_UNIX, SOCK_SEQPACKET: one packet is one frame, a packet of another size than its type's is garbage. All
// sends and reads on the trainer's side are non-blocking. Order of events:
//
//   trainer                              daemon
//   connect                              accept, SO_PEERCRED
//   Hello + stats page descriptor  --->  checks seals, maps, registers
//                                  <---  Welcome (slot) or Reject (reason), then the daemon closes after Reject
//        … training; counters are read from the page, nothing is sent …
//                                  <---  Policy, after Welcome and whenever the job's policy changes
//   Goodbye                        --->  "finished"; an end of file without it is "lost"
//
// The trainer never waits for an answer. After a lost connection it tries again once a second and sends Hello anew; the page,
// and so every count, is the same.
//
// Integers are little-endian, text is UTF-8 and zero-terminated within its array. Growth: a new frame type is a minor change
// (unknown types are ignored by the trainer and end the connection at the daemon); a changed frame is a new major.

#ifndef GRADGATE_PROTO_LINK_FRAMES_H_
#define GRADGATE_PROTO_LINK_FRAMES_H_

#include <cstddef>
#include <cstdint>

namespace gradgate::link {

inline constexpr uint32_t kMagic = 0x4b4c4747;  // "GGLK", little-endian
inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 1;
inline constexpr size_t kMaxFrameBytes = 512;  // longer packets are garbage
inline constexpr char kShimSocketName[] = "shim.sock";
inline constexpr char kApiSocketName[] = "api.sock";

enum class FrameType : uint16_t {
  kInvalid = 0,
  kHello = 1,    // trainer to daemon, exactly one descriptor attached
  kWelcome = 2,  // daemon to trainer
  kReject = 3,   // daemon to trainer
  kGoodbye = 4,  // trainer to daemon
  kPolicy = 5,   // daemon to trainer
};

struct FrameHeader {
  uint32_t magic;
  uint16_t major;
  uint16_t minor;
  uint16_t type;         // FrameType
  uint16_t reserved;     // zero
  uint32_t frame_bytes;  // whole frame, this header included
};
static_assert(sizeof(FrameHeader) == 16);

// Everything else about the trainer is in the page's identity.
struct HelloFrame {
  FrameHeader header;
  uint64_t page_bytes;   // size of the attached memfd
  uint64_t layout_hash;  // gradgate::page::kLayoutHash of the sender
  uint32_t reconnects;   // times this trainer has said Hello before
  uint32_t reserved;     // zero
};
static_assert(sizeof(HelloFrame) == 40);

struct WelcomeFrame {
  FrameHeader header;
  uint32_t slot;      // the daemon's number for this process, reused after it is gone
  uint32_t reserved;  // zero
  char daemon_version[32];
};
static_assert(sizeof(WelcomeFrame) == 56);

enum class RejectReason : uint32_t {
  kUnspecified = 0,
  kVersion = 1,   // frame major or page layout differs
  kPage = 2,      // descriptor missing, not a memfd, unsealed, short, or its contents invalid
  kLimit = 3,     // too many clients
  kIdentity = 4,  // another live process already is this rank of this run
};

struct RejectFrame {
  FrameHeader header;
  uint32_t reason;    // RejectReason
  uint32_t reserved;  // zero
  char message[232];  // for a person: the value that was wrong, and the remedy
};
static_assert(sizeof(RejectFrame) == 256);

struct GoodbyeFrame {
  FrameHeader header;
  uint32_t failed;    // 1: the trainer ends with an error
  uint32_t reserved;  // zero
};
static_assert(sizeof(GoodbyeFrame) == 24);

// A policy that the job may adopt. Where the trainer is with it, it tells in its page.
struct PolicyFrame {
  FrameHeader header;
  uint64_t version;       // at least 1; grows with each proposal
  uint64_t content_hash;  // PolicyContentHash of what follows
  uint64_t bucket_bytes;  // 0: as given
  uint32_t sync_mode;     // SyncMode
  uint32_t wire_type;     // WireType
  uint32_t reshard;       // Reshard
  uint32_t enforcement;   // Enforcement; unspecified, audit or enforce
  uint64_t reserved[4];   // zero
};
static_assert(sizeof(PolicyFrame) == 88);

// FNV-1a over the content, without the top bit: it is voted on as a signed number.
constexpr uint64_t PolicyContentHash(const PolicyFrame& frame) {
  uint64_t hash = 0xcbf29ce484222325;
  const uint64_t words[] = {frame.bucket_bytes, frame.sync_mode,   frame.wire_type,   frame.reshard,    frame.enforcement,
                            frame.reserved[0],  frame.reserved[1], frame.reserved[2], frame.reserved[3]};
  for (const uint64_t word : words) {
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((word >> shift) & 0xff)) * 0x100000001b3;
  }
  return hash & 0x7fffffffffffffff;
}

constexpr FrameHeader MakeHeader(FrameType type, size_t frame_bytes) {
  return FrameHeader{kMagic, kMajor, kMinor, static_cast<uint16_t>(type), 0, static_cast<uint32_t>(frame_bytes)};
}

// Frame size of `type`, or 0 for an unknown one.
constexpr size_t FrameBytes(FrameType type) {
  switch (type) {
    case FrameType::kHello:
      return sizeof(HelloFrame);
    case FrameType::kWelcome:
      return sizeof(WelcomeFrame);
    case FrameType::kReject:
      return sizeof(RejectFrame);
    case FrameType::kGoodbye:
      return sizeof(GoodbyeFrame);
    case FrameType::kPolicy:
      return sizeof(PolicyFrame);
    case FrameType::kInvalid:
      break;
  }
  return 0;
}

}  // namespace gradgate::link

#endif  // GRADGATE_PROTO_LINK_FRAMES_H_
