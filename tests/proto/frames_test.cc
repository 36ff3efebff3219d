#include "proto/link/frames.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/proto/golden.h"

namespace gradgate::link {
namespace {

std::string Size(const char* type, size_t bytes) { return std::string(type) + " bytes " + std::to_string(bytes) + "\n"; }

std::string Layout() {
  std::string out = "version " + std::to_string(kMajor) + "." + std::to_string(kMinor) + "\n";
  out += "magic " + std::to_string(kMagic) + "\n";
  out += "max_frame_bytes " + std::to_string(kMaxFrameBytes) + "\n";
  out += Size("FrameHeader", sizeof(FrameHeader));
  out += GG_FIELD(FrameHeader, magic);
  out += GG_FIELD(FrameHeader, major);
  out += GG_FIELD(FrameHeader, minor);
  out += GG_FIELD(FrameHeader, type);
  out += GG_FIELD(FrameHeader, reserved);
  out += GG_FIELD(FrameHeader, frame_bytes);
  out += Size("HelloFrame", sizeof(HelloFrame));
  out += GG_FIELD(HelloFrame, header);
  out += GG_FIELD(HelloFrame, page_bytes);
  out += GG_FIELD(HelloFrame, layout_hash);
  out += GG_FIELD(HelloFrame, reconnects);
  out += GG_FIELD(HelloFrame, reserved);
  out += Size("WelcomeFrame", sizeof(WelcomeFrame));
  out += GG_FIELD(WelcomeFrame, header);
  out += GG_FIELD(WelcomeFrame, slot);
  out += GG_FIELD(WelcomeFrame, reserved);
  out += GG_FIELD(WelcomeFrame, daemon_version);
  out += Size("RejectFrame", sizeof(RejectFrame));
  out += GG_FIELD(RejectFrame, header);
  out += GG_FIELD(RejectFrame, reason);
  out += GG_FIELD(RejectFrame, reserved);
  out += GG_FIELD(RejectFrame, message);
  out += Size("GoodbyeFrame", sizeof(GoodbyeFrame));
  out += GG_FIELD(GoodbyeFrame, header);
  out += GG_FIELD(GoodbyeFrame, failed);
  out += GG_FIELD(GoodbyeFrame, reserved);
  out += Size("PolicyFrame", sizeof(PolicyFrame));
  out += GG_FIELD(PolicyFrame, header);
  out += GG_FIELD(PolicyFrame, version);
  out += GG_FIELD(PolicyFrame, content_hash);
  out += GG_FIELD(PolicyFrame, bucket_bytes);
  out += GG_FIELD(PolicyFrame, sync_mode);
  out += GG_FIELD(PolicyFrame, wire_type);
  out += GG_FIELD(PolicyFrame, reshard);
  out += GG_FIELD(PolicyFrame, enforcement);
  out += GG_FIELD(PolicyFrame, reserved);
  return out;
}

TEST(Frames, LayoutIsTheGoldenOne) { test::ExpectGolden(Layout(), "frames.golden"); }

TEST(Frames, TypesAndReasonsKeepTheirWireValues) {
  EXPECT_EQ(static_cast<int>(FrameType::kHello), 1);
  EXPECT_EQ(static_cast<int>(FrameType::kWelcome), 2);
  EXPECT_EQ(static_cast<int>(FrameType::kReject), 3);
  EXPECT_EQ(static_cast<int>(FrameType::kGoodbye), 4);
  EXPECT_EQ(static_cast<int>(FrameType::kPolicy), 5);
  EXPECT_EQ(static_cast<int>(RejectReason::kVersion), 1);
  EXPECT_EQ(static_cast<int>(RejectReason::kIdentity), 4);
}

TEST(Frames, EveryTypeHasItsSizeAndUnknownOnesHaveNone) {
  EXPECT_EQ(FrameBytes(FrameType::kHello), sizeof(HelloFrame));
  EXPECT_EQ(FrameBytes(FrameType::kWelcome), sizeof(WelcomeFrame));
  EXPECT_EQ(FrameBytes(FrameType::kReject), sizeof(RejectFrame));
  EXPECT_EQ(FrameBytes(FrameType::kGoodbye), sizeof(GoodbyeFrame));
  EXPECT_EQ(FrameBytes(FrameType::kInvalid), 0u);
  EXPECT_EQ(FrameBytes(FrameType::kPolicy), sizeof(PolicyFrame));
  EXPECT_EQ(FrameBytes(static_cast<FrameType>(6)), 0u);
}

}  // namespace
}  // namespace gradgate::link
