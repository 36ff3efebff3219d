#include "shim/link/frame_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace gradgate::link {
namespace {

using ::testing::HasSubstr;

WelcomeFrame Welcome() {
  WelcomeFrame frame{};
  frame.header = MakeHeader(FrameType::kWelcome, sizeof(frame));
  frame.slot = 9;
  std::strcpy(frame.daemon_version, "1.2.3");
  return frame;
}

RejectFrame Reject() {
  RejectFrame frame{};
  frame.header = MakeHeader(FrameType::kReject, sizeof(frame));
  frame.reason = static_cast<uint32_t>(RejectReason::kLimit);
  std::strcpy(frame.message, "full");
  return frame;
}

PolicyFrame Policy() {
  PolicyFrame frame{};
  frame.header = MakeHeader(FrameType::kPolicy, sizeof(frame));
  frame.version = 3;
  frame.bucket_bytes = 1 << 20;
  frame.sync_mode = 2;
  frame.content_hash = PolicyContentHash(frame);
  return frame;
}

void ExpectGarbage(const void* bytes, size_t byte_count, const char* fault) {
  const Incoming in = ReadPacket(bytes, byte_count);
  EXPECT_EQ(in.verdict, Verdict::kGarbage);
  EXPECT_THAT(in.fault, HasSubstr(fault));
}

TEST(FrameReader, ShortPacketsOfEveryLengthAreGarbage) {
  const WelcomeFrame frame = Welcome();
  for (size_t bytes = 0; bytes < sizeof(frame); ++bytes) {
    ExpectGarbage(&frame, bytes, bytes < sizeof(FrameHeader) ? "a frame has at least 16" : "frame_bytes 56 in a packet of ");
  }
}

TEST(FrameReader, LongPacketIsGarbage) {
  char bytes[sizeof(WelcomeFrame) + 1] = {};
  WelcomeFrame frame = Welcome();
  std::memcpy(bytes, &frame, sizeof(frame));
  ExpectGarbage(bytes, sizeof(bytes), "frame_bytes 56 in a packet of 57");
  frame.header.frame_bytes = sizeof(bytes);  // a lie that agrees with the packet
  std::memcpy(bytes, &frame, sizeof(frame));
  ExpectGarbage(bytes, sizeof(bytes), "frame of 57 bytes, its type has 56");
}

TEST(FrameReader, WrongHeaderWordsAreGarbage) {
  WelcomeFrame frame = Welcome();
  frame.header.magic ^= 1;
  ExpectGarbage(&frame, sizeof(frame), "frame magic ");
  frame = Welcome();
  frame.header.major = 2;
  ExpectGarbage(&frame, sizeof(frame), "major version 2, this shim speaks 1");
  frame = Welcome();
  frame.header.reserved = 3;
  ExpectGarbage(&frame, sizeof(frame), "frame reserved word 3");
  frame = Welcome();
  frame.reserved = 4;
  ExpectGarbage(&frame, sizeof(frame), "body reserved word 4");
}

TEST(FrameReader, UnterminatedTextIsGarbage) {
  WelcomeFrame welcome = Welcome();
  std::memset(welcome.daemon_version, 'x', sizeof(welcome.daemon_version));
  ExpectGarbage(&welcome, sizeof(welcome), "daemon_version is not terminated");
  RejectFrame reject = Reject();
  std::memset(reject.message, 'x', sizeof(reject.message));
  ExpectGarbage(&reject, sizeof(reject), "message is not terminated");
}

TEST(FrameReader, TrainersFramesFromADaemonAreGarbage) {
  for (FrameType type : {FrameType::kInvalid, FrameType::kHello, FrameType::kGoodbye}) {
    GoodbyeFrame frame{};
    frame.header = MakeHeader(type, sizeof(frame));
    ExpectGarbage(&frame, sizeof(frame), "which a daemon never sends");
  }
}

TEST(FrameReader, UnknownTypeOfAnySizeIsIgnored) {
  for (size_t bytes : {sizeof(FrameHeader), size_t{100}, kMaxFrameBytes}) {
    char packet[kMaxFrameBytes] = {};
    const FrameHeader header = MakeHeader(static_cast<FrameType>(77), bytes);
    std::memcpy(packet, &header, sizeof(header));
    EXPECT_EQ(ReadPacket(packet, bytes).verdict, Verdict::kIgnored) << bytes;
  }
}

TEST(FrameReader, ReadsWelcomeOfALaterMinorAndReject) {
  WelcomeFrame welcome = Welcome();
  welcome.header.minor = kMinor + 1;
  Incoming in = ReadPacket(&welcome, sizeof(welcome));
  EXPECT_EQ(in.verdict, Verdict::kWelcome);
  EXPECT_EQ(in.welcome.slot, 9u);
  EXPECT_STREQ(in.welcome.daemon_version, "1.2.3");
  const RejectFrame reject = Reject();
  in = ReadPacket(&reject, sizeof(reject));
  EXPECT_EQ(in.verdict, Verdict::kReject);
  EXPECT_EQ(in.reject.reason, static_cast<uint32_t>(RejectReason::kLimit));
  EXPECT_STREQ(in.reject.message, "full");
}

TEST(FrameReader, ReadsAPolicyOfALaterMinor) {
  PolicyFrame policy = Policy();
  policy.header.minor = kMinor + 1;
  const Incoming in = ReadPacket(&policy, sizeof(policy));
  EXPECT_EQ(in.verdict, Verdict::kPolicy) << in.fault;
  EXPECT_EQ(in.policy.version, 3u);
  EXPECT_EQ(in.policy.bucket_bytes, uint64_t{1} << 20);
  EXPECT_EQ(in.policy.sync_mode, 2u);
}

TEST(FrameReader, PolicyShortOrLongIsGarbage) {
  char bytes[sizeof(PolicyFrame) + 8] = {};
  for (size_t size = 0; size <= sizeof(bytes); ++size) {
    if (size == sizeof(PolicyFrame)) continue;
    PolicyFrame frame = Policy();
    std::memcpy(bytes, &frame, sizeof(frame));
    EXPECT_EQ(ReadPacket(bytes, size).verdict, Verdict::kGarbage) << size;
    frame.header.frame_bytes = static_cast<uint32_t>(size);  // a lie that agrees with the packet
    std::memcpy(bytes, &frame, sizeof(frame));
    if (size >= sizeof(FrameHeader)) ExpectGarbage(bytes, size, "its type has 88");
  }
}

TEST(FrameReader, PolicyVersionIsPositiveAsASignedNumber) {
  for (const uint64_t version : {uint64_t{0}, uint64_t{1} << 63, ~uint64_t{0}}) {
    PolicyFrame frame = Policy();
    frame.version = version;
    ExpectGarbage(&frame, sizeof(frame), ("policy version " + std::to_string(version)).c_str());
  }
  PolicyFrame frame = Policy();
  frame.version = ~uint64_t{0} >> 1;
  EXPECT_EQ(ReadPacket(&frame, sizeof(frame)).verdict, Verdict::kPolicy);
}

TEST(FrameReader, EveryBitOfAPolicysContentIsHashed) {
  const PolicyFrame good = Policy();
  const size_t from = offsetof(PolicyFrame, content_hash);
  for (size_t bit = 8 * from; bit < 8 * sizeof(good); ++bit) {
    PolicyFrame frame = good;
    reinterpret_cast<unsigned char*>(&frame)[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    ExpectGarbage(&frame, sizeof(frame), "content hash");
  }
}

// What it does with values that it does not know is the rank's to say, not a fault of the connection.
TEST(FrameReader, PolicyOfUnknownValuesIsRead) {
  PolicyFrame frame = Policy();
  frame.sync_mode = frame.wire_type = frame.reshard = frame.enforcement = ~0u;
  frame.reserved[3] = 1;
  frame.content_hash = PolicyContentHash(frame);
  EXPECT_EQ(ReadPacket(&frame, sizeof(frame)).verdict, Verdict::kPolicy);
  EXPECT_EQ(frame.content_hash >> 63, 0u) << "voted on as a signed number";
}

TEST(FrameReader, ControlCharactersDoNotReachALog) { EXPECT_EQ(Printable("a\nb\x1b[31mä\x7f"), "a?b?[31mä?"); }

}  // namespace
}  // namespace gradgate::link
