#include "tests/sim/ledger_rank.h"

#include "tests/sim/world.h"

namespace gradgate::sim {
namespace {

constexpr uint32_t kOurs = 0;       // ballots
constexpr uint32_t kFramework = 1;  // gradients

}  // namespace

void LedgerRank::Move() {
  switch (at_) {
    case At::kLoop:
      return Loop();
    case At::kGradient:
      return Gradient();
    case At::kLaunch:
      return Launch(At::kBackward);
    case At::kBackward:  // a framework's backward ends when its buckets are done
      if (!BucketsDone(kFramework)) return;
      at_ = At::kEnd;
      return Pause(2);
    case At::kEnd:
      return EndMicroStep();
    case At::kConclude:
      return Conclude();
    case At::kAwaitBallot:
      return AwaitBallot();
    case At::kLateLaunch:
      return Launch(At::kLateBuckets);
    case At::kLateBuckets:
      if (BucketsDone(kFramework)) LateDone();
      return;
    case At::kStep:
      return Step();
  }
}

void LedgerRank::Loop() {
  if (unpublished_) Publish();
  if (iteration_ == s_.iterations) return Finish();
  MaybeGoRogue();
  const uint32_t planned = s_.Planned(iteration_, rank_);
  if (micro_steps_ < planned) return BeginMicroStep(planned);
  at_ = At::kConclude;  // the step, or a flush
  Pause(2);
}

void LedgerRank::BeginMicroStep(uint32_t planned) {
  const bool last = micro_steps_ + 1 == planned && s_.LooksAhead(iteration_, rank_);
  (void)Granted(engine_.BeginMicroStep(last ? Last::kYes : Last::kByCount));
  if (world_.random().Percent(3)) {
    (void)Granted(engine_.Abandon());
    return Pause(4);
  }
  // Where every micro-step reduces, the framework cannot leave one out on one rank.
  skipping_ = !settings_.every_micro_step && !s_.predicts && world_.random().Percent(6);
  discarding_ |= !settings_.every_micro_step && !s_.predicts && world_.random().Percent(1);
  at_ = At::kGradient;
  Pause(8);
}

void LedgerRank::Gradient() {
  at_ = At::kEnd;
  if (!skipping_) {
    Contribute();
    if (engine_.closing() && s_.ranks > 1) Vote(true);
    if (engine_.reducing() && s_.ranks > 1) at_ = At::kLaunch;
  }
  Pause(3);
}

void LedgerRank::Launch(At then) {
  LaunchBucket(kFramework);
  if (bucket_next_ == settings_.buckets) at_ = then;
  Pause(2);
}

void LedgerRank::EndMicroStep() {
  if (!engine_.reducing() || skipping_) engine_.NotReduced();
  (void)Granted(engine_.EndMicroStep());
  ++micro_steps_;
  skips_ += skipping_;
  // A predicted end in which nothing was reduced is none.
  at_ = engine_.closing() && !(s_.predicts && !voted_ && s_.ranks > 1) ? At::kConclude : At::kLoop;
  Pause(2);
}

void LedgerRank::Vote(bool contributes) {
  const bool in_micro_step = engine_.state() == WindowEngine::State::kInMicroStep;
  Ballot ballot;
  ballot.window = static_cast<int64_t>(window());
  ballot.round = ballots_++;
  ballot.mode = static_cast<int64_t>(settings_.every_micro_step ? SyncMode::kEveryMicroStep : SyncMode::kWindow);
  ballot.micro_steps = engine_.counts().micro_steps + (in_micro_step ? 1 : 0);
  ballot.contributes = contributes ? 1 : 0;
  ballot.closes = !in_micro_step || engine_.closing() ? 1 : 0;
  ballot.skipped = skips_;
  ballot.discard = discarding_ ? 1 : 0;
  voted_ = true;
  IssueBallot(kOurs, ballot);
}

void LedgerRank::Conclude() {
  if (!voted_) Vote(s_.ranks == 1);
  at_ = At::kAwaitBallot;
  Pause(1);
}

void LedgerRank::AwaitBallot() {
  if (!Done(kOurs, ballot_ticket_)) return;
  voted_ = false;
  const BallotResult result = ReadBallot(kOurs);
  if (result.incompatible()) return Fail("disagreement", "ranks are not in the same window, round and mode");
  min_micro_steps_ = static_cast<uint32_t>(result.min().micro_steps);
  max_micro_steps_ = static_cast<uint32_t>(result.max().micro_steps);
  any_contribute_ = result.any_contributes();
  const bool idle = max_micro_steps_ > 0 && result.min().skipped >= max_micro_steps_;
  discarded_ = result.max().discard > 0 || idle;
  const bool reduces = max_micro_steps_ > 0 && !(discarded_ && !any_contribute_) && s_.ranks > 1;
  at_ = reduces && engine_.BeforeStep().action == Action::kReduceLate ? At::kLateLaunch : At::kStep;
  Pause(2);
}

void LedgerRank::LateDone() {
  ++world_.book().coverage.late_reductions;
  at_ = At::kStep;
  Pause(2);
}

void LedgerRank::Step() {
  at_ = At::kLoop;
  Book& book = world_.book();
  if (micro_steps_ < s_.Planned(iteration_, rank_)) {  // it was predicted to end here, and goes on
    outrun_ = true;
    ++book.coverage.outruns;
    return Pause(4);
  }
  if (max_micro_steps_ == 0) {  // what nobody brought data to is no window
    if (reductions_ != 0) book.Reduced(rank_, window(), reductions_, 0);
    NextIteration();
    return Pause(4);
  }
  const bool reduces = !(discarded_ && !any_contribute_);
  const uint32_t asked = s_.ranks == 1 ? 0 : settings_.every_micro_step ? max_micro_steps_ : reduces ? 1 + outrun_ : 0;
  book.Reduced(rank_, window(), reductions_, asked);
  const bool forgets = world_.random().Percent(3);  // the next micro-step then publishes
  if (!discarded_ && !forgets) book.Stepping(rank_, window(), gradient_);
  gradient_ = {};
  unpublished_ = true;
  if (discarded_ || !forgets) Publish();
  NextIteration();
  Pause(6);
}

// ledger.cc's CloseWindow: whether the window was reduced is the owner's to see to.
void LedgerRank::Publish() {
  unpublished_ = false;
  engine_.LateReduced();
  WindowCounts counts;
  (void)Granted(engine_.Close(&counts));
  ballots_ = 0;
  discarding_ = outrun_ = false;
  WindowClosed();
  if (s_.predicts) Predict();
}

// prediction.py: two windows in a row of as many micro-steps on all ranks.
void LedgerRank::Predict() {
  const uint32_t equal = min_micro_steps_ == max_micro_steps_ ? max_micro_steps_ : 0;
  if (equal != 0 && equal == last_equal_) {
    predicted_ = equal;
  } else if (max_micro_steps_ > predicted_) {
    predicted_ = 0;
  }
  last_equal_ = equal;
  if (!engine_.Configure(ConfigFor(settings_))) world_.book().Fail("refused", "a prediction cannot change between windows");
}

void LedgerRank::NextIteration() {
  ++iteration_;
  micro_steps_ = 0;
  skips_ = 0;
}

}  // namespace gradgate::sim
