#include "shim/capi/ledger.h"

#include <algorithm>

#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kEveryRole = (1u << kGroupRoleCount) - 1;
constexpr uint32_t kShard = RoleBit(GroupRole::kShard);

std::string RoleNames(uint32_t roles) {
  std::string text;
  for (uint32_t role = 0; role < kGroupRoleCount; ++role) {
    if (roles >> role & 1) text += (text.empty() ? "" : ", ") + std::string(Name(static_cast<GroupRole>(role)));
  }
  return text.empty() ? "none" : text;
}

Facts LedgerFacts(const LedgerOptions& o) {
  Facts facts = CommonFacts(o);
  facts.emplace_back("roles", RoleNames(o.roles));
  facts.insert(facts.end(), o.facts.begin(), o.facts.end());
  return facts;
}

// The mode with the least memory stands until the owner knows better.
SyncMode FirstMode(const LedgerOptions& o) {
  if (o.mode != SyncMode::kAuto) return o.mode;
  if ((o.roles & kShard) == 0) return SyncMode::kWindow;
  return (o.roles & RoleBit(GroupRole::kReplicate)) != 0 ? SyncMode::kWindowReplica : SyncMode::kEveryMicroStep;
}

}  // namespace

Ledger::Ledger(LedgerOptions options)
    : o_(std::move(options)),
      roles_(o_.world_size > 1 ? o_.roles : 0),
      policy_(FirstMode(o_)),
      enforcement_(o_.enforcement),
      engine_({o_.accumulate, EveryMicroStep(o_.enforcement, policy_)}) {}

Status Ledger::Create(LedgerOptions options, std::unique_ptr<Ledger>* out) {
  std::unique_ptr<Ledger> ledger(new Ledger(std::move(options)));
  const Status joined = Member::Join(ledger->o_, LedgerFacts(ledger->o_), ledger->mode_in_force(), &ledger->member_);
  if (!joined.ok()) return joined;
  ledger->counts_ = std::make_unique<LedgerCounts>(&ledger->member_->recorder());
  *out = std::move(ledger);
  return OkStatus();
}

Ledger::~Ledger() {
  const bool failed = engine_.state() == WindowEngine::State::kFailed;
  if (!closed_ && !failed && member_)
    member_->LeaveUnsaid(engine_.counts().window_index, "its ledger was destroyed without being closed");
}

Status Ledger::CheckUsable() const {
  if (member_->forked()) return FailedPrecondition("this ledger belongs to the parent process; a forked child makes its own");
  if (closed_) return FailedPrecondition("the ledger is closed");
  return OkStatus();
}

Status Ledger::Refused(Refusal refusal) {
  Recorder::AddOwned(member_->page().totals.refused_count, 1);
  return FailedPrecondition("window " + std::to_string(engine_.counts().window_index) + ": " + std::string(Explain(refusal)));
}

uint32_t Ledger::WantedRoles(bool closes) const {
  if (closes || enforcement_ == Enforcement::kOff || policy_ == SyncMode::kEveryMicroStep) return roles_;
  return policy_ == SyncMode::kWindowReplica ? roles_ & kShard : 0;
}

uint32_t Ledger::IntendedReductions(GroupRole role, uint32_t max_micro_steps) const {
  if (max_micro_steps == 0 || (roles_ & RoleBit(role)) == 0) return 0;
  return (WantedRoles(false) & RoleBit(role)) != 0 ? max_micro_steps : 1;
}

// What the phase that ends has shown. Overrides are told here, on the loop's thread.
void Ledger::LeavePhase() {
  const uint32_t reduced = counts_->reduced();
  if (reduced == 0) return;
  const Phase phase = counts_->phase();
  const bool in_micro_step = engine_.state() == WindowEngine::State::kInMicroStep;
  if (roles_ != 0 && (reduced & roles_) == roles_)
    window_.last_reduction_at = engine_.counts().micro_steps + (in_micro_step ? 1 : 0);
  timer_.Reduced(counts_->last_issue_ns(), counts_->last_done_ns(), phase == Phase::kLate);
  const uint32_t unwanted = reduced & roles_ & ~counts_->wanted();
  if (unwanted != 0 && enforcement_ == Enforcement::kEnforce) CountOverrides(unwanted, phase);
}

void Ledger::CountOverrides(uint32_t unwanted, Phase phase) {
  uint32_t overrides = 0;
  for (uint32_t role = 0; role < kGroupRoleCount; ++role) {
    if ((unwanted >> role & 1) == 0) continue;
    if (window_.extra_unseen[role] > 0) {
      --window_.extra_unseen[role];
    } else {
      overrides |= 1u << role;
      Recorder::AddOwned(member_->page().totals.override_count, 1);
    }
  }
  if (overrides == 0) return;
  const std::string window = "window " + std::to_string(engine_.counts().window_index);
  const std::string roles = RoleNames(overrides);
  if (phase == Phase::kOutside) {
    member_->Warn("outside_window", window + ": gradients were reduced (" + roles +
                                        ") outside a micro-step; put forward and backward inside one, or they are reduced "
                                        "as the framework does by itself");
    return;
  }
  member_->Warn("override",
                window + ", micro-step " + std::to_string(engine_.counts().micro_steps + 1) + ": gradients were reduced (" +
                    roles + ") where mode " + std::string(Name(policy_)) +
                    " does not want it; the forward ran outside the micro-step, or gradgate was attached before the model was "
                    "wrapped, or another hand sets the wrapper's flags (no_sync, set_requires_gradient_sync)");
}

Status Ledger::BeginMicroStep(Last last, bool* closes) {
  if (closed_ || member_->forked()) return CheckUsable();
  const bool outruns = engine_.outrun_next();
  const Decision decision = engine_.BeginMicroStep(last);
  if (decision.action == Action::kRefuse) return Refused(decision.refusal);
  LeavePhase();
  if (outruns) Outrun();
  const uint32_t micro_step = engine_.counts().micro_steps + 1;
  counts_->BeginPhase(Phase::kMicroStep, WantedRoles(engine_.closing()), micro_step);
  const int64_t now_ns = MonotonicNs();
  timer_.MicroStepBegun(now_ns);
  member_->MicroStepBegun(micro_step, now_ns);
  *closes = engine_.closing();
  return OkStatus();
}

// What is added to a window after its predicted end is reduced once more.
void Ledger::Outrun() {
  for (uint32_t role = 0; role < kGroupRoleCount; ++role) window_.extra[role] += roles_ >> role & 1;
}

// Where nothing is suppressed, in audit or off, nothing is counted as such.
void Ledger::CountSuppressed() {
  if (enforcement_ != Enforcement::kEnforce) return;
  const uint32_t suppressed = roles_ & ~counts_->wanted() & ~counts_->reduced();
  for (uint32_t role = 0; suppressed >> role != 0; ++role) {
    if ((suppressed >> role & 1) == 0) continue;
    ++window_.suppressed[role];
    Recorder::AddOwned(member_->page().roles[role].suppressed_count, 1);
  }
}

Status Ledger::EndMicroStep() {
  if (closed_ || member_->forked()) return CheckUsable();
  if (engine_.state() != WindowEngine::State::kInMicroStep) return Refused(engine_.EndMicroStep().refusal);
  if ((counts_->reduced() & roles_) != roles_) engine_.NotReduced();
  CountSuppressed();
  const int64_t now_ns = MonotonicNs();
  const uint64_t duration_ns = timer_.MicroStepEnded(now_ns, !engine_.reducing());
  const uint32_t micro_step = engine_.counts().micro_steps + 1;
  LeavePhase();
  counts_->BeginPhase(Phase::kOutside, 0, micro_step);
  member_->MicroStepEnded(micro_step, duration_ns, now_ns);
  (void)engine_.EndMicroStep();
  return OkStatus();
}

Status Ledger::AbandonMicroStep() {
  if (closed_ || member_->forked()) return CheckUsable();
  const Decision decision = engine_.Abandon();
  if (decision.action == Action::kRefuse) return Refused(decision.refusal);
  counts_->BeginPhase(Phase::kOutside, 0, engine_.counts().micro_steps);
  return OkStatus();
}

Status Ledger::Vote(Ballot ballot, std::array<int64_t, Ballot::kWords>* words) {
  if (closed_ || member_->forked()) return CheckUsable();
  if (engine_.state() == WindowEngine::State::kFailed) return Refused(Refusal::kFailed);
  const bool in_micro_step = engine_.state() == WindowEngine::State::kInMicroStep;
  ballot.window = static_cast<int64_t>(engine_.counts().window_index);
  ballot.round = window_.ballots++;
  ballot.mode = static_cast<int64_t>(mode_in_force());
  ballot.micro_steps = engine_.counts().micro_steps + (in_micro_step ? 1 : 0);
  ballot.closes = !in_micro_step || engine_.closing() ? 1 : 0;
  const PolicyStage::Ticket policy = member_->stage().Vote();
  ballot.policy = policy.version;
  ballot.policy_hash = policy.content_hash;
  *words = ballot.Encode();
  if (o_.world_size > 1) Recorder::AddOwned(member_->page().totals.ballot_count, 1);
  return OkStatus();
}

void Ledger::Read(const BallotResult& result) {
  const Ballot &low = result.min(), &high = result.max();
  member_->stage().Read({low.policy, low.policy_hash}, {high.policy, high.policy_hash});
}

Status Ledger::AnswerPolicy(uint64_t version, PolicyRejection rejection) {
  if (closed_ || member_->forked()) return CheckUsable();
  const uint64_t unvetted = member_->stage().unvetted().version;
  if (unvetted == 0 || unvetted != version)
    return FailedPrecondition("policy version " + std::to_string(version) +
                              " is not the one that waits for an answer, which is " + std::to_string(unvetted) + " (0: none)");
  member_->AnswerPolicy(rejection);
  return OkStatus();
}

Status Ledger::Arrived() {
  if (closed_ || member_->forked()) return CheckUsable();
  if (member_->board()) member_->board()->Arrived(engine_.counts().window_index, round(), NamingBudget(o_.deadline_ns) / 2);
  return OkStatus();
}

Status Ledger::Missing(std::string* who) {
  who->clear();
  if (closed_ || member_->forked()) return CheckUsable();
  ArrivalBoard* const board = member_->board();
  if (!board) return OkStatus();
  const uint64_t window = engine_.counts().window_index;
  const int64_t budget_ns = NamingBudget(o_.deadline_ns);
  board->GaveUp(window, round(), budget_ns / 4);
  *who = board->DescribeMissing(window, round(), budget_ns / 2);
  return OkStatus();
}

Status Ledger::Fail(const std::string& why) {
  if (closed_ || member_->forked()) return CheckUsable();
  if (engine_.state() == WindowEngine::State::kFailed) return OkStatus();
  if (member_->board()) member_->board()->Left(engine_.counts().window_index, why, 200 * kMs);
  return CloseWindow({.failed = true}, nullptr);
}

Status Ledger::LateBegin() {
  if (closed_ || member_->forked()) return CheckUsable();
  const Decision decision = engine_.BeforeStep();
  if (decision.action == Action::kRefuse) return Refused(decision.refusal);
  LeavePhase();
  counts_->BeginPhase(Phase::kLate, kEveryRole, engine_.counts().micro_steps);
  return OkStatus();
}

page::WindowRecord Ledger::MakeRecord(const LedgerWindowEnd& end, const LedgerCounts::Window& issued) const {
  const WindowCounts& counts = engine_.counts();
  const int64_t now_ns = MonotonicNs();
  page::WindowRecord record{};
  record.window_index = counts.window_index;
  record.kind = static_cast<uint8_t>(engine_.kind());
  record.mode = static_cast<uint8_t>(mode_in_force());
  record.policy_version = member_->stage().in_force().version;
  record.micro_steps = counts.micro_steps;
  record.planned_micro_steps = o_.accumulate;
  record.min_micro_steps = end.min_micro_steps;
  record.max_micro_steps = end.max_micro_steps;
  record.last_reduction_at = window_.last_reduction_at;
  record.intended_collectives = issued.intended_collectives;
  record.issued_collectives = issued.issued_collectives;
  record.completed_collectives = issued.completed_collectives;
  record.failed_collectives = issued.failed_collectives;
  record.gradient_bytes = issued.gradient_bytes;
  record.item_count = static_cast<uint64_t>(end.items);
  record.begin_ns = static_cast<uint64_t>(timer_.begin_ns() ? timer_.begin_ns() : now_ns);
  record.end_ns = static_cast<uint64_t>(now_ns);
  record.boundary_ns = timer_.boundary_ns();
  record.suppressed_median_ns = timer_.suppressed_median_ns();
  record.exposed_ns = roles_ != 0 ? timer_.exposed_ns() : 0;
  record.wait_ns = timer_.wait_ns();
  return record;
}

// Per role into the page, summed into the record. True if some role of the job's has other reductions than intended.
bool Ledger::CountReductions(const LedgerWindowEnd& end, const LedgerCounts::Window& issued, page::WindowRecord* record) {
  bool mismatched = false;
  for (uint32_t i = 0; i < kGroupRoleCount; ++i) {
    // What a failed window should have issued is not known: its last ballot may never have been read.
    const uint32_t intended =
        end.failed ? issued.issued[i] : IntendedReductions(static_cast<GroupRole>(i), end.max_micro_steps);
    const uint32_t extra = std::min(window_.extra[i], issued.issued[i] - std::min(issued.issued[i], intended));
    mismatched |= (roles_ >> i & 1) != 0 && issued.issued[i] != intended + extra;
    Recorder::AddOwned(member_->page().roles[i].declared_extra_count, extra);
    Recorder::AddOwned(member_->page().roles[i].intended_count, intended);
    record->intended_reductions += intended;
    record->issued_reductions += issued.issued[i];
    record->suppressed_reductions += window_.suppressed[i];
    record->late_reductions += issued.late[i];
  }
  return mismatched;
}

// Publishes the window and begins the next.
bool Ledger::PublishWindow(const LedgerWindowEnd& end, ClosedWindow* report) {
  timer_.Waited(0, end.wait_ns);
  const LedgerCounts::Window issued = counts_->TakeWindow(MonotonicNs());
  page::WindowRecord record = MakeRecord(end, issued);
  const bool mismatched = CountReductions(end, issued, &record);
  const bool late = record.late_reductions > 0;
  page::PageTotals& totals = member_->page().totals;
  Recorder::AddOwned(totals.step_count, end.stepped && end.max_micro_steps > 0);
  Recorder::AddOwned(totals.refused_count, end.failed);
  Recorder::AddOwned(totals.window_discarded_count, end.discarded);
  Recorder::AddOwned(totals.micro_step_skipped_count, end.skipped);
  Recorder::AddOwned(totals.item_count, static_cast<uint64_t>(end.items));
  const bool adopted =
      member_->WindowClosed(record, {late, mismatched, end.disagreed, end.stepped, end.failed, end.discarded, end.failed});
  if (report) {
    *report = {engine_.kind(),
               record.window_index,
               record.micro_steps,
               end.min_micro_steps,
               end.max_micro_steps,
               end.active_ranks,
               late,
               end.disagreed,
               end.global_items,
               adopted,
               member_->stage().unvetted().version != 0};
  }
  window_ = OpenWindow{};
  timer_ = WindowTimer{};
  return adopted;
}

Status Ledger::CloseWindow(const LedgerWindowEnd& end, ClosedWindow* report) {
  if (closed_ || member_->forked()) return CheckUsable();
  const Decision decision = engine_.BeforeStep();
  if (decision.refusal == Refusal::kFailed || (decision.action == Action::kRefuse && !end.failed))
    return Refused(decision.refusal);
  LeavePhase();
  counts_->BeginPhase(Phase::kOutside, 0, 0);
  const bool adopted = PublishWindow(end, report);
  if (end.failed) {
    engine_.Fail();
    return OkStatus();
  }
  // Whether it was reduced is the owner's to see to, and the counts' to tell.
  engine_.LateReduced();
  WindowCounts counts;
  (void)engine_.Close(&counts);
  if (!adopted) return OkStatus();
  const Enforcement wanted = member_->stage().in_force().enforcement;
  enforcement_ = wanted == Enforcement::kUnspecified ? o_.enforcement : wanted;
  return SetMode(policy_);
}

Status Ledger::SetMode(SyncMode mode) {
  if (closed_ || member_->forked()) return CheckUsable();
  if (engine_.state() == WindowEngine::State::kFailed) return Refused(Refusal::kFailed);
  if (mode == SyncMode::kWindowReplica && o_.roles != 0 && (o_.roles & kShard) == 0)
    return InvalidArgument("mode window_replica needs a shard group among the roles, which are " + RoleNames(o_.roles));
  if (!engine_.Configure({o_.accumulate, EveryMicroStep(enforcement_, mode), engine_.config().predicted}))
    return FailedPrecondition("the mode cannot change inside a window; close it first");
  policy_ = mode;
  member_->PublishMode(mode_in_force(), enforcement_);
  return OkStatus();
}

Status Ledger::Predict(uint32_t micro_steps) {
  if (closed_ || member_->forked()) return CheckUsable();
  if (engine_.state() == WindowEngine::State::kFailed) return Refused(Refusal::kFailed);
  if (o_.accumulate != 0 && micro_steps != 0)
    return InvalidArgument("windows are declared, of " + std::to_string(o_.accumulate) +
                           " micro-steps; nothing is to be predicted");
  if (!engine_.Configure({o_.accumulate, engine_.config().every_micro_step, micro_steps}))
    return FailedPrecondition("a prediction cannot change inside a window; close it first");
  return OkStatus();
}

Status Ledger::DeclareExtra(GroupRole role, uint32_t count) {
  if (closed_ || member_->forked()) return CheckUsable();
  const auto index = static_cast<uint32_t>(role);
  window_.extra[index] += count;
  window_.extra_unseen[index] += count;
  return OkStatus();
}

Status Ledger::Warn(const char* reason, const std::string& message) {
  if (closed_ || member_->forked()) return CheckUsable();
  member_->Warn(reason, message);
  return OkStatus();
}

Status Ledger::Close() {
  if (member_->forked()) return CheckUsable();
  if (closed_) return OkStatus();
  if (engine_.state() == WindowEngine::State::kInMicroStep) return Refused(Refusal::kStepInsideMicroStep);
  const bool failed = engine_.state() == WindowEngine::State::kFailed;
  LeavePhase();
  counts_->BeginPhase(Phase::kOutside, 0, 0);
  if (engine_.counts().micro_steps > 0 && !failed) {
    member_->Warn("open_window", "closed with " + std::to_string(engine_.counts().micro_steps) + " micro-steps of window " +
                                     std::to_string(engine_.counts().window_index) +
                                     " not stepped; flush before closing to use them");
  }
  closed_ = true;
  member_->Leave(failed, engine_.counts().window_index, "it closed its ledger");
  return OkStatus();
}

}  // namespace gradgate
