// One packet, as the daemon reads it from a trainer and as the shim reads it from a daemon.

#include <variant>

#include "absl/types/span.h"
#include "daemon/node/frame_parser.h"
#include "daemon/node/rejection.h"
#include "proto/shm/stats_page.h"
#include "shim/link/frame_reader.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

void AsDaemon(const std::string& packet, bool truncated) {
  const auto* bytes = reinterpret_cast<const std::byte*>(packet.data());
  const auto frame = ParseTrainerFrame(absl::MakeConstSpan(bytes, packet.size()), truncated);
  if (!frame.ok()) {
    FUZZ_CHECK(RejectionOf(frame.status()) != Rejection::kOther, frame.status().ToString());
    FUZZ_CHECK(!frame.status().message().empty(), "a rejection without a message");
    return;
  }
  FUZZ_CHECK(!truncated, "a truncated packet was taken");
  const size_t expected =
      std::holds_alternative<link::HelloFrame>(*frame) ? sizeof(link::HelloFrame) : sizeof(link::GoodbyeFrame);
  FUZZ_CHECK(packet.size() == expected, std::to_string(packet.size()));
}

void AsShim(const std::string& packet) {
  const link::Incoming in = link::ReadPacket(packet.data(), packet.size());
  FUZZ_CHECK((in.verdict == link::Verdict::kGarbage) == !in.fault.empty(), in.fault);
  if (in.verdict == link::Verdict::kWelcome) {
    FUZZ_CHECK(packet.size() == sizeof(link::WelcomeFrame), std::to_string(packet.size()));
    (void)link::Printable(in.welcome.daemon_version);
  }
  if (in.verdict == link::Verdict::kPolicy) {
    FUZZ_CHECK(packet.size() == sizeof(link::PolicyFrame), std::to_string(packet.size()));
    FUZZ_CHECK(static_cast<int64_t>(in.policy.version) > 0, std::to_string(in.policy.version));
    FUZZ_CHECK(in.policy.content_hash == link::PolicyContentHash(in.policy), "another content than the hash tells");
  }
  if (in.verdict == link::Verdict::kReject) {
    FUZZ_CHECK(packet.size() == sizeof(link::RejectFrame), std::to_string(packet.size()));
    for (const char c : link::Printable(in.reject.message)) {
      FUZZ_CHECK(static_cast<unsigned char>(c) >= 0x20, "a control character got through");
    }
  }
}

template <typename Frame>
Frame Make(link::FrameType type) {
  Frame frame{};
  frame.header = link::MakeHeader(type, sizeof(frame));
  return frame;
}

}  // namespace

std::vector<std::string> Seeds() {
  auto hello = Make<link::HelloFrame>(link::FrameType::kHello);
  hello.page_bytes = sizeof(page::StatsPage);
  hello.layout_hash = page::kLayoutHash;
  auto goodbye = Make<link::GoodbyeFrame>(link::FrameType::kGoodbye);
  goodbye.failed = 1;
  const auto welcome = Make<link::WelcomeFrame>(link::FrameType::kWelcome);
  const auto reject = Make<link::RejectFrame>(link::FrameType::kReject);
  auto policy = Make<link::PolicyFrame>(link::FrameType::kPolicy);
  policy.version = 3;
  policy.bucket_bytes = 1 << 20;
  policy.sync_mode = 2;
  policy.content_hash = link::PolicyContentHash(policy);
  auto younger = Make<link::GoodbyeFrame>(static_cast<link::FrameType>(77));
  const std::string plain(1, '\0');
  return {plain + BytesOf(hello),  plain + BytesOf(goodbye), plain + BytesOf(welcome),
          plain + BytesOf(reject), plain + BytesOf(policy),  plain + BytesOf(younger)};
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradgate::fuzz::Input in(data, size);
  const bool truncated = in.Coin();
  const std::string packet = in.Rest();
  gradgate::fuzz::AsDaemon(packet, truncated);
  gradgate::fuzz::AsShim(packet);
  return 0;
}
