// The nodes of the simulated job: stores that give revisions, daemons that watch them late and offer what they saw, and the
// sockets to the ranks, on which frames are late, lost, copied or forged.

#ifndef GRADGATE_TESTS_SIM_NODES_H_
#define GRADGATE_TESTS_SIM_NODES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "proto/link/frames.h"
#include "shim/core/policy_stage.h"
#include "tests/sim/scenario.h"

namespace gradgate::sim {

class World;

enum class NodeEvent : uint8_t {
  kPropose,     // at daemon `who`
  kWatch,       // daemon `who` hears of its store's entry `value`
  kDaemonDown,  // value 1: for good
  kDaemonUp,
  kCut,  // daemon `who` from its store
  kHeal,
  kStoreDown,
  kStoreUp,
  kWipe,
  kConnect,  // rank `who`
};

struct Packet {
  int64_t arrives_at = 0;
  uint32_t bytes = 0;
  std::array<unsigned char, sizeof(link::PolicyFrame)> data;
};

link::PolicyFrame FrameOf(const SyncPolicy& policy);
SyncPolicy PolicyOf(const link::PolicyFrame& frame);

// What a daemon makes of its copy of the store; lost when it goes down.
class Desk {
 public:
  virtual ~Desk() = default;
  // The copy has changed: this is under the job's key; version 0: nothing.
  virtual void Copied(const SyncPolicy& policy) = 0;
  // For the job's ranks; version 0: nothing.
  virtual link::PolicyFrame Offered() const = 0;
};
using DeskMaker = std::unique_ptr<Desk> (*)();
// The simplest one.
std::unique_ptr<Desk> MakeModelDesk();

class Nodes {
 public:
  Nodes(World& world, const Scenario& scenario, DeskMaker desk_maker);

  // Puts everything that will go wrong, and every proposal, into the world's queue.
  void Plan();
  void Handle(NodeEvent event, uint32_t who, uint64_t value);

  // The next frame that has arrived for `rank`; false: none.
  bool Take(uint32_t rank, Packet* packet);
  // The rank closes its connection, and will try again.
  void HangUp(uint32_t rank);

 private:
  struct Store {
    bool up = true;
    uint64_t revision = 0;
    std::vector<SyncPolicy> entries;  // each change; version 0: gone
  };
  struct Daemon {
    uint32_t store = 0;
    bool up = true;
    bool dead = false;
    bool cut = false;
    uint64_t seen = 0;  // entries of the store
    std::unique_ptr<Desk> desk;
  };
  struct Link {
    bool connected = true;
    std::deque<Packet> packets;
  };

  SyncPolicy Draw(uint64_t version);
  void Put(uint32_t store, const SyncPolicy& policy);
  void Propose(uint32_t daemon);
  void Watch(uint32_t daemon, uint64_t entry);
  void Down(uint32_t daemon, bool for_good);
  void Up(uint32_t daemon);
  void Resync(uint32_t daemon);
  bool Reaches(const Daemon& daemon) const { return daemon.up && !daemon.cut && stores_[daemon.store].up; }
  void Offer(uint32_t daemon);
  void Send(uint32_t rank, const link::PolicyFrame& frame);
  void Push(uint32_t rank, const link::PolicyFrame& frame);
  void Forge(uint32_t rank, const link::PolicyFrame& frame);
  void Drop(uint32_t rank);

  World& world_;
  const Scenario& s_;
  const DeskMaker desk_maker_;
  std::vector<Store> stores_;
  std::vector<Daemon> daemons_;
  std::array<Link, kMaxRanks> links_;
};

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_NODES_H_
