#include "daemon/node/frame_parser.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "daemon/node/rejection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/stats_page.h"
#include "tests/daemon/fake_trainer.h"

namespace gradgate {
namespace {

using ::testing::HasSubstr;
using testing::MakeHello;

template <typename Frame>
absl::StatusOr<TrainerFrame> Parse(const Frame& frame, size_t bytes = sizeof(Frame)) {
  std::vector<std::byte> packet(bytes);
  if (bytes > 0) std::memcpy(packet.data(), &frame, std::min(bytes, sizeof(frame)));
  return ParseTrainerFrame(packet, false);
}

template <typename Frame>
void ExpectRejected(const Frame& frame, Rejection reason, const std::string& text, size_t bytes = sizeof(Frame)) {
  const auto result = Parse(frame, bytes);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(RejectionOf(result.status()), reason) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(text));
}

link::GoodbyeFrame MakeGoodbye() {
  link::GoodbyeFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kGoodbye, sizeof(frame));
  return frame;
}

TEST(FrameParser, HelloAndGoodbyeAreRead) {
  link::HelloFrame hello = MakeHello();
  hello.reconnects = 7;
  const auto parsed = Parse(hello);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<link::HelloFrame>(*parsed).reconnects, 7u);
  link::GoodbyeFrame goodbye = MakeGoodbye();
  goodbye.failed = 1;
  const auto ended = Parse(goodbye);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(std::get<link::GoodbyeFrame>(*ended).failed, 1u);
}

TEST(FrameParser, NewerMinorIsAccepted) {
  link::HelloFrame hello = MakeHello();
  hello.header.minor = link::kMinor + 1;
  EXPECT_TRUE(Parse(hello).ok());
}

TEST(FrameParser, TruncatedFrameIsRefused) {
  ExpectRejected(MakeHello(), Rejection::kFrameShort, "shorter than a frame header", 15);
  ExpectRejected(MakeHello(), Rejection::kFrameShort, "packet of 0 bytes", 0);
  ExpectRejected(MakeHello(), Rejection::kFrameSize, "has 39 bytes", sizeof(link::HelloFrame) - 1);
}

TEST(FrameParser, OversizedFrameIsRefused) {
  ExpectRejected(MakeHello(), Rejection::kFrameSize, "has 41 bytes", sizeof(link::HelloFrame) + 1);
  ExpectRejected(MakeHello(), Rejection::kFrameLong, "longer than", link::kMaxFrameBytes + 1);
  const link::HelloFrame hello = MakeHello();
  const auto cut = ParseTrainerFrame({reinterpret_cast<const std::byte*>(&hello), sizeof(hello)}, true);
  EXPECT_EQ(RejectionOf(cut.status()), Rejection::kFrameLong);
}

TEST(FrameParser, SizeInHeaderMustBeThePackets) {
  link::HelloFrame hello = MakeHello();
  hello.header.frame_bytes = sizeof(hello) + 8;
  ExpectRejected(hello, Rejection::kFrameSize, "says 48");
}

TEST(FrameParser, BadMagicIsRefused) {
  link::HelloFrame hello = MakeHello();
  hello.header.magic ^= 1;
  ExpectRejected(hello, Rejection::kFrameMagic, "frame magic");
}

TEST(FrameParser, AnotherMajorIsRefused) {
  link::HelloFrame hello = MakeHello();
  hello.header.major = link::kMajor + 1;
  ExpectRejected(hello, Rejection::kFrameVersion, "frame version 2.1");
}

TEST(FrameParser, UnknownTypeIsRefused) {
  for (const uint16_t type : {0, 5, 65535}) {
    link::HelloFrame hello = MakeHello();
    hello.header.type = type;
    ExpectRejected(hello, Rejection::kFrameUnknownType, "frame type " + std::to_string(type));
  }
}

TEST(FrameParser, FramesOfTheDaemonAreRefused) {
  link::WelcomeFrame welcome{};
  welcome.header = link::MakeHeader(link::FrameType::kWelcome, sizeof(welcome));
  ExpectRejected(welcome, Rejection::kFrameUnknownType, "frame type 2");
}

TEST(FrameParser, ReservedFieldsMustBeZero) {
  link::HelloFrame hello = MakeHello();
  hello.reserved = 1;
  ExpectRejected(hello, Rejection::kFrameContents, "reserved field is 1");
  link::GoodbyeFrame goodbye = MakeGoodbye();
  goodbye.failed = 2;
  ExpectRejected(goodbye, Rejection::kFrameContents, "failed is 2");
  link::HelloFrame header = MakeHello();
  header.header.reserved = 3;
  ExpectRejected(header, Rejection::kFrameContents, "frame header: reserved field is 3");
}

TEST(FrameParser, AnotherLayoutIsRefused) {
  link::HelloFrame hello = MakeHello();
  hello.layout_hash ^= 1;
  ExpectRejected(hello, Rejection::kPageLayout, "use a shim and a daemon of one release");
}

// Whatever the bytes, there is an answer and no read outside of them (the sanitizers watch).
TEST(FrameParser, RandomPacketsAreAnswered) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20000; ++round) {
    link::HelloFrame hello = MakeHello();
    std::vector<std::byte> packet(1 + random() % 64);
    std::memcpy(packet.data(), &hello, std::min(packet.size(), sizeof(hello)));
    for (int flips = random() % 3; flips > 0; --flips) {
      packet[random() % packet.size()] ^= static_cast<std::byte>(1 << random() % 8);
    }
    const auto result = ParseTrainerFrame(packet, false);
    if (!result.ok()) {
      ASSERT_NE(RejectionOf(result.status()), Rejection::kOther) << result.status();
    }
  }
}

}  // namespace
}  // namespace gradgate
