// What a seed stands for: the job, its nodes, and what goes wrong. All of it follows from the seed.

#ifndef GRADGATE_TESTS_SIM_SCENARIO_H_
#define GRADGATE_TESTS_SIM_SCENARIO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "shim/core/policy_stage.h"

namespace gradgate::sim {

inline constexpr uint32_t kMaxRanks = 8;
inline constexpr uint32_t kMaxDaemons = 4;
inline constexpr int64_t kDeadline = 1'000'000;  // of every wait of a rank; longer than any honest delay

enum class Path : uint8_t {
  kSession,  // shim/capi/session.cc: windows of several rounds
  kLedger,   // shim/capi/ledger.cc under shim/python's window.py: one ballot in a window
};

enum class Sharing : uint8_t {
  kShared,  // all daemons see one store
  kSplit,   // two stores that do not know of each other
  kApart,   // each daemon has its own
};

enum class Rogue : uint8_t {
  kNone,
  kMode,    // changes its mode by itself
  kWindow,  // counts a window that nobody else has
  kRound,   // counts a round that nobody else has
};

struct RankTraits {
  uint32_t daemon = 0;
  uint32_t slowness = 1;
  bool old_shim = false;        // knows no policy frames
  bool picky = false;           // cannot carry out fp16 on the wire
  bool polls_anywhere = false;  // takes frames at every action, not between windows alone
  bool takes_last = false;      // of several frames that it finds, only the last
  bool votes_again = false;     // now and then encodes its ballot a second time before the first is read
  uint32_t dies_at = 0;         // action; 0: never
  uint32_t stops_at = 0;
  int64_t stops_for = 0;
};

struct Scenario {
  uint64_t seed = 0;
  Path path = Path::kSession;
  uint32_t ranks = 1;
  uint32_t daemons = 1;
  Sharing sharing = Sharing::kShared;
  uint32_t iterations = 1;  // of every rank's loop; each ends at most one window
  uint32_t accumulate = 1;  // micro-steps of a full window
  bool declared = true;     // to the engine
  bool variable = false;    // each rank brings another number
  bool predicts = false;    // where none is declared: ends windows where the last two did, on all ranks
  bool every_micro_step = false;
  uint32_t cut_short_percent = 0;
  uint32_t proposals = 0;
  bool proposed_before = false;  // the stores hold a policy when the job begins
  // Percent of chances that are taken, or counts over the run.
  uint32_t frame_loss_percent = 0;
  uint32_t frame_copy_percent = 0;
  uint32_t frame_forge_percent = 0;
  uint32_t daemon_restarts = 0;
  uint32_t daemon_deaths = 0;
  uint32_t store_cuts = 0;
  uint32_t store_outages = 0;
  uint32_t store_wipes = 0;
  uint32_t watch_delay = 1;  // at most
  uint32_t frame_delay = 1;
  Rogue rogue = Rogue::kNone;
  uint32_t rogue_rank = 0;
  uint32_t rogue_iteration = 0;
  std::vector<RankTraits> traits;

  // A rank does or may do what ends the job.
  bool job_fault() const;
  int64_t horizon() const;  // about how long the run takes
  // Micro-steps that the rank's loop brings.
  uint32_t Planned(uint32_t iteration, uint32_t rank) const;
  // The loop knows the last one of a window that is cut short.
  bool LooksAhead(uint32_t iteration, uint32_t rank) const;
};

Scenario MakeScenario(uint64_t seed);
std::string Describe(const Scenario& s);

// What a rank does under a policy; `given` decides where the policy is silent.
struct Settings {
  bool every_micro_step = false;
  uint32_t buckets = 1;
  WireType wire = WireType::kGradient;

  friend bool operator==(const Settings&, const Settings&) = default;
};
Settings SettingsOf(const SyncPolicy& policy, const Scenario& given);

}  // namespace gradgate::sim

#endif  // GRADGATE_TESTS_SIM_SCENARIO_H_
