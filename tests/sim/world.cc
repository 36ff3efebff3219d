#include "tests/sim/world.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <functional>

#include "tests/sim/ledger_rank.h"
#include "tests/sim/session_rank.h"

namespace gradgate::sim {

World::World(const Scenario& scenario, std::vector<std::string>* schedule, DeskMaker desk_maker)
    : s_(scenario),
      schedule_(schedule),
      random_(scenario.seed ^ 0x5eed),
      book_(scenario),
      collectives_(*this, scenario),
      nodes_(*this, scenario, desk_maker) {
  queue_.reserve(64);
  for (uint32_t rank = 0; rank < s_.ranks; ++rank) {
    if (s_.path == Path::kSession) ranks_.push_back(std::make_unique<SessionRank>(*this, s_, rank));
    if (s_.path == Path::kLedger) ranks_.push_back(std::make_unique<LedgerRank>(*this, s_, rank));
  }
}

void World::Push(const Event& event) {
  queue_.push_back(event);
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>{});
}

void World::Wake(uint32_t rank, int64_t time) {
  wake_order_[rank] = ++order_;
  Push({time, order_, true, {}, rank, 0});
}

void World::Queue(int64_t time, NodeEvent event, uint32_t who, uint64_t value) {
  Push({time, ++order_, false, event, who, value});
}

void World::Run() {
  nodes_.Plan();
  uint32_t running = s_.ranks;
  for (uint32_t rank = 0; rank < s_.ranks; ++rank) ranks_[rank]->Start();
  while (running > 0 && !queue_.empty() && !book_.broken()) {
    const Event event = queue_.front();
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>{});
    queue_.pop_back();
    now_ = event.time;
    if (!event.of_rank) {
      nodes_.Handle(event.event, event.who, event.value);
    } else if (event.order == wake_order_[event.who] && ranks_[event.who]->end() == Rank::End::kRunning) {
      ranks_[event.who]->Act();
      running -= ranks_[event.who]->end() != Rank::End::kRunning;
    }
  }
  if (!book_.broken()) JudgeEnd();
}

void World::JudgeEnd() {
  bool all_done = true;
  for (uint32_t rank = 0; rank < s_.ranks; ++rank) {
    const Rank::End end = ranks_[rank]->end();
    if (end == Rank::End::kRunning) book_.Fail("stuck", "rank " + std::to_string(rank) + " waits for ever");
    if (end == Rank::End::kDone && s_.rogue != Rogue::kNone) {
      book_.Fail("silent", "rank " + std::to_string(rank) + " ends well, although rank " + std::to_string(s_.rogue_rank) +
                               " went its own way in iteration " + std::to_string(s_.rogue_iteration));
    }
    all_done &= end == Rank::End::kDone;
  }
  ++(all_done ? book_.coverage.jobs_done : book_.coverage.jobs_failed);
}

void World::Say(const char* format, ...) {
  if (schedule_ == nullptr) return;
  char text[256];
  const int at = std::snprintf(text, sizeof(text), "t=%-6lld ", static_cast<long long>(now_));
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + at, sizeof(text) - static_cast<size_t>(at), format, arguments);
  va_end(arguments);
  schedule_->emplace_back(text);
}

Outcomes RunSeed(uint64_t seed, std::vector<std::string>* schedule, DeskMaker desk_maker) {
  const Scenario scenario = MakeScenario(seed);
  World world(scenario, schedule, desk_maker);
  world.Run();
  return {world.book().violation(), world.book().coverage};
}

}  // namespace gradgate::sim
