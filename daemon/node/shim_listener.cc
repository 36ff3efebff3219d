#include "daemon/node/shim_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "daemon/node/frame_parser.h"
#include "daemon/node/page_mapping.h"

namespace gradgate {
namespace {

constexpr uint64_t kNotOffered = ~uint64_t{0};  // no generation: offer anew

constexpr int kBacklog = 128;
constexpr int kAcceptsPerRound = 32;
constexpr int kLogLinesPerSecond = 20;

// epoll ids; clients begin behind them.
constexpr uint64_t kListenId = 0;
constexpr uint64_t kTimerId = 1;
constexpr uint64_t kStopId = 2;
constexpr uint64_t kFirstClientId = 16;

absl::Status Watch(int epoll, int fd, uint64_t id, uint32_t events = EPOLLIN) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
}

std::string Describe(const RankView& rank) {
  return absl::StrCat("rank ", rank.identity.rank, " of job \"", rank.identity.job_name, "\" (run ",
                      rank.identity.run_id.substr(0, 8), ", slot ", rank.slot, ", pid ", rank.identity.process_id, ")");
}

}  // namespace

ShimListener::ShimListener(ListeningSocket socket, const ListenerOptions& options, const Clock* clock, Registry* registry,
                           RejectionCounts* rejections, ListenerCallbacks callbacks)
    : options_(options),
      clock_(clock),
      registry_(registry),
      rejections_(rejections),
      callbacks_(std::move(callbacks)),
      socket_(std::move(socket)),
      next_id_(kFirstClientId),
      log_budget_(kLogLinesPerSecond) {}

absl::StatusOr<std::unique_ptr<ShimListener>> ShimListener::Create(const ListenerOptions& options, const Clock* clock,
                                                                   Registry* registry, RejectionCounts* rejections,
                                                                   ListenerCallbacks callbacks) {
  absl::StatusOr<ListeningSocket> socket = ListeningSocket::Listen(options.socket_path, 0666, kBacklog);
  if (!socket.ok()) return socket.status();
  std::unique_ptr<ShimListener> listener(
      new ShimListener(*std::move(socket), options, clock, registry, rejections, std::move(callbacks)));
  if (absl::Status s = listener->SetUp(); !s.ok()) return s;
  return listener;
}

absl::Status ShimListener::SetUp() {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  timer_ = UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  stop_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_ || !timer_ || !stop_) {
    return absl::UnavailableError(absl::StrCat("cannot set up the loop: ", std::strerror(errno)));
  }
  itimerspec interval{};
  interval.it_interval = absl::ToTimespec(options_.poll_interval);
  interval.it_value = interval.it_interval;
  if (timerfd_settime(timer_.get(), 0, &interval, nullptr) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("poll interval ", absl::FormatDuration(options_.poll_interval), ": ", std::strerror(errno)));
  }
  for (const auto& [fd, id] : {std::pair{socket_.fd(), kListenId}, {timer_.get(), kTimerId}, {stop_.get(), kStopId}}) {
    if (absl::Status s = Watch(epoll_.get(), fd, id); !s.ok()) return s;
  }
  return absl::OkStatus();
}

ShimListener::~ShimListener() {
  for (auto& [id, client] : clients_) bin_.TakeConnection(client.ReleaseSocket());
}

// As epoll_wait. While the bin is full only the clock and Stop() are served.
int ShimListener::Wait(epoll_event* events, int max_count) {
  if (!bin_.full()) return epoll_wait(epoll_.get(), events, max_count, -1);
  pollfd own[] = {{timer_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  if (poll(own, 2, -1) <= 0) return 0;
  int count = 0;
  if (own[0].revents != 0) events[count++].data.u64 = kTimerId;
  if (own[1].revents != 0) events[count++].data.u64 = kStopId;
  return count;
}

void ShimListener::Run() {
  while (!stopping_) {
    epoll_event events[64];
    const int count = Wait(events, 64);
    for (int i = 0; i < count; ++i) {
      switch (const uint64_t id = events[i].data.u64) {
        case kListenId:
          Accept();
          break;
        case kTimerId:
          Tick();
          break;
        case kStopId:
          stopping_ = true;
          break;
        default:
          HandleReadable(id);
      }
    }
    if (const uint64_t generation = registry_->generation(); generation != told_generation_) {
      told_generation_ = generation;
      callbacks_.changed();
    }
  }
}

void ShimListener::Stop() {
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof(one));  // fails only when it is full, and so already set
}

void ShimListener::Accept() {
  for (int i = 0; i < kAcceptsPerRound && !bin_.full(); ++i) {
    UniqueFd socket(accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        rejections_->Add(Rejection::kDescriptorLimit);
        Log(absl::StrCat("cannot accept a trainer: ", std::strerror(errno), "; raise the limit of open files"));
        PauseAccepting(true);
      }
      return;
    }
    ucred peer{};
    socklen_t size = sizeof(peer);
    const bool known = getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    absl::Status status = known ? CheckLimits(peer.uid) : Reject(Rejection::kPeerUnknown, "the kernel does not tell your uid");
    const uint64_t id = next_id_++;
    if (status.ok() && !Watch(epoll_.get(), socket.get(), id, EPOLLIN | EPOLLRDHUP).ok()) {
      status = Reject(Rejection::kDescriptorLimit, "the loop takes no more descriptors; raise the limit of open files");
    }
    if (status.ok()) {
      clients_.try_emplace(id, std::move(socket), static_cast<uint32_t>(peer.uid), static_cast<int32_t>(peer.pid),
                           clock_->Now());
      continue;
    }
    rejections_->Add(RejectionOf(status));
    SendRejectTo(socket.get(), ToWire(RejectionOf(status)), status.message());
    bin_.TakeConnection(std::move(socket));
    Log(status.message());
  }
}

absl::Status ShimListener::CheckLimits(uint32_t user_id) const {
  if (clients_.size() >= options_.max_clients) {
    return Reject(Rejection::kClientLimit, absl::StrCat("too many clients: ", clients_.size(), "; raise --max_clients"));
  }
  const auto own = static_cast<size_t>(std::count_if(
      clients_.begin(), clients_.end(), [user_id](const auto& client) { return client.second.user_id() == user_id; }));
  if (own < options_.max_clients_per_user) return absl::OkStatus();
  return Reject(Rejection::kUserLimit,
                absl::StrCat("too many clients of uid ", user_id, ": ", own, "; raise --max_clients_per_user"));
}

// Without descriptors the socket stays readable and would spin the loop.
void ShimListener::PauseAccepting(bool pause) {
  if (accept_paused_ == pause) return;
  epoll_event event{};
  event.events = pause ? 0u : static_cast<uint32_t>(EPOLLIN);
  event.data.u64 = kListenId;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket_.fd(), &event) == 0) accept_paused_ = pause;
}

void ShimListener::Tick() {
  uint64_t expirations;
  (void)!read(timer_.get(), &expirations, sizeof(expirations));
  const absl::Time now = clock_->Now();
  if (now >= log_refill_) {
    log_budget_ = kLogLinesPerSecond;
    log_refill_ = now + absl::Seconds(1);
  }
  PauseAccepting(false);
  bin_.Nudge();
  registry_->Tick();
  options_.alive(clock_->MonotonicNs());
  OfferPolicies();
  const absl::Time latest = now - options_.hello_timeout;
  for (auto at = clients_.begin(); at != clients_.end();) {
    const auto& [id, client] = *at++;
    if (client.connection() || client.accepted() > latest) continue;
    DropWith(client,
             Reject(Rejection::kHelloTimeout, absl::StrCat("no Hello within ", absl::FormatDuration(options_.hello_timeout))));
    Forget(id, Ending::kDisconnected);
  }
}

// A socket that is full is tried again at the next tick.
bool ShimListener::OfferPolicy(ShimClient& client) {
  if (policies_ == nullptr || !client.connection()) return true;
  const link::PolicyFrame policy = policies_->FrameFor(client.job(), client.launch_id());
  return policy.version == client.offered_version() || policy.version == 0 || client.SendPolicy(policy);
}

void ShimListener::OfferPolicies() {
  if (policies_ == nullptr) return;
  const uint64_t generation = policies_->generation();
  if (generation == offered_generation_) return;
  bool all = true;
  for (auto& [id, client] : clients_) all &= OfferPolicy(client);
  offered_generation_ = all ? generation : kNotOffered;
}

void ShimListener::HandleReadable(uint64_t id) {
  Packet packet;
  while (!bin_.full()) {
    const auto client = clients_.find(id);
    if (client == clients_.end()) return;
    client->second.Receive(packet);
    if (packet.kind == Packet::Kind::kNothing) return;
    const bool keep = packet.kind == Packet::Kind::kData && HandlePacket(id, client->second, packet);
    for (UniqueFd& descriptor : packet.descriptors) bin_.Take(std::move(descriptor));
    if (!keep) return Forget(id, Ending::kDisconnected);
  }
}

bool ShimListener::HandlePacket(uint64_t id, ShimClient& client, Packet& packet) {
  absl::StatusOr<TrainerFrame> frame = ParseTrainerFrame(packet.view(), packet.truncated);
  if (!frame.ok()) return DropWith(client, frame.status());
  const bool is_hello = std::holds_alternative<link::HelloFrame>(*frame);
  if (absl::Status s = CheckDescriptors(packet, is_hello); !s.ok()) return DropWith(client, s);
  if (is_hello) return HandleHello(id, client, packet);
  if (!client.connection()) return DropWith(client, Reject(Rejection::kHelloMissing, "Goodbye before Hello"));
  Forget(id, std::get<link::GoodbyeFrame>(*frame).failed == 1 ? Ending::kGoodbyeFailed : Ending::kGoodbye);
  return true;
}

absl::Status ShimListener::CheckDescriptors(const Packet& packet, bool is_hello) const {
  const size_t count = packet.descriptors.size();
  const size_t expected = is_hello ? 1 : 0;
  if (packet.descriptors_truncated) {
    return Reject(Rejection::kDescriptorLimit, "this daemon can open no more files; raise its limit of open files");
  }
  if (count > expected) {
    return Reject(Rejection::kDescriptorSurplus,
                  absl::StrCat(is_hello ? "Hello" : "Goodbye", " came with ", count, " descriptors, not ", expected));
  }
  if (count < expected) {
    return Reject(Rejection::kDescriptorMissing, "Hello came without a descriptor; attach the stats page's memfd");
  }
  return absl::OkStatus();
}

bool ShimListener::HandleHello(uint64_t id, ShimClient& client, const Packet& packet) {
  if (client.connection()) return DropWith(client, Reject(Rejection::kHelloTwice, "a second Hello on one connection"));
  // Two attempts: the rank's former connection may have ended without its event having been handled.
  for (int attempt = 0;; ++attempt) {
    absl::StatusOr<std::unique_ptr<PageMapping>> mapping = PageMapping::Map(packet.descriptors.front().get());
    if (!mapping.ok()) return DropWith(client, mapping.status());
    absl::StatusOr<Registration> registration = registry_->Register(client.user_id(), *std::move(mapping), client.process_id());
    if (registration.ok()) {
      client.set_connection(registration->connection);
      client.set_job(std::move(registration->job), std::move(registration->launch_id));
      client.SendWelcome(registration->slot, options_.version);
      if (!OfferPolicy(client)) offered_generation_ = kNotOffered;
      return true;
    }
    if (attempt > 0 || RejectionOf(registration.status()) != Rejection::kRankDuplicate) {
      return DropWith(client, registration.status());
    }
    std::vector<uint64_t> others;
    for (const auto& [other, other_client] : clients_) {
      if (other != id && other_client.connection()) others.push_back(other);
    }
    for (const uint64_t other : others) HandleReadable(other);
  }
}

bool ShimListener::DropWith(const ShimClient& client, const absl::Status& why) {
  const Rejection reason = RejectionOf(why);
  rejections_->Add(reason);
  client.SendReject(ToWire(reason), why.message());
  Log(absl::StrCat("rejected a client of uid ", client.user_id(), " (", std::string(Name(reason)), "): ", why.message()));
  return false;
}

void ShimListener::Forget(uint64_t id, Ending ending) {
  const auto client = clients_.find(id);
  const std::optional<uint64_t> connection = client->second.connection();
  bin_.TakeConnection(client->second.ReleaseSocket());
  clients_.erase(client);
  if (!connection) return;
  const std::optional<RankView> ended = registry_->End(*connection, ending);
  if (ended && ended->state == RankState::kLost) Log(absl::StrCat("lost ", Describe(*ended)));
  if (ended && ended->state == RankState::kFailed) Log(absl::StrCat(Describe(*ended), " failed"));
}

void ShimListener::Log(absl::string_view line) {
  if (log_budget_ <= 0) return;
  --log_budget_;
  callbacks_.log(line);
}

}  // namespace gradgate
