#include "tests/sim/scenario.h"

#include <algorithm>
#include <cstdio>

#include "tests/sim/random.h"

namespace gradgate::sim {
namespace {

constexpr uint32_t kActionsPerMicroStep = 5;

void DrawJob(Random& random, Scenario* s) {
  s->path = random.Percent(50) ? Path::kSession : Path::kLedger;
  s->ranks = random.Percent(50) ? random.Between(1, 3) : random.Between(1, kMaxRanks);
  s->daemons = random.Between(1, std::min(s->ranks, kMaxDaemons));
  s->iterations = random.Percent(70) ? random.Between(4, 10) : random.Between(10, 24);
  s->accumulate = random.Between(1, 4);
  s->declared = random.Percent(80);
  s->variable = random.Percent(35);
  s->every_micro_step = random.Percent(30) && !(s->variable && s->path == Path::kLedger);
  s->cut_short_percent = random.Percent(50) ? 0 : random.Between(10, 60);
  s->predicts = s->path == Path::kLedger && !s->declared && !s->variable && random.Percent(70);
  if (s->predicts) s->cut_short_percent = random.Between(20, 60);
  s->proposals = random.Percent(5) ? 0 : random.Between(1, 6);
  s->proposed_before = random.Percent(30);
}

void DrawRanks(Random& random, Scenario* s) {
  const bool speeds_differ = random.Percent(40);
  const bool polls_anywhere = random.Percent(30);
  const bool votes_again = random.Percent(30);
  for (uint32_t rank = 0; rank < s->ranks; ++rank) {
    RankTraits t;
    t.daemon = rank % s->daemons;
    t.slowness = speeds_differ ? random.Between(1, 10) : 1;
    t.polls_anywhere = polls_anywhere && random.Percent(70);
    t.votes_again = votes_again && random.Percent(70);
    t.takes_last = random.Percent(50);
    s->traits.push_back(t);
  }
  const auto one = [&]() -> RankTraits& { return s->traits[random.Below(s->ranks)]; };
  if (random.Percent(8)) one().old_shim = true;
  if (random.Percent(15)) one().picky = true;
  if (random.Percent(10)) {
    for (RankTraits& t : s->traits) t.picky = true;
  }
}

void DrawNodeFaults(Random& random, Scenario* s) {
  s->watch_delay = random.Percent(50) ? 5 : random.Between(1, 200);
  s->frame_delay = random.Percent(50) ? 2 : random.Between(1, 100);
  if (random.Percent(20)) return;
  s->sharing = random.Percent(85) ? Sharing::kShared : random.Percent(50) ? Sharing::kSplit : Sharing::kApart;
  if (random.Percent(30)) s->frame_loss_percent = random.Between(5, 40);
  if (random.Percent(30)) s->frame_copy_percent = random.Between(5, 60);
  if (random.Percent(15)) s->frame_forge_percent = random.Between(5, 30);
  if (random.Percent(40)) s->daemon_restarts = random.Between(1, 4);
  if (random.Percent(20)) s->daemon_deaths = 1;
  if (random.Percent(25)) s->store_cuts = random.Between(1, 2);
  if (random.Percent(20)) s->store_outages = 1;
  if (random.Percent(10)) s->store_wipes = 1;
}

void DrawJobFaults(Random& random, Scenario* s) {
  if (s->ranks == 1) return;
  const uint32_t actions = s->iterations * s->accumulate * kActionsPerMicroStep;
  if (random.Percent(15)) s->traits[random.Below(s->ranks)].dies_at = random.Between(1, actions);
  if (random.Percent(8)) {
    RankTraits& t = s->traits[random.Below(s->ranks)];
    t.stops_at = random.Between(1, actions);
    t.stops_for = random.Percent(50) ? kDeadline / 2 : 3 * kDeadline;
  }
  if (!random.Percent(6)) return;
  s->rogue = static_cast<Rogue>(random.Between(1, 3));
  s->rogue_rank = random.Below(s->ranks);
  s->rogue_iteration = random.Below(s->iterations - 1);
  // Where a window is one micro-step the modes are the same but in name, and an empty window tells nothing.
  s->variable = false;
}

}  // namespace

bool Scenario::job_fault() const {
  return rogue != Rogue::kNone || std::any_of(traits.begin(), traits.end(), [](const RankTraits& t) {
           return t.dies_at != 0 || (t.stops_at != 0 && t.stops_for > kDeadline);
         });
}

int64_t Scenario::horizon() const {
  uint32_t slowest = 1;
  for (const RankTraits& t : traits) slowest = std::max(slowest, t.slowness);
  return static_cast<int64_t>(iterations) * (accumulate * 12 + 15) * slowest;
}

uint32_t Scenario::Planned(uint32_t iteration, uint32_t rank) const {
  const uint64_t common = Mix(seed ^ (iteration + 1) * 0x10001);
  if (variable) return Mix(common + rank + 1) % (accumulate + 1);
  if (common % 100 >= cut_short_percent) return accumulate;
  return static_cast<uint32_t>(common >> 32) % (accumulate + 1);
}

bool Scenario::LooksAhead(uint32_t iteration, uint32_t rank) const {
  return !predicts && Mix(seed ^ (iteration + 1) * 0x20003 ^ static_cast<uint64_t>(rank) << 40) % 3 == 0;
}

Scenario MakeScenario(uint64_t seed) {
  Random random(seed);
  Scenario s;
  s.seed = seed;
  DrawJob(random, &s);
  DrawRanks(random, &s);
  DrawNodeFaults(random, &s);
  DrawJobFaults(random, &s);
  return s;
}

std::string Describe(const Scenario& s) {
  constexpr const char* kSharing[] = {"one store", "two stores", "a store on each node"};
  constexpr const char* kRogue[] = {"", ", a rank changes its mode by itself", ", a rank counts a window of its own",
                                    ", a rank counts a round of its own"};
  char text[512];
  std::snprintf(
      text, sizeof(text),
      "seed %llu: %s, %u ranks, %u daemons, %s, %u iterations of %u micro-steps%s%s, given %s, %u proposals; frames lost "
      "%u%% copied %u%% forged %u%%, restarts %u, deaths %u, cuts %u, outages %u, wipes %u%s\n",
      static_cast<unsigned long long>(s.seed), s.path == Path::kSession ? "session" : "ledger", s.ranks, s.daemons,
      kSharing[static_cast<uint32_t>(s.sharing)], s.iterations, s.accumulate,
      s.declared   ? ""
      : s.predicts ? " (predicted)"
                   : " (undeclared)",
      s.variable            ? ", variable"
      : s.cut_short_percent ? ", some cut short"
                            : "",
      s.every_micro_step ? "every_micro_step" : "window", s.proposals, s.frame_loss_percent, s.frame_copy_percent,
      s.frame_forge_percent, s.daemon_restarts, s.daemon_deaths, s.store_cuts, s.store_outages, s.store_wipes,
      kRogue[static_cast<uint32_t>(s.rogue)]);
  std::string out = text;
  for (uint32_t rank = 0; rank < s.ranks; ++rank) {
    const RankTraits& t = s.traits[rank];
    std::snprintf(text, sizeof(text), "  rank %u: daemon %u, slowness %u%s%s%s%s", rank, t.daemon, t.slowness,
                  t.old_shim ? ", old shim" : "", t.picky ? ", rejects fp16" : "", t.polls_anywhere ? ", polls anywhere" : "",
                  t.votes_again ? ", votes again" : "");
    out += text;
    if (t.dies_at) out += ", dies at action " + std::to_string(t.dies_at);
    if (t.stops_at) out += ", stops at action " + std::to_string(t.stops_at) + " for " + std::to_string(t.stops_for);
    out += "\n";
  }
  return out;
}

Settings SettingsOf(const SyncPolicy& policy, const Scenario& given) {
  const bool every =
      policy.sync_mode == SyncMode::kUnspecified ? given.every_micro_step : policy.sync_mode == SyncMode::kEveryMicroStep;
  Settings settings;
  settings.every_micro_step = every || policy.enforcement == Enforcement::kAudit;
  if (policy.bucket_bytes != 0) settings.buckets = 1 + static_cast<uint32_t>(policy.bucket_bytes / 4096 % 3);
  if (policy.wire_type != WireType::kUnspecified) settings.wire = policy.wire_type;
  return settings;
}

}  // namespace gradgate::sim
