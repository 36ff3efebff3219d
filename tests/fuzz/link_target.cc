// The shim's end of shim.sock against a daemon that says anything: frames, foreign bytes, descriptors, silence, an end at any
// moment. Training must not notice: no call blocks or fails, and the shim's own frames stay such as the daemon takes.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/node/frame_parser.h"
#include "daemon/node/unique_fd.h"
#include "shim/link/link.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/pages.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr int kMaxSteps = 24;
constexpr int64_t kSecond = 1'000'000'000;

enum Step : unsigned { kPoll, kAccept, kWelcome, kReject, kAnything, kHangUp, kPolicy, kStepCount };

class Daemon {
 public:
  Daemon() : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = ScratchDirectory() + "/" + link::kShimSocketName;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) std::abort();
    if (listen(listener_.get(), 64) != 0) std::abort();
  }

  void Accept() {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) connection_ = std::move(fd);
    ReadFrames();
  }

  void Send(const std::string& packet, bool with_descriptor) {
    if (!connection_) return;
    iovec part{const_cast<char*>(packet.data()), packet.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (with_descriptor) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = listener_.get();
      std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
    }
    (void)sendmsg(connection_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void HangUp() {
    ReadFrames();
    connection_.reset();
  }

  // As after a process's end: nothing waits, nobody is connected.
  void Reset() {
    connection_.reset();
    while (UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC))) {
    }
  }

 private:
  // Whatever this daemon said, the shim's frames are good.
  void ReadFrames() {
    std::byte packet[1024];
    while (connection_) {
      const ssize_t got = recv(connection_.get(), packet, sizeof(packet), MSG_DONTWAIT);
      if (got <= 0) return;
      const auto frame = ParseTrainerFrame({packet, static_cast<size_t>(got)}, false);
      FUZZ_CHECK(frame.ok(), frame.status().ToString());
    }
  }

  UniqueFd listener_;
  UniqueFd connection_;
};

void Log(void* count, const char* reason, const char* message) {
  FUZZ_CHECK(reason != nullptr && *reason != '\0' && *message != '\0', "an empty warning");
  for (const char* c = message; *c != '\0'; ++c) FUZZ_CHECK(static_cast<unsigned char>(*c) >= 0x20, message);
  ++*static_cast<int*>(count);
}

template <typename Frame>
std::string Changed(link::FrameType type, Input& in) {
  Frame frame{};
  frame.header = link::MakeHeader(type, sizeof(frame));
  std::string packet = BytesOf(frame);
  for (size_t i = in.Below(4); i > 0; --i) {
    const size_t at = in.Below(packet.size());
    packet[at] = static_cast<char>(in.Byte());
  }
  return packet;
}

// Of any content; of a sound hash but for one in four.
std::string Policy(Input& in) {
  link::PolicyFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kPolicy, sizeof(frame));
  frame.version = in.Byte();
  frame.sync_mode = in.Byte();
  frame.bucket_bytes = uint64_t{in.Byte()} << 12;
  frame.reserved[3] = in.Below(2);
  frame.content_hash = link::PolicyContentHash(frame) ^ (in.Below(4) == 3 ? 1 : 0);
  return BytesOf(frame);
}

// Whatever came, what waits is sound.
void TakePolicy(Link& link) {
  if (!link.policy_waits()) return;
  const link::PolicyFrame policy = link.TakePolicy();
  FUZZ_CHECK(static_cast<int64_t>(policy.version) > 0, std::to_string(policy.version));
  FUZZ_CHECK(policy.content_hash == link::PolicyContentHash(policy), "another content than the hash tells");
  FUZZ_CHECK(!link.policy_waits(), "taken, and waits");
}

void Run(Daemon& daemon, Pages& pages, Input& in) {
  int warnings = 0;
  int64_t now = kSecond;
  {
    Link link({ScratchDirectory() + "/nobody", ScratchDirectory()}, pages.fake(0).fd(), &pages.at(0), Log, &warnings);
    for (int i = 0; i < kMaxSteps && !in.empty(); ++i) {
      switch (static_cast<Step>(in.Below(kStepCount))) {
        case kPoll:
          now += int64_t{in.Byte()} * kSecond / 4;
          link.Poll(now);
          TakePolicy(link);
          break;
        case kAccept:
          daemon.Accept();
          break;
        case kWelcome:
          daemon.Send(Changed<link::WelcomeFrame>(link::FrameType::kWelcome, in), false);
          break;
        case kReject:
          daemon.Send(Changed<link::RejectFrame>(link::FrameType::kReject, in), false);
          break;
        case kAnything: {
          std::string packet = in.Text();
          if (packet.size() == 255) packet.resize(700);
          daemon.Send(packet, in.Below(8) == 7);
          break;
        }
        case kHangUp:
          daemon.HangUp();
          break;
        case kPolicy:
          daemon.Send(Policy(in), false);
          break;
        case kStepCount:
          break;
      }
      FUZZ_CHECK(!link.welcomed() || !link.Due(now), "welcomed, and looking for a daemon");
    }
    link.Poll(now + 1);
    link.Goodbye(in.Coin());
    daemon.HangUp();
    FUZZ_CHECK(!link.welcomed(), "welcomed after goodbye");
  }
  FUZZ_CHECK(warnings <= 40, std::to_string(warnings) + " warnings; each reason is told once");
  daemon.Reset();
  pages.at(0).totals.reconnect_count.store(0);
}

}  // namespace

std::vector<std::string> Seeds() {
  const auto poll = [](SeedBuilder& to, unsigned quarters) { to.Byte(kPoll).Byte(quarters); };
  std::vector<std::string> seeds;
  SeedBuilder good;
  poll(good, 8);
  good.Byte(kAccept).Byte(kWelcome).Byte(0);
  poll(good, 1);
  seeds.push_back(good);
  SeedBuilder rejected;
  poll(rejected, 8);
  rejected.Byte(kAccept).Byte(kReject).Byte(2).Byte(16).Byte(3).Byte(24).Byte('x');
  poll(rejected, 1);
  rejected.Byte(kHangUp);
  poll(rejected, 250);
  rejected.Byte(kAccept);
  seeds.push_back(rejected);
  SeedBuilder garbage;
  poll(garbage, 8);
  garbage.Byte(kAccept).Byte(kAnything).Text("garbage").Byte(0);
  poll(garbage, 1);
  poll(garbage, 8);
  garbage.Byte(kAccept).Byte(kAnything).Text("x").Byte(7);
  poll(garbage, 1);
  poll(garbage, 8);
  garbage.Byte(kAccept).Byte(kAnything).Text(std::string(255, 'x')).Byte(0);
  poll(garbage, 1);
  seeds.push_back(garbage);
  SeedBuilder younger;
  poll(younger, 8);
  younger.Byte(kAccept).Byte(kWelcome).Byte(1).Byte(8).Byte(77).Byte(kHangUp);
  poll(younger, 1);
  seeds.push_back(younger);
  SeedBuilder policies;
  poll(policies, 8);
  policies.Byte(kAccept).Byte(kWelcome).Byte(0);
  for (const unsigned version : {5u, 7u, 6u}) policies.Byte(kPolicy).Byte(version).Byte(2).Byte(1).Byte(0).Byte(0);
  poll(policies, 1);
  policies.Byte(kPolicy).Byte(8).Byte(9).Byte(1).Byte(1).Byte(3);
  poll(policies, 1);
  seeds.push_back(policies);
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const pages = new gradgate::fuzz::Pages;
  static auto* const daemon = new gradgate::fuzz::Daemon;
  const int lowest = gradgate::fuzz::LowestFreeDescriptor();
  gradgate::fuzz::Input in(data, size);
  gradgate::fuzz::Run(*daemon, *pages, in);
  gradgate::fuzz::CheckNoDescriptorIsLeft(lowest);
  return 0;
}
