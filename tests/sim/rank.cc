#include "tests/sim/rank.h"

#include "shim/link/frame_reader.h"
#include "tests/sim/world.h"

namespace gradgate::sim {
namespace {

unsigned long long Number(uint64_t value) { return value; }

// The content as a short number.
template <typename Integer>
std::string Told(Integer version, Integer content_hash) {
  if (version == 0 && content_hash == 0) return "nothing";
  return "version " + std::to_string(version) + " (" + std::to_string(content_hash % 9973) + ")";
}

// Tensor i is in bucket i, or in the last.
bool InBucket(uint32_t tensor, uint32_t bucket, uint32_t buckets) {
  return tensor == bucket || (bucket + 1 == buckets && tensor > bucket);
}

}  // namespace

Rank::Rank(World& world, const Scenario& scenario, uint32_t rank)
    : world_(world),
      s_(scenario),
      rank_(rank),
      traits_(scenario.traits[rank]),
      engine_(ConfigFor(SettingsOf({}, scenario))),
      settings_(SettingsOf({}, scenario)) {}

WindowConfig Rank::ConfigFor(const Settings& settings) const {
  return {
      .accumulate = s_.declared ? s_.accumulate : 0, .every_micro_step = settings.every_micro_step, .predicted = predicted_};
}

void Rank::Start() {
  world_.book().WindowBegun(rank_, 0, stage_, settings_);
  world_.Wake(rank_, world_.random().Below(10));
}

void Rank::Act() {
  ++actions_;
  if (actions_ == traits_.dies_at) return Die();
  if (actions_ == traits_.stops_at) {
    ++world_.book().coverage.stops;
    world_.Say("rank %u stops for %lld", rank_, static_cast<long long>(traits_.stops_for));
    if (traits_.stops_for > kDeadline) world_.book().Faulted(world_.now());
    return world_.Wake(rank_, world_.now() + traits_.stops_for);
  }
  if (traits_.polls_anywhere && world_.random().Percent(50)) Poll();
  world_.book().Inside(rank_, window(), stage_, settings_);
  Move();
}

void Rank::Pause(uint32_t most) { world_.Wake(rank_, world_.now() + (1 + world_.random().Below(most)) * traits_.slowness); }

void Rank::Finish() {
  world_.Say("rank %u is done after %llu windows", rank_, Number(window()));
  end_ = End::kDone;
}

void Rank::Die() {
  ++world_.book().coverage.deaths;
  world_.Say("rank %u dies in window %llu", rank_, Number(window()));
  world_.book().Faulted(world_.now());
  end_ = End::kDead;
  world_.collectives().Leave(rank_);
}

void Rank::Fail(const char* invariant, const std::string& why) {
  const std::string where = "rank " + std::to_string(rank_) + ", window " + std::to_string(window()) + ": " + why;
  world_.Say("%s", where.c_str());
  if (!s_.job_fault()) world_.book().Fail(invariant, where);
  if (traits_.stops_at == 0) world_.book().Ended(rank_, world_.now());
  engine_.Fail();
  end_ = End::kFailed;
  world_.collectives().Leave(rank_);
}

Action Rank::Granted(const Decision& decision) {
  if (decision.action == Action::kRefuse) {
    world_.book().Fail("refused", "rank " + std::to_string(rank_) + ", window " + std::to_string(window()) + ": " +
                                      std::string(Explain(decision.refusal)));
  }
  return decision.action;
}

Gradient Rank::Contribute() {
  Gradient brought;
  for (uint32_t i = 0; i < kTensors; ++i) {
    brought[i] = world_.random().Next() % kPrime;
    gradient_[i] = (gradient_[i] + brought[i]) % kPrime;
  }
  world_.book().Contributed(window(), brought);
  return brought;
}

void Rank::IssueBallot(uint32_t channel, Ballot ballot) {
  const PolicyStage::Ticket ticket = stage_.Vote();
  if (traits_.votes_again && world_.random().Percent(30)) {
    Poll();
    (void)stage_.Vote();
  }
  ballot.policy = ticket.version;
  ballot.policy_hash = ticket.content_hash;
  if (world_.telling()) {
    world_.Say("rank %u, window %llu, round %llu: votes for %s; %llu micro-steps%s%s", rank_, Number(window()),
               Number(static_cast<uint64_t>(ballot.round)), Told(ticket.version, ticket.content_hash).c_str(),
               Number(static_cast<uint64_t>(ballot.micro_steps)), ballot.contributes ? ", contributes" : "",
               ballot.closes ? ", closes" : "");
  }
  ballot_ticket_ = world_.collectives().Issue(rank_, channel, Kind::kBallot, 0, {ballot.Encode(), {}});
}

BallotResult Rank::ReadBallot(uint32_t channel) {
  const BallotResult result(world_.collectives().result(channel, ballot_ticket_).words);
  stage_.Read({result.min().policy, result.min().policy_hash}, {result.max().policy, result.max().policy_hash});
  ++world_.book().coverage.ballots;
  world_.book().coverage.split_votes += result.min().policy != result.max().policy;
  if (world_.telling()) {
    const int64_t low = result.min().policy, high = result.max().policy;
    const std::string told = low != high ? "versions " + std::to_string(low) + " to " + std::to_string(high)
                             : result.min().policy_hash != result.max().policy_hash
                                 ? "version " + std::to_string(low) + " of all, with different contents"
                                 : Told(low, result.max().policy_hash) + " of all";
    world_.Say("rank %u, window %llu: reads %s", rank_, Number(window()), told.c_str());
  }
  return result;
}

bool Rank::Done(uint32_t channel, uint32_t ticket) {
  if (deadline_ == 0) deadline_ = world_.now() + kDeadline;
  switch (world_.collectives().Await(rank_, channel, ticket, deadline_)) {
    case Outcome::kDone:
      deadline_ = 0;
      return true;
    case Outcome::kWaiting:
      return false;
    case Outcome::kBroken:
      Fail("stuck", "the connection between the ranks broke");
      return false;
    case Outcome::kLate:
      break;
  }
  Fail("stuck", "a collective was not done by its deadline");
  return false;
}

void Rank::LaunchBucket(uint32_t channel) {
  if (bucket_next_ == kTensors) return world_.book().Fail("refused", "a rank launches more buckets than it has");
  reductions_ += bucket_next_ == 0;
  Payload payload{};
  for (uint32_t i = 0; i < kTensors; ++i) {
    if (InBucket(i, bucket_next_, settings_.buckets)) payload.gradient[i] = gradient_[i];
  }
  const uint32_t shape = bucket_next_ | settings_.buckets << 8 | static_cast<uint32_t>(settings_.wire) << 16;
  bucket_tickets_[bucket_next_] = world_.collectives().Issue(rank_, channel, Kind::kBucket, shape, payload);
  ++bucket_next_;
}

bool Rank::BucketsDone(uint32_t channel) {
  while (buckets_done_ < bucket_next_) {
    const uint32_t ticket = bucket_tickets_[buckets_done_];
    if (!Done(channel, ticket)) return false;
    const uint64_t inverse = InverseOf(s_.ranks);
    for (uint32_t i = 0; i < kTensors; ++i) {
      if (InBucket(i, buckets_done_, settings_.buckets))
        gradient_[i] = world_.collectives().result(channel, ticket).gradient[i] * inverse % kPrime;
    }
    ++buckets_done_;
  }
  ForgetBuckets();
  return true;
}

PolicyRejection Rank::Obstacle(const SyncPolicy& policy) const {
  if (traits_.picky && policy.wire_type == WireType::kFp16) return PolicyRejection::kNoWireType;
  // A framework's own reductions in every micro-step need as many micro-steps on every rank.
  if (s_.path == Path::kLedger && s_.variable && SettingsOf(policy, s_).every_micro_step) return PolicyRejection::kFixed;
  return PolicyRejection::kNone;
}

void Rank::Poll() {
  Packet packet;
  link::PolicyFrame last{};
  while (world_.nodes().Take(rank_, &packet)) {
    if (traits_.old_shim) continue;
    const link::Incoming incoming = link::ReadPacket(packet.data.data(), packet.bytes);
    if (incoming.verdict == link::Verdict::kGarbage) {
      ++world_.book().coverage.garbage;
      world_.nodes().HangUp(rank_);
      break;
    }
    if (incoming.verdict != link::Verdict::kPolicy) continue;
    if (last.version != 0 && !traits_.takes_last) Offer(last);
    last = incoming.policy;
  }
  if (last.version != 0) Offer(last);
}

void Rank::Offer(const link::PolicyFrame& frame) {
  Coverage& coverage = world_.book().coverage;
  const SyncPolicy policy = PolicyOf(frame);
  ++coverage.offers;
  if (!stage_.Offered(policy)) {
    ++coverage.stale_offers;
    return;
  }
  const PolicyRejection obstacle = Obstacle(stage_.unvetted());
  if (obstacle == PolicyRejection::kNone) {
    stage_.Accept();
    world_.book().Accepted(rank_, window(), policy);
    coverage.accepted_inside += engine_.state() != WindowEngine::State::kIdle;
  } else {
    stage_.Reject(obstacle);
    ++coverage.rejections;
  }
  if (world_.telling()) {
    world_.Say("rank %u, window %llu: %s %s", rank_, Number(window()),
               obstacle == PolicyRejection::kNone ? "accepts" : "rejects", Told(policy.version, policy.content_hash).c_str());
  }
}

void Rank::WindowClosed() {
  reductions_ = 0;
  const uint64_t before = stage_.in_force().version;
  const bool adopted = stage_.WindowClosed(window(), s_.ranks == 1);
  refused_alone_ = false;
  if (adopted) {
    world_.book().Adopted(rank_, window(), before, stage_.in_force());
    settings_ = SettingsOf(stage_.in_force(), s_);
    if (!engine_.Configure(ConfigFor(settings_))) world_.book().Fail("refused", "a mode cannot change between windows");
    world_.Say("rank %u, window %llu: version %llu comes into force: %s, %u buckets, wire %u", rank_, Number(window()),
               Number(stage_.in_force().version), settings_.every_micro_step ? "every_micro_step" : "window", settings_.buckets,
               static_cast<uint32_t>(settings_.wire));
  }
  Poll();
  world_.book().WindowBegun(rank_, window(), stage_, settings_);
}

void Rank::MaybeGoRogue() {
  const bool due = s_.rogue != Rogue::kNone && rank_ == s_.rogue_rank && iteration_ == s_.rogue_iteration && micro_steps_ == 0;
  if (!due || rogue_done_) return;
  rogue_done_ = true;
  world_.Say("rank %u, window %llu: goes its own way", rank_, Number(window()));
  world_.book().Faulted(world_.now());
  if (s_.rogue == Rogue::kMode) {
    settings_.every_micro_step = !settings_.every_micro_step;
    (void)engine_.Configure(ConfigFor(settings_));
  } else if (s_.rogue == Rogue::kWindow) {
    engine_.LateReduced();
    WindowCounts counts;
    (void)engine_.Close(&counts);
  } else {
    SkipRound();
  }
}

}  // namespace gradgate::sim
