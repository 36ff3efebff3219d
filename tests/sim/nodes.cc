#include "tests/sim/nodes.h"

#include <algorithm>
#include <cstring>

#include "tests/sim/world.h"

namespace gradgate::sim {
namespace {

class ModelDesk final : public Desk {
 public:
  void Copied(const SyncPolicy& policy) override { policy_ = policy; }
  link::PolicyFrame Offered() const override { return policy_.version == 0 ? link::PolicyFrame{} : FrameOf(policy_); }

 private:
  SyncPolicy policy_;
};

}  // namespace

std::unique_ptr<Desk> MakeModelDesk() { return std::make_unique<ModelDesk>(); }

link::PolicyFrame FrameOf(const SyncPolicy& policy) {
  link::PolicyFrame frame{};
  frame.header = link::MakeHeader(link::FrameType::kPolicy, sizeof(frame));
  frame.version = policy.version;
  frame.bucket_bytes = policy.bucket_bytes;
  frame.sync_mode = static_cast<uint32_t>(policy.sync_mode);
  frame.wire_type = static_cast<uint32_t>(policy.wire_type);
  frame.reshard = static_cast<uint32_t>(policy.reshard);
  frame.enforcement = static_cast<uint32_t>(policy.enforcement);
  frame.content_hash = link::PolicyContentHash(frame);
  return frame;
}

SyncPolicy PolicyOf(const link::PolicyFrame& frame) {
  return {frame.version,
          frame.content_hash,
          frame.bucket_bytes,
          static_cast<SyncMode>(frame.sync_mode),
          static_cast<WireType>(frame.wire_type),
          static_cast<Reshard>(frame.reshard),
          static_cast<Enforcement>(frame.enforcement)};
}

Nodes::Nodes(World& world, const Scenario& scenario, DeskMaker desk_maker)
    : world_(world), s_(scenario), desk_maker_(desk_maker), daemons_(scenario.daemons) {
  stores_.resize(s_.sharing == Sharing::kShared ? 1 : s_.sharing == Sharing::kSplit ? 2 : s_.daemons);
  for (uint32_t i = 0; i < s_.daemons; ++i) {
    daemons_[i].store = i % stores_.size();
    daemons_[i].desk = desk_maker_();
  }
}

void Nodes::Plan() {
  Random& random = world_.random();
  const auto horizon = static_cast<uint32_t>(s_.horizon());
  if (s_.proposed_before) Propose(random.Below(s_.daemons));
  const auto any_time = [&] { return static_cast<int64_t>(random.Below(horizon)); };
  const auto for_a_while = [&](NodeEvent begin, NodeEvent end, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t who = random.Below(s_.daemons);
      const int64_t from = any_time();
      world_.Queue(from, begin, who, 0);
      world_.Queue(from + 1 + random.Below(horizon / 3 + 1), end, who, 0);
    }
  };
  for (uint32_t i = 0; i < s_.proposals; ++i) world_.Queue(any_time(), NodeEvent::kPropose, random.Below(s_.daemons), 0);
  for_a_while(NodeEvent::kDaemonDown, NodeEvent::kDaemonUp, s_.daemon_restarts);
  for_a_while(NodeEvent::kCut, NodeEvent::kHeal, s_.store_cuts);
  for_a_while(NodeEvent::kStoreDown, NodeEvent::kStoreUp, s_.store_outages);
  for (uint32_t i = 0; i < s_.daemon_deaths; ++i) world_.Queue(any_time(), NodeEvent::kDaemonDown, random.Below(s_.daemons), 1);
  for (uint32_t i = 0; i < s_.store_wipes; ++i) world_.Queue(any_time(), NodeEvent::kWipe, random.Below(s_.daemons), 0);
}

void Nodes::Handle(NodeEvent event, uint32_t who, uint64_t value) {
  switch (event) {
    case NodeEvent::kPropose:
      return Propose(who);
    case NodeEvent::kWatch:
      return Watch(who, value);
    case NodeEvent::kDaemonDown:
      return Down(who, value == 1);
    case NodeEvent::kDaemonUp:
      return Up(who);
    case NodeEvent::kCut:
      daemons_[who].cut = true;
      return world_.Say("daemon %u is cut off from its store", who);
    case NodeEvent::kHeal:
      daemons_[who].cut = false;
      world_.Say("daemon %u reaches its store again", who);
      return Resync(who);
    case NodeEvent::kStoreDown:
      stores_[daemons_[who].store].up = false;
      return world_.Say("the store of daemon %u is down", who);
    case NodeEvent::kStoreUp:
      stores_[daemons_[who].store].up = true;
      world_.Say("the store of daemon %u is up", who);
      for (uint32_t i = 0; i < s_.daemons; ++i) Resync(i);
      return;
    case NodeEvent::kWipe:
      world_.Say("the store of daemon %u is wiped, its revisions begin again", who);
      Put(daemons_[who].store, {});
      stores_[daemons_[who].store].revision = 0;
      return;
    case NodeEvent::kConnect:
      if (!daemons_[s_.traits[who].daemon].up || links_[who].connected) return;
      links_[who].connected = true;
      return Send(who, daemons_[s_.traits[who].daemon].desk->Offered());
  }
}

SyncPolicy Nodes::Draw(uint64_t version) {
  Random& random = world_.random();
  SyncPolicy policy;
  policy.version = version;
  policy.bucket_bytes = random.Percent(40) ? 0 : 4096 * random.Between(1, 3);
  policy.sync_mode = static_cast<SyncMode>(random.Below(3));
  policy.wire_type = static_cast<WireType>(random.Below(4));
  policy.enforcement = random.Percent(80)   ? Enforcement::kUnspecified
                       : random.Percent(50) ? Enforcement::kAudit
                                            : Enforcement::kEnforce;
  return PolicyOf(FrameOf(policy));
}

void Nodes::Put(uint32_t store, const SyncPolicy& policy) {
  stores_[store].entries.push_back(policy);
  for (uint32_t i = 0; i < s_.daemons; ++i) {
    if (daemons_[i].store != store || !Reaches(daemons_[i])) continue;
    world_.Queue(world_.now() + 1 + world_.random().Below(s_.watch_delay), NodeEvent::kWatch, i, stores_[store].entries.size());
  }
}

// Where stores do not know of each other, somebody sets on each.
void Nodes::Propose(uint32_t daemon) {
  if (!Reaches(daemons_[daemon])) return world_.Say("daemon %u cannot take a proposal, its store is out of reach", daemon);
  Random& random = world_.random();
  const uint32_t own = daemons_[daemon].store;
  const uint64_t version = stores_[own].revision + 1 + random.Below(3);
  const SyncPolicy policy = Draw(version);
  for (uint32_t store = 0; store < stores_.size(); ++store) {
    if (store != own && random.Percent(30)) continue;
    stores_[store].revision = std::max(stores_[store].revision, version);
    const SyncPolicy here = store == own || random.Percent(50) ? policy : Draw(version);
    world_.Say("version %llu (%llu) is put into store %u by way of daemon %u", static_cast<unsigned long long>(version),
               static_cast<unsigned long long>(here.content_hash % 9973), store, daemon);
    Put(store, here);
  }
}

void Nodes::Watch(uint32_t daemon, uint64_t entry) {
  Daemon& d = daemons_[daemon];
  const Store& store = stores_[d.store];
  if (!Reaches(d) || entry <= d.seen) return;
  if (world_.random().Percent(50)) entry = store.entries.size();  // several changes in one
  d.seen = entry;
  d.desk->Copied(store.entries[entry - 1]);
  world_.Say("daemon %u sees version %llu", daemon, static_cast<unsigned long long>(store.entries[entry - 1].version));
  Offer(daemon);
}

void Nodes::Resync(uint32_t daemon) {
  const Daemon& d = daemons_[daemon];
  if (!Reaches(d)) return;
  world_.Queue(world_.now() + 1 + world_.random().Below(s_.watch_delay), NodeEvent::kWatch, daemon,
               stores_[d.store].entries.size());
}

void Nodes::Down(uint32_t daemon, bool for_good) {
  Daemon& d = daemons_[daemon];
  d.up = false;
  d.dead |= for_good;
  world_.Say("daemon %u %s", daemon, for_good ? "dies" : "goes down");
  for (uint32_t rank = 0; rank < s_.ranks; ++rank) {
    if (s_.traits[rank].daemon == daemon) Drop(rank);
  }
}

// With nothing, or with an old copy, until it hears from its store.
void Nodes::Up(uint32_t daemon) {
  Daemon& d = daemons_[daemon];
  if (d.up || d.dead) return;
  d.up = true;
  d.seen = d.seen > 0 && world_.random().Percent(70) ? world_.random().Below(static_cast<uint32_t>(d.seen) + 1) : 0;
  d.desk = desk_maker_();
  if (d.seen > 0) d.desk->Copied(stores_[d.store].entries[d.seen - 1]);
  world_.Say("daemon %u comes up knowing version %llu", daemon, static_cast<unsigned long long>(d.desk->Offered().version));
  Resync(daemon);
  for (uint32_t rank = 0; rank < s_.ranks; ++rank) {
    if (s_.traits[rank].daemon == daemon)
      world_.Queue(world_.now() + 1 + world_.random().Below(30), NodeEvent::kConnect, rank, 0);
  }
}

void Nodes::Offer(uint32_t daemon) {
  const link::PolicyFrame frame = daemons_[daemon].desk->Offered();
  for (uint32_t rank = 0; rank < s_.ranks; ++rank) {
    if (s_.traits[rank].daemon == daemon && links_[rank].connected) Send(rank, frame);
  }
}

void Nodes::Send(uint32_t rank, const link::PolicyFrame& frame) {
  if (frame.version == 0) return;
  Random& random = world_.random();
  if (random.Percent(s_.frame_loss_percent)) {
    world_.Say("the connection of rank %u breaks, version %llu is lost", rank, static_cast<unsigned long long>(frame.version));
    Drop(rank);
    world_.Queue(world_.now() + 1 + random.Below(60), NodeEvent::kConnect, rank, 0);
    return;
  }
  if (random.Percent(s_.frame_forge_percent)) Forge(rank, frame);
  const uint32_t copies = 1 + (random.Percent(s_.frame_copy_percent) ? random.Between(1, 2) : 0);
  for (uint32_t i = 0; i < copies; ++i) Push(rank, frame);
  if (random.Percent(s_.frame_forge_percent)) Forge(rank, frame);
}

// In the order in which they were sent.
void Nodes::Push(uint32_t rank, const link::PolicyFrame& frame) {
  std::deque<Packet>& packets = links_[rank].packets;
  Packet packet;
  packet.arrives_at = world_.now() + 1 + world_.random().Below(s_.frame_delay);
  if (!packets.empty()) packet.arrives_at = std::max(packet.arrives_at, packets.back().arrives_at);
  packet.bytes = std::min<uint32_t>(frame.header.frame_bytes, sizeof(frame));
  std::memcpy(packet.data.data(), &frame, sizeof(frame));
  packets.push_back(packet);
}

// What a hostile or a broken daemon says.
void Nodes::Forge(uint32_t rank, const link::PolicyFrame& sound) {
  Random& random = world_.random();
  link::PolicyFrame frame = sound;
  switch (random.Below(6)) {
    case 0:  // the same version, another content
      frame = FrameOf(Draw(sound.version));
      break;
    case 1:  // older
      frame = FrameOf(Draw(1 + random.Below(static_cast<uint32_t>(sound.version))));
      break;
    case 2:  // newer than any
      frame = FrameOf(Draw(sound.version + 1 + random.Below(4)));
      break;
    case 3:  // a content that its hash is not of
      frame.bucket_bytes ^= 4096;
      break;
    case 4:
      frame.header.type = 99;
      break;
    default:
      frame.version = random.Percent(50) ? 0 : uint64_t{1} << 63;
  }
  world_.Say("rank %u is sent a forged frame, version %llu", rank, static_cast<unsigned long long>(frame.version));
  Push(rank, frame);
}

// What had arrived can still be read, as a rule.
void Nodes::Drop(uint32_t rank) {
  Link& link = links_[rank];
  link.connected = false;
  const bool keeps = world_.random().Percent(70);
  std::erase_if(link.packets, [&](const Packet& packet) { return !keeps || packet.arrives_at > world_.now(); });
}

void Nodes::HangUp(uint32_t rank) {
  links_[rank].connected = false;
  links_[rank].packets.clear();
  world_.Queue(world_.now() + 1 + world_.random().Below(60), NodeEvent::kConnect, rank, 0);
}

bool Nodes::Take(uint32_t rank, Packet* packet) {
  std::deque<Packet>& packets = links_[rank].packets;
  if (packets.empty() || packets.front().arrives_at > world_.now()) return false;
  *packet = packets.front();
  packets.pop_front();
  return true;
}

}  // namespace gradgate::sim
