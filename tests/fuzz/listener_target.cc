// The daemon's side of shim.sock as a state machine: clients that connect, say anything in any order with any descriptors, and
// go, over real sockets, while a good trainer is connected that must not notice.
//
// One thread: the listener asks for the time in each round of its loop, and the clock takes the script's next step there.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "daemon/node/shim_listener.h"
#include "shim/link/frame_reader.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/pages.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr int kMaxSteps = 24;
constexpr size_t kClients = 4;
constexpr int kRoundsToSettle = 6;  // calls of Now(); each round of the loop makes at least one

enum Step : unsigned { kConnect, kHello, kChangedHello, kGoodbye, kAnything, kClose, kAnswers, kDamage, kWait, kStepCount };

// What a client can attach. Made once.
struct Descriptors {
  Descriptors() {
    const auto memfd = [](size_t bytes, int seals, unsigned flags) {
      const int fd = memfd_create("fuzz", MFD_CLOEXEC | flags);
      if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 || (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0)) std::abort();
      return fd;
    };
    for (size_t page = 0; page < Pages::kCount; ++page) all.push_back(pages.fake(page).fd());
    all.push_back(memfd(sizeof(page::StatsPage), 0, MFD_ALLOW_SEALING));
    all.push_back(memfd(sizeof(page::StatsPage), 0, 0));
    all.push_back(memfd(100, F_SEAL_SHRINK | F_SEAL_GROW, MFD_ALLOW_SEALING));
    all.push_back(memfd(sizeof(page::StatsPage), F_SEAL_SHRINK | F_SEAL_GROW, MFD_ALLOW_SEALING));  // all zero
    all.push_back(open("/dev/null", O_RDWR | O_CLOEXEC));
    all.push_back(open(ScratchDirectory().c_str(), O_RDONLY | O_CLOEXEC));
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    all.insert(all.end(), {ends[0], ends[1]});
  }

  Pages pages;
  testing::FakePage witness{{.job_name = "witness", .run_id_bytes = std::string(16, 'w')}};
  std::vector<int> all;
};

link::HelloFrame MakeHello() {
  link::HelloFrame hello{};
  hello.header = link::MakeHeader(link::FrameType::kHello, sizeof(hello));
  hello.page_bytes = sizeof(page::StatsPage);
  hello.layout_hash = page::kLayoutHash;
  return hello;
}

class Client {
 public:
  void Connect(const std::string& path) {
    if (socket_) return;
    socket_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) socket_.reset();
  }

  void Send(const std::string& packet, const std::vector<int>& descriptors) {
    if (!socket_) return;
    iovec part{const_cast<char*>(packet.data()), packet.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    (void)sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // Whatever the daemon says, a shim understands.
  void ReadAnswers() {
    char packet[1024];
    while (socket_) {
      const ssize_t got = recv(socket_.get(), packet, sizeof(packet), MSG_DONTWAIT);
      if (got <= 0) return;
      const link::Incoming in = link::ReadPacket(packet, static_cast<size_t>(got));
      FUZZ_CHECK(in.verdict == link::Verdict::kWelcome || in.verdict == link::Verdict::kReject, in.fault);
    }
  }

  void Close() { socket_.reset(); }

 private:
  UniqueFd socket_;
};

class Script final : public Clock {
 public:
  Script(Descriptors& things, Input& in, std::string path) : things_(things), in_(in), path_(std::move(path)) {}

  void set_listener(ShimListener* listener) { listener_ = listener; }

  absl::Time Now() const override {
    const_cast<Script*>(this)->Advance();
    return now_;
  }

  void Start() {
    witness_.Connect(path_);
    witness_.Send(BytesOf(MakeHello()), {things_.witness.fd()});
  }

 private:
  void Advance() {
    if (listener_ == nullptr) return;
    if (settling_ > 0 && --settling_ > 0) return;
    if (closed_) return listener_->Stop();
    if (in_.empty() || ++steps_ > kMaxSteps) return CloseAll();
    const uint8_t step = in_.Byte();
    Take(static_cast<Step>(step % kStepCount), clients_[(step / kStepCount) % kClients]);
  }

  void CloseAll() {
    for (Client& client : clients_) {
      client.ReadAnswers();
      client.Close();
    }
    closed_ = true;
    settling_ = kRoundsToSettle;
  }

  void Take(Step step, Client& client) {
    switch (step) {
      case kConnect:
        return client.Connect(path_);
      case kHello:
        return client.Send(BytesOf(MakeHello()), {things_.all[in_.Below(things_.all.size())]});
      case kChangedHello: {
        std::string packet = BytesOf(MakeHello());
        for (size_t i = in_.Below(4); i > 0; --i) {
          const size_t at = in_.Below(packet.size());
          packet[at] = static_cast<char>(in_.Byte());
        }
        return client.Send(packet, {things_.all[0]});
      }
      case kGoodbye: {
        const link::GoodbyeFrame frame{link::MakeHeader(link::FrameType::kGoodbye, sizeof(frame)), in_.Byte(), 0};
        return client.Send(BytesOf(frame), {});
      }
      case kAnything: {
        std::vector<int> attached(in_.Below(12));
        for (int& fd : attached) fd = things_.all[in_.Below(things_.all.size())];
        std::string packet = in_.Text();
        if (packet.size() == 255) packet.resize(700);
        return client.Send(packet, attached);
      }
      case kClose:
        return client.Close();
      case kAnswers:
        return client.ReadAnswers();
      case kDamage:
        return things_.pages.Damage(in_.Below(Pages::kCount), in_);
      case kWait:
        now_ += absl::Milliseconds(int64_t{1} << in_.Below(24));
        return;
      case kStepCount:
        return;
    }
  }

  Descriptors& things_;
  Input& in_;
  const std::string path_;
  ShimListener* listener_ = nullptr;
  Client witness_;
  Client clients_[kClients];
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  int steps_ = 0;
  int settling_ = kRoundsToSettle;  // the good trainer says Hello first
  bool closed_ = false;
};

void Run(Descriptors& things, Input& in) {
  const ListenerOptions options{.socket_path = ScratchDirectory() + "/shim.sock",
                                .version = "0",
                                .max_clients = 5,
                                .max_clients_per_user = 4,
                                .hello_timeout = absl::Seconds(5),
                                .poll_interval = absl::Microseconds(1)};
  Script script(things, in, options.socket_path);
  Registry registry(
      RegistryOptions{
          .window_history = 16, .max_ended_jobs = 2, .max_ranks_per_job = 2, .max_ranks = 3, .max_window_records = 24},
      &script);
  RejectionCounts rejections;
  std::string told;
  const auto log = [&told](absl::string_view line) { absl::StrAppend(&told, line, "\n"); };
  auto listener = ShimListener::Create(options, &script, &registry, &rejections, {.log = log});
  FUZZ_CHECK(listener.ok(), listener.status().ToString());
  script.Start();
  script.set_listener(listener->get());
  (*listener)->Run();
  script.set_listener(nullptr);
  const NodeView node = registry.GetNode();
  FUZZ_CHECK(node.client_count == 1, absl::StrCat(node.client_count, " clients, not the good one alone:\n", told));
  const auto stats = registry.GetJobStats("witness");
  FUZZ_CHECK(stats.ok(), stats.status().ToString());
  FUZZ_CHECK(stats->job.state == RankState::kRunning, told);
  FUZZ_CHECK(rejections.Get(Rejection::kOther) == 0, "a rejection without a reason");
}

unsigned At(Step step, unsigned client) { return step + kStepCount * client; }

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  // Each descriptor with a good Hello.
  for (unsigned descriptor = 0; descriptor < 12; ++descriptor) {
    seeds.push_back(SeedBuilder()
                        .Byte(At(kConnect, 0))
                        .Byte(At(kHello, 0))
                        .Byte(descriptor)
                        .Byte(At(kAnswers, 0))
                        .Byte(At(kGoodbye, 0))
                        .Byte(0));
  }
  // The same rank twice; a second Hello; Goodbye first; a restart after a kill.
  seeds.push_back(SeedBuilder()
                      .Byte(At(kConnect, 0))
                      .Byte(At(kHello, 0))
                      .Byte(0)
                      .Byte(At(kConnect, 1))
                      .Byte(At(kHello, 1))
                      .Byte(3)
                      .Byte(At(kHello, 0))
                      .Byte(0)
                      .Byte(At(kConnect, 2))
                      .Byte(At(kGoodbye, 2))
                      .Byte(1));
  seeds.push_back(SeedBuilder()
                      .Byte(At(kConnect, 0))
                      .Byte(At(kHello, 0))
                      .Byte(0)
                      .Byte(At(kClose, 0))
                      .Byte(At(kConnect, 0))
                      .Byte(At(kHello, 0))
                      .Byte(0)
                      .Byte(At(kGoodbye, 0))
                      .Byte(1));
  // Too many; one that never speaks.
  seeds.push_back(SeedBuilder()
                      .Byte(At(kConnect, 0))
                      .Byte(At(kConnect, 1))
                      .Byte(At(kConnect, 2))
                      .Byte(At(kConnect, 3))
                      .Byte(At(kWait, 0))
                      .Byte(14)
                      .Byte(At(kAnswers, 3)));
  // Changed and foreign packets, long ones, many descriptors; a page that changes while connected.
  seeds.push_back(SeedBuilder().Byte(At(kConnect, 0)).Byte(At(kChangedHello, 0)).Byte(1).Byte(4).Byte(9));
  seeds.push_back(SeedBuilder()
                      .Byte(At(kConnect, 0))
                      .Byte(At(kAnything, 0))
                      .Byte(11)
                      .Raw(std::string(11, '\4'))
                      .Byte(255)
                      .Raw(std::string(255, 'x')));
  seeds.push_back(SeedBuilder()
                      .Byte(At(kConnect, 0))
                      .Byte(At(kHello, 0))
                      .Byte(1)
                      .Byte(At(kDamage, 0))
                      .Byte(1)
                      .Byte(damage::kHot)
                      .Byte(33)
                      .Byte(12)
                      .Byte(At(kWait, 0))
                      .Byte(3)
                      .Byte(At(kClose, 0)));
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const things = new gradgate::fuzz::Descriptors;
  const int lowest = gradgate::fuzz::LowestFreeDescriptor();
  gradgate::fuzz::Input in(data, size);
  gradgate::fuzz::Run(*things, in);
  things->pages.Mend();
  gradgate::fuzz::CheckNoDescriptorIsLeft(lowest);
  return 0;
}
