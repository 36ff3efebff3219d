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

TEST(FrameReader, ControlCharactersDoNotReachALog) { EXPECT_EQ(Printable("a\nb\x1b[31mä\x7f"), "a?b?[31mä?"); }

}  // namespace
}  // namespace gradgate::link
