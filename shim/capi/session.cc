#include "shim/capi/session.h"

#include <algorithm>
#include <cstdio>

#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr uint64_t Fnv(uint64_t hash, const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3;
  return hash;
}

std::string TensorDigest(const std::vector<GradientTensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const GradientTensor& tensor : tensors) {
    const uint64_t words[2] = {tensor.element_count, static_cast<uint64_t>(tensor.dtype)};
    hash = Fnv(hash, words, sizeof(words));
  }
  char text[48];
  std::snprintf(text, sizeof(text), "%zu (shapes %016llx)", tensors.size(), static_cast<unsigned long long>(hash));
  return text;
}

std::string_view DivideName(Divide divide) {
  constexpr std::string_view kNames[] = {"world", "active", "items", "none"};
  return kNames[static_cast<uint32_t>(divide)];
}

Facts SessionFacts(const SessionOptions& o) {
  Facts facts = CommonFacts(o);
  facts.emplace_back("divide", DivideName(o.divide));
  facts.emplace_back("bucket_bytes", std::to_string(o.bucket_bytes));
  facts.emplace_back("tensors", TensorDigest(o.tensors));
  return facts;
}

}  // namespace

Session::Session(SessionOptions options)
    : o_(std::move(options)),
      mode_(o_.mode),
      enforcement_(o_.enforcement),
      bucket_bytes_(o_.bucket_bytes),
      engine_({o_.accumulate, EveryMicroStep(o_.enforcement, o_.mode)}),
      reducer_(o_.tensors, o_.bucket_bytes) {}

Status Session::Create(SessionOptions options, std::unique_ptr<Session>* out) {
  std::unique_ptr<Session> session(new Session(std::move(options)));
  const Status joined = session->Join();
  if (joined.ok()) *out = std::move(session);
  return joined;
}

Status Session::Join() {
  const Status joined = Member::Join(o_, SessionFacts(o_), mode_in_force(), &member_);
  if (!joined.ok() || o_.world_size == 1) return joined;
  rounds_ = std::make_unique<Rounds>(RoundsConfig{.transport = o_.transport,
                                                  .board = member_->board(),
                                                  .recorder = &member_->recorder(),
                                                  .reducer = &reducer_,
                                                  .deadline_ns = o_.deadline_ns,
                                                  .sums = o_.divide == Divide::kItems || o_.divide == Divide::kActive,
                                                  .name_unequal = !o_.variable_windows});
  return OkStatus();
}

Session::~Session() {
  // A session that ends without Close reads as a failure; its socket closes without a goodbye, and the others are told by name.
  const bool failed = engine_.state() == WindowEngine::State::kFailed;
  if (!closed_ && !failed && member_)
    member_->LeaveUnsaid(engine_.counts().window_index, "its session was destroyed without being closed");
  rounds_.reset();
}

Status Session::CheckUsable() const {
  if (member_->forked()) return FailedPrecondition("this session belongs to the parent process; a forked child makes its own");
  if (closed_) return FailedPrecondition("the session is closed");
  return OkStatus();
}

Status Session::Refused(const Decision& decision) {
  Recorder::AddOwned(member_->page().totals.refused_count, 1);
  return FailedPrecondition("window " + std::to_string(engine_.counts().window_index) + ": " +
                            std::string(Explain(decision.refusal)));
}

Status Session::BeginMicroStep(Last last, int64_t items, bool* boundary) {
  if (closed_ || member_->forked()) return CheckUsable();
  if (engine_.state() == WindowEngine::State::kReduced) {
    const Status finished = FinishWindow(0, false, nullptr);
    if (!finished.ok()) return finished;
  }
  const Decision decision = engine_.BeginMicroStep(last);
  if (decision.action == Action::kRefuse) return Refused(decision);
  micro_step_items_ = items;
  reducer_.Reset(rounds_ && decision.action == Action::kReduce);
  const int64_t now_ns = MonotonicNs();
  timer_.MicroStepBegun(now_ns);
  member_->MicroStepBegun(engine_.counts().micro_steps + 1, now_ns);
  *boundary = decision.action == Action::kReduce;
  return OkStatus();
}

RoundInput Session::NextRound(bool contributes, bool closes, uint32_t divisor) {
  const bool in_micro_step = engine_.state() == WindowEngine::State::kInMicroStep;
  RoundInput input;
  input.ballot.window = static_cast<int64_t>(engine_.counts().window_index);
  input.ballot.round = window_.rounds;
  input.ballot.mode = static_cast<int64_t>(every_micro_step() ? SyncMode::kEveryMicroStep : SyncMode::kWindow);
  input.ballot.micro_steps = engine_.counts().micro_steps + (in_micro_step ? 1 : 0);
  input.ballot.contributes = contributes ? 1 : 0;
  input.ballot.closes = closes ? 1 : 0;
  input.ballot.divisor = divisor;
  const PolicyStage::Ticket policy = member_->stage().Vote();
  input.ballot.policy = policy.version;
  input.ballot.policy_hash = policy.content_hash;
  input.items = window_.items_untold + (in_micro_step ? micro_step_items_ : 0);
  input.newly_active = contributes && !window_.contributed;
  // In audit the policy would have reduced at the boundary alone.
  input.intended = enforcement_ != Enforcement::kAudit || mode_ == SyncMode::kEveryMicroStep || closes;
  input.late = !in_micro_step;
  return input;
}

Status Session::GradientReady(uint32_t tensor) {
  if (closed_ || member_->forked()) return CheckUsable();
  if (tensor >= reducer_.tensor_count()) {
    return InvalidArgument("tensor " + std::to_string(tensor) + " does not exist; the session has " +
                           std::to_string(reducer_.tensor_count()));
  }
  const Decision decision = engine_.GradientReady();
  if (decision.action == Action::kRefuse) return Refused(decision);
  if (!reducer_.MarkReady(tensor)) {
    return FailedPrecondition("the gradient of \"" + o_.tensor_names[tensor] +
                              "\" was told ready twice in one micro-step; tell it once, when it is complete");
  }
  if (decision.action == Action::kReduce && rounds_) {
    // With the first gradient, before a bucket is ready: the ballot travels while the rest of the backward computes.
    if (!rounds_->started()) rounds_->Start(NextRound(true, engine_.closing(), 0));
    rounds_->LaunchReady();
  }
  return OkStatus();
}

void Session::CountMicroStepEnd(int64_t now_ns) {
  const bool suppressed = !engine_.reducing();
  const uint64_t duration_ns = timer_.MicroStepEnded(now_ns, suppressed);
  page::StatsPage& page = member_->page();
  Recorder::AddOwned(page.totals.item_count, static_cast<uint64_t>(micro_step_items_));
  if (suppressed && rounds_) Recorder::AddOwned(page.roles[static_cast<uint32_t>(GroupRole::kDp)].suppressed_count, 1);
  member_->MicroStepEnded(engine_.counts().micro_steps + 1, duration_ns, now_ns);
}

Status Session::EndMicroStep() {
  if (closed_ || member_->forked()) return CheckUsable();
  if (engine_.state() != WindowEngine::State::kInMicroStep) return Refused(engine_.EndMicroStep());
  CountMicroStepEnd(MonotonicNs());
  if (engine_.reducing() && rounds_) {
    if (!rounds_->started()) rounds_->Start(NextRound(true, engine_.closing(), 0));
    reducer_.MarkAllReady();
    rounds_->LaunchReady();
  }
  const bool reducing = engine_.reducing();
  window_.items += micro_step_items_;
  // A round that was started has told this micro-step's items.
  window_.items_untold = reducing ? 0 : window_.items_untold + micro_step_items_;
  window_.contributed |= reducing;
  micro_step_items_ = 0;
  (void)engine_.EndMicroStep();
  if (!reducing || !rounds_ || !every_micro_step()) return OkStatus();
  const Status finished = FinishRound();
  return finished.ok() ? finished : FailWindow(finished);
}

Status Session::AbandonMicroStep() {
  if (closed_ || member_->forked()) return CheckUsable();
  const Decision decision = engine_.Abandon();
  if (decision.action == Action::kRefuse) return Refused(decision);
  micro_step_items_ = 0;
  return OkStatus();
}

// What a round's sums are divided by. Where every micro-step reduces only the world is known; see ScaleAtClose.
double Session::Divisor(int64_t items, int64_t active_ranks) const {
  if (every_micro_step()) return o_.world_size;
  if (o_.divide == Divide::kActive) return static_cast<double>(active_ranks);
  if (o_.divide == Divide::kItems) return items > 0 ? static_cast<double>(items) : 1.0;
  return o_.divide == Divide::kNone ? 1.0 : o_.world_size;
}

// Waits for the round that was started, brings the gradients back, and takes in what it told.
Status Session::FinishRound() {
  const int64_t from_ns = MonotonicNs();
  RoundOutcome outcome;
  const bool late = rounds_->input().late;
  const Status status = rounds_->Finish(&outcome, [this](uint32_t bucket, const RoundOutcome& so_far) {
    reducer_.Finish(bucket, 1.0, Divisor(window_.global_items + so_far.items, window_.active_ranks + so_far.active_ranks));
  });
  const int64_t to_ns = MonotonicNs();
  timer_.Waited(from_ns, to_ns);
  if (!status.ok()) return status;
  ++window_.rounds;
  const Ballot &low = outcome.ballot.min(), &high = outcome.ballot.max();
  member_->stage().Read({low.policy, low.policy_hash}, {high.policy, high.policy_hash});
  window_.min_micro_steps = static_cast<uint32_t>(outcome.ballot.min().micro_steps);
  window_.max_micro_steps = static_cast<uint32_t>(outcome.ballot.max().micro_steps);
  window_.min_divisor = static_cast<uint32_t>(outcome.ballot.min().divisor);
  window_.max_divisor = static_cast<uint32_t>(outcome.ballot.max().divisor);
  window_.all_closed = outcome.ballot.all_close();
  window_.global_items += outcome.items;
  window_.active_ranks += outcome.active_ranks;
  if (outcome.reduced) {
    window_.reduced = true;
    timer_.Reduced(outcome.last_issue_ns, outcome.complete_ns, late);
  }
  if (o_.variable_windows || !outcome.ballot.unequal()) return OkStatus();
  window_.disagreed = true;
  const std::string text = "window " + std::to_string(engine_.counts().window_index) +
                           ": ranks brought different micro-steps where equal ones are declared: " + outcome.differences;
  if (o_.strict) return Aborted(text);
  member_->Warn("ranks_disagree", text + "; gradients are exact all the same. Declare windows variable if this is meant");
  return OkStatus();
}

// Takes part in rounds until every rank has closed this window. A rank that never contributed brings zeros the first time.
Status Session::ReduceToTheEnd(uint32_t divisor) {
  if (rounds_->started()) {
    const Status finished = FinishRound();
    if (!finished.ok()) return finished;
  }
  while (!window_.all_closed) {
    const bool brings_data = engine_.BeforeStep().action == Action::kReduceLate && engine_.counts().micro_steps > 0;
    reducer_.Reset(true);
    RoundInput input = NextRound(brings_data, true, divisor);
    input.zero = engine_.counts().micro_steps == 0 && !window_.reduced;
    rounds_->Start(input);
    window_.items_untold = 0;
    window_.contributed |= brings_data;
    const Status finished = FinishRound();
    if (!finished.ok()) return finished;
    engine_.LateReduced();
  }
  return OkStatus();
}

// A flush's divisor is part of the ballot, so that all ranks rescale by the same factor or none does. One that was reduced in
// time could not tell it: it must then make no difference.
Status Session::CheckDivisor(uint32_t divisor) const {
  const uint32_t largest = std::max(divisor, window_.max_divisor);
  const bool equal = window_.min_micro_steps == window_.max_micro_steps;
  if (largest == 0 || window_.max_micro_steps == 0 || (equal && window_.max_micro_steps == largest)) return OkStatus();
  const std::string flush =
      "window " + std::to_string(engine_.counts().window_index) + ": flush(divisor=" + std::to_string(largest) + ") ";
  if (!equal) {
    return FailedPrecondition(flush + "needs the same number of micro-steps on all ranks; they brought " +
                              std::to_string(window_.min_micro_steps) + " to " + std::to_string(window_.max_micro_steps) +
                              ". Scale the losses by the window's size instead (last=), or divide by items");
  }
  if (window_.min_divisor != largest || window_.max_divisor != largest || divisor != largest) {
    return FailedPrecondition(flush +
                              "of a partial window needs the same call on all ranks, and none that told it was the last "
                              "micro-step; scale the losses where the size is known beforehand");
  }
  return OkStatus();
}

// What could not be divided round by round is divided now. Every refusal here comes from values that all ranks share.
Status Session::ScaleAtClose(uint32_t divisor) {
  double multiply = 1.0;
  double divide = 1.0;
  if (o_.divide == Divide::kItems && window_.max_micro_steps > 0 && window_.global_items == 0) {
    return FailedPrecondition("window " + std::to_string(engine_.counts().window_index) +
                              " has no items on any rank; give item_count with each micro-step, and do not step");
  }
  if (every_micro_step() && window_.reduced && o_.divide != Divide::kWorld) {
    multiply = o_.world_size;
    if (o_.divide == Divide::kActive) divide = static_cast<double>(window_.active_ranks);
    if (o_.divide == Divide::kItems) divide = static_cast<double>(window_.global_items);
  }
  const Status agreed = CheckDivisor(divisor);
  if (!agreed.ok()) return agreed;
  if (window_.max_divisor > 0 && window_.max_micro_steps > 0 && window_.max_micro_steps != window_.max_divisor) {
    multiply *= window_.max_divisor;
    divide *= window_.max_micro_steps;
  }
  if (multiply != 1.0 || divide != 1.0) reducer_.Scale(multiply, divide);
  return OkStatus();
}

Status Session::FinishWindow(uint32_t divisor, bool stepping, ClosedWindow* report) {
  if (rounds_) {
    const Status reduced = ReduceToTheEnd(divisor);
    if (!reduced.ok()) return FailWindow(reduced);
  } else {
    const uint32_t micro_steps = engine_.counts().micro_steps;
    window_.min_micro_steps = window_.max_micro_steps = micro_steps;
    window_.min_divisor = window_.max_divisor = divisor;
    window_.global_items = window_.items;
    window_.active_ranks = micro_steps > 0;
    window_.reduced = false;
    if (o_.divide == Divide::kItems && micro_steps > 0 && window_.items > 0) {
      reducer_.Scale(1.0, static_cast<double>(window_.items));
    }
    engine_.LateReduced();
  }
  const Status scaled = ScaleAtClose(divisor);
  const bool stepped = scaled.ok() && stepping && window_.max_micro_steps > 0;
  if (stepped) Recorder::AddOwned(member_->page().totals.step_count, 1);
  if (!scaled.ok()) Recorder::AddOwned(member_->page().totals.refused_count, 1);
  CloseWindow(stepped || window_.max_micro_steps == 0, !scaled.ok(), report);
  return scaled;
}

Status Session::BeforeStep(ClosedWindow* report) {
  if (closed_ || member_->forked()) return CheckUsable();
  const Decision decision = engine_.BeforeStep();
  if (decision.action == Action::kRefuse) return Refused(decision);
  return FinishWindow(0, true, report);
}

Status Session::Flush(uint32_t divisor, bool* flushed, ClosedWindow* report) {
  if (closed_ || member_->forked()) return CheckUsable();
  const Decision decision = engine_.BeforeStep();
  if (decision.action == Action::kRefuse) return Refused(decision);
  if (!rounds_ && engine_.counts().micro_steps == 0) {
    *flushed = false;
    return OkStatus();
  }
  ClosedWindow own;
  const Status finished = FinishWindow(divisor, true, &own);
  *flushed = finished.ok() && own.max_micro_steps > 0;
  if (report) *report = own;
  return finished;
}

uint32_t Session::IntendedReductions(uint32_t max_micro_steps) const {
  if (!rounds_ || max_micro_steps == 0 || reducer_.bucket_count() == 0) return 0;
  return mode_ == SyncMode::kEveryMicroStep || enforcement_ == Enforcement::kOff ? max_micro_steps : 1;
}

page::WindowRecord Session::MakeRecord(const WindowCounts& counts, WindowKind kind) const {
  const RoundCounts issued = rounds_ ? rounds_->counts() : RoundCounts{};
  const int64_t now_ns = MonotonicNs();
  page::WindowRecord record{};
  record.window_index = counts.window_index;
  record.kind = static_cast<uint8_t>(kind);
  record.mode = static_cast<uint8_t>(mode_in_force());
  record.policy_version = member_->stage().in_force().version;
  record.micro_steps = counts.micro_steps;
  record.planned_micro_steps = o_.accumulate;
  record.min_micro_steps = window_.min_micro_steps;
  record.max_micro_steps = window_.max_micro_steps;
  record.last_reduction_at = rounds_ ? counts.last_reduction_at : 0;
  record.intended_reductions = IntendedReductions(window_.max_micro_steps);
  record.issued_reductions = issued.issued_reductions;
  // What a failed window should have issued is not known: its last ballot may never have been read.
  if (engine_.state() == WindowEngine::State::kFailed) record.intended_reductions = record.issued_reductions;
  record.suppressed_reductions = rounds_ ? counts.suppressed : 0;
  record.late_reductions = issued.late_reductions;
  record.intended_collectives = issued.intended_collectives;
  record.issued_collectives = issued.issued_collectives;
  record.completed_collectives = rounds_ ? rounds_->completed_collectives() : 0;
  record.failed_collectives = rounds_ ? rounds_->failed_collectives() : 0;
  record.gradient_bytes = issued.gradient_bytes;
  record.item_count = static_cast<uint64_t>(window_.items);
  record.begin_ns = static_cast<uint64_t>(timer_.begin_ns() ? timer_.begin_ns() : now_ns);
  record.end_ns = static_cast<uint64_t>(now_ns);
  record.boundary_ns = timer_.boundary_ns();
  record.suppressed_median_ns = timer_.suppressed_median_ns();
  record.exposed_ns = rounds_ ? timer_.exposed_ns() : 0;
  record.wait_ns = timer_.wait_ns();
  return record;
}

// Publishes the window and begins the next. `stepped`: an optimizer step follows, or none was due.
void Session::CloseWindow(bool stepped, bool failed, ClosedWindow* report) {
  const WindowKind kind = engine_.kind();
  WindowCounts counts = engine_.counts();
  if (engine_.state() != WindowEngine::State::kFailed) (void)engine_.Close(&counts);
  const page::WindowRecord record = MakeRecord(counts, kind);
  const bool late = record.late_reductions > 0;
  const bool mismatched = record.intended_reductions != record.issued_reductions;
  Recorder::AddOwned(member_->page().roles[static_cast<uint32_t>(GroupRole::kDp)].intended_count, record.intended_reductions);
  const bool over = engine_.state() == WindowEngine::State::kFailed;
  const bool adopted = member_->WindowClosed(record, {late, mismatched, window_.disagreed, stepped, failed, false, over});
  if (report) {
    *report = {kind,
               counts.window_index,
               counts.micro_steps,
               window_.min_micro_steps,
               window_.max_micro_steps,
               static_cast<uint32_t>(window_.active_ranks),
               late,
               window_.disagreed,
               window_.global_items,
               adopted};
  }
  window_ = OpenWindow{};
  timer_ = WindowTimer{};
  if (rounds_) rounds_->ResetCounts();
  if (adopted) TakeUp(member_->stage().in_force());
  const SyncPolicy& offered = member_->stage().unvetted();
  if (offered.version != 0) member_->AnswerPolicy(Vet(offered));
}

PolicyRejection Session::Vet(const SyncPolicy& policy) const {
  if (policy.sync_mode == SyncMode::kWindowReplica) return PolicyRejection::kNoReplicas;
  if (policy.wire_type > WireType::kGradient) return PolicyRejection::kNoWireType;
  if (policy.reshard == Reshard::kWindow) return PolicyRejection::kNothingGathered;
  const uint64_t bucket_bytes = policy.bucket_bytes != 0 ? policy.bucket_bytes : o_.bucket_bytes;
  if (bucket_bytes != bucket_bytes_ && reducer_.has_views()) return PolicyRejection::kFixed;
  return PolicyRejection::kNone;
}

// Between windows.
void Session::TakeUp(const SyncPolicy& policy) {
  const bool as_given = policy.sync_mode == SyncMode::kUnspecified || policy.sync_mode == SyncMode::kAuto;
  mode_ = as_given ? o_.mode : policy.sync_mode;
  enforcement_ = policy.enforcement == Enforcement::kUnspecified ? o_.enforcement : policy.enforcement;
  (void)engine_.Configure({o_.accumulate, EveryMicroStep(enforcement_, mode_)});
  const uint64_t bucket_bytes = policy.bucket_bytes != 0 ? policy.bucket_bytes : o_.bucket_bytes;
  if (bucket_bytes != bucket_bytes_) reducer_.Replan(bucket_bytes);
  bucket_bytes_ = bucket_bytes;
  member_->PublishMode(mode_in_force(), enforcement_);
}

Status Session::FailWindow(Status status) {
  engine_.Fail();
  Recorder::AddOwned(member_->page().totals.refused_count, 1);
  CloseWindow(false, true, nullptr);
  o_.transport->Abort(status.message().c_str());
  return status;
}

Status Session::Close() {
  if (member_->forked()) return CheckUsable();
  if (closed_) return OkStatus();
  if (engine_.state() == WindowEngine::State::kInMicroStep) return Refused(engine_.BeforeStep());
  const bool failed = engine_.state() == WindowEngine::State::kFailed;
  if (engine_.counts().micro_steps > 0 && !failed) {
    member_->Warn("open_window", "closed with " + std::to_string(engine_.counts().micro_steps) + " micro-steps of window " +
                                     std::to_string(engine_.counts().window_index) +
                                     " not stepped; flush before closing to use them");
  }
  closed_ = true;
  member_->Leave(failed, engine_.counts().window_index, "it closed its session");
  return OkStatus();
}

}  // namespace gradgate
