#include "tests/sim/collectives.h"

#include <algorithm>

#include "tests/sim/world.h"

namespace gradgate::sim {

uint32_t Collectives::Issue(uint32_t rank, uint32_t channel, Kind kind, uint32_t shape, const Payload& payload) {
  const uint32_t ticket = members_[rank].next[channel]++;
  std::vector<Slot>& slots = slots_[channel];
  if (ticket == slots.size()) slots.push_back({.kind = kind, .shape = shape, .payload = {}});
  Slot& slot = slots[ticket];
  if (slot.issued++ == 0) {
    slot.payload = payload;
  } else if (slot.kind != kind || slot.shape != shape) {
    slot.lost = true;
    if (s_.rogue == Rogue::kNone) {
      world_.book().Fail("collectives", "rank " + std::to_string(rank) + " issues " +
                                            (kind == Kind::kBallot ? "a ballot" : "a bucket") + " of shape " +
                                            std::to_string(shape) + " where others issue " +
                                            (slot.kind == Kind::kBallot ? "a ballot" : "a bucket") + " of shape " +
                                            std::to_string(slot.shape));
    }
  } else if (kind == Kind::kBallot) {
    for (uint32_t i = 0; i < Ballot::kWords; ++i) slot.payload.words[i] = std::max(slot.payload.words[i], payload.words[i]);
  } else {
    for (uint32_t i = 0; i < kTensors; ++i)
      slot.payload.gradient[i] = (slot.payload.gradient[i] + payload.gradient[i]) % kPrime;
  }
  if (slot.issued == s_.ranks && !slot.lost) Complete(channel, ticket);
  return ticket;
}

void Collectives::Complete(uint32_t channel, uint32_t ticket) {
  Slot& slot = slots_[channel][ticket];
  if (left_ > 0 && world_.random().Percent(50)) {
    slot.lost = true;
    return;
  }
  slot.done_at = world_.now() + 1 + world_.random().Below(4);
  slot.left_when_done = left_;
  for (uint32_t rank = 0; rank < s_.ranks; ++rank) {
    const Member& m = members_[rank];
    if (m.waiting && m.channel == channel && m.ticket == ticket) world_.Wake(rank, slot.done_at + world_.random().Below(3));
  }
}

Outcome Collectives::Await(uint32_t rank, uint32_t channel, uint32_t ticket, int64_t deadline) {
  Member& m = members_[rank];
  const Slot& slot = slots_[channel][ticket];
  const int64_t now = world_.now();
  m.waiting = false;
  if (slot.done_at != 0) {
    // The result was on its way when somebody left: it reaches some ranks and others not.
    if (slot.left_when_done != left_ && world_.random().Percent(20)) {
      ++world_.book().coverage.lost_results;
      return Outcome::kBroken;
    }
    if (now >= slot.done_at) return Outcome::kDone;
  } else {
    if (now >= m.torn_at) return Outcome::kBroken;
    if (now >= deadline) return Outcome::kLate;
  }
  m.waiting = true;
  m.channel = channel;
  m.ticket = ticket;
  world_.Wake(rank, slot.done_at != 0 ? slot.done_at : std::min(deadline, m.torn_at));
  return Outcome::kWaiting;
}

void Collectives::Leave(uint32_t rank) {
  if (members_[rank].left) return;
  members_[rank].left = true;
  members_[rank].waiting = false;
  ++left_;
  for (uint32_t other = 0; other < s_.ranks; ++other) {
    Member& m = members_[other];
    if (m.left || world_.random().Percent(30)) continue;
    m.torn_at = std::min(m.torn_at, world_.now() + 1 + world_.random().Below(50));
    if (m.waiting && slots_[m.channel][m.ticket].done_at == 0) world_.Wake(other, m.torn_at);
  }
}

}  // namespace gradgate::sim
