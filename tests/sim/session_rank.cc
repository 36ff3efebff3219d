#include "tests/sim/session_rank.h"

#include "tests/sim/world.h"

namespace gradgate::sim {

void SessionRank::Move() {
  switch (at_) {
    case At::kLoop:
      return Loop();
    case At::kGradient:
      return Gradient();
    case At::kLaunch:
      return Launch(after_launch_);
    case At::kEnd:
      return EndMicroStep();
    case At::kAwaitBallot:
      return AwaitBallot();
    case At::kLateLaunch:
      return Launch(At::kAwaitBuckets);
    case At::kAwaitBuckets:
      if (BucketsDone(0)) FinishRound();
      return;
    case At::kToTheEnd:
      return ToTheEnd();
    case At::kClose:
      return Close();
  }
}

void SessionRank::Loop() {
  if (iteration_ == s_.iterations) return Finish();
  MaybeGoRogue();
  const uint32_t planned = s_.Planned(iteration_, rank_);
  if (micro_steps_ < planned) return BeginMicroStep(planned);
  (void)Granted(engine_.BeforeStep());
  if (s_.ranks == 1) return CloseAlone();
  after_round_ = At::kToTheEnd;
  at_ = started_ ? At::kAwaitBallot : At::kToTheEnd;
  Pause(2);
}

void SessionRank::BeginMicroStep(uint32_t planned) {
  const bool last = micro_steps_ + 1 == planned && s_.LooksAhead(iteration_, rank_);
  (void)Granted(engine_.BeginMicroStep(last ? Last::kYes : Last::kByCount));
  if (world_.random().Percent(3)) {
    (void)Granted(engine_.Abandon());
    return Pause(4);
  }
  at_ = At::kGradient;
  Pause(8);
}

void SessionRank::Gradient() {
  const Action action = Granted(engine_.GradientReady());
  Contribute();
  at_ = At::kEnd;
  if (action == Action::kReduce && s_.ranks > 1) {
    StartRound(true, engine_.closing());
    after_launch_ = At::kEnd;
    at_ = At::kLaunch;
  }
  Pause(3);
}

void SessionRank::StartRound(bool contributes, bool closes) {
  const bool in_micro_step = engine_.state() == WindowEngine::State::kInMicroStep;
  Ballot ballot;
  ballot.window = static_cast<int64_t>(window());
  ballot.round = window_.rounds;
  ballot.mode = static_cast<int64_t>(settings_.every_micro_step ? SyncMode::kEveryMicroStep : SyncMode::kWindow);
  ballot.micro_steps = engine_.counts().micro_steps + (in_micro_step ? 1 : 0);
  ballot.contributes = contributes ? 1 : 0;
  ballot.closes = closes ? 1 : 0;
  started_ = true;
  contributes_ = contributes;
  late_ = !in_micro_step;
  IssueBallot(0, ballot);
}

void SessionRank::Launch(At then) {
  LaunchBucket(0);
  if (bucket_next_ == settings_.buckets) at_ = then;
  Pause(2);
}

void SessionRank::EndMicroStep() {
  const bool reducing = engine_.reducing();
  (void)Granted(engine_.EndMicroStep());
  ++micro_steps_;
  at_ = At::kLoop;
  if (reducing && s_.ranks > 1 && engine_.config().every_micro_step) {
    after_round_ = At::kLoop;
    at_ = At::kAwaitBallot;
  }
  Pause(2);
}

void SessionRank::AwaitBallot() {
  if (!Done(0, ballot_ticket_)) return;
  const BallotResult result = ReadBallot(0);
  if (result.incompatible()) return Fail("disagreement", "ranks are not in the same window, round and mode");
  window_.max_micro_steps = static_cast<uint32_t>(result.max().micro_steps);
  window_.all_closed = result.all_close();
  if (!result.any_contributes()) return FinishRound();
  at_ = contributes_ ? At::kAwaitBuckets : At::kLateLaunch;
  Pause(1);
}

void SessionRank::FinishRound() {
  started_ = false;
  ForgetBuckets();
  ++window_.rounds;
  if (late_) {
    ++world_.book().coverage.late_reductions;
    engine_.LateReduced();
  }
  at_ = after_round_;
  Pause(2);
}

// Takes part in rounds until every rank has closed this window.
void SessionRank::ToTheEnd() {
  at_ = At::kClose;
  if (!window_.all_closed) {
    const bool brings_data = engine_.BeforeStep().action == Action::kReduceLate && engine_.counts().micro_steps > 0;
    StartRound(brings_data, true);
    after_round_ = At::kToTheEnd;
    after_launch_ = At::kAwaitBallot;
    at_ = brings_data ? At::kLaunch : At::kAwaitBallot;
  }
  Pause(2);
}

void SessionRank::Close() {
  const uint64_t closed = window();
  const uint32_t asked = settings_.every_micro_step ? window_.max_micro_steps : window_.max_micro_steps > 0 ? 1 : 0;
  world_.book().Reduced(rank_, closed, reductions_, asked);
  // What a rank alone may refuse, such as a flush that others did not ask for, is its step; the window is over all the same.
  refused_alone_ = world_.random().Percent(2);
  world_.book().coverage.refused_alone += refused_alone_;
  if (refused_alone_)
    world_.Say("rank %u, window %llu: refuses to step, alone", rank_, static_cast<unsigned long long>(closed));
  if (window_.max_micro_steps > 0 && !refused_alone_) world_.book().Stepping(rank_, closed, gradient_);
  WindowCounts counts;
  (void)Granted(engine_.Close(&counts));
  gradient_ = {};
  window_ = {};
  ++iteration_;
  micro_steps_ = 0;
  at_ = At::kLoop;
  WindowClosed();
  Pause(6);
}

// A world of one has no rounds and no ballots.
void SessionRank::CloseAlone() {
  engine_.LateReduced();
  window_.max_micro_steps = 0;
  world_.book().Stepping(rank_, window(), gradient_);
  Close();
}

}  // namespace gradgate::sim
