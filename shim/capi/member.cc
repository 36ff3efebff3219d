#include "shim/capi/member.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "shim/capi/launch_id.h"
#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kTellNs = 200 * kMs;
// Ranks of different protocol numbers do not issue the same collectives.
constexpr char kProtocol[] = "2";

uint64_t Digest(const Facts& facts) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const auto& [name, value] : facts) {
    for (const unsigned char c : name + "=" + value + "\n") hash = (hash ^ c) * 0x100000001b3;
  }
  return hash;
}

// Values that this shim does not know become such as no rank can carry out.
SyncPolicy ToPolicy(const link::PolicyFrame& frame) {
  const auto byte = [](uint32_t value) { return static_cast<uint8_t>(std::min(value, 255u)); };
  const bool younger =
      std::any_of(std::begin(frame.reserved), std::end(frame.reserved), [](uint64_t word) { return word != 0; });
  return {.version = frame.version,
          .content_hash = frame.content_hash,
          .bucket_bytes = frame.bucket_bytes,
          .sync_mode = static_cast<SyncMode>(byte(frame.sync_mode)),
          .wire_type = static_cast<WireType>(byte(frame.wire_type)),
          .reshard = static_cast<Reshard>(byte(frame.reshard)),
          .enforcement = static_cast<Enforcement>(byte(younger ? ~0u : frame.enforcement))};
}

// The name that ranks have by their programs, which need not be one: rank 0's, which has told it before its handshake.
std::string CommonName(const MemberOptions& o) {
  std::string name;
  const Status read = o.store->Get(o.store_prefix + "name", o.handshake_deadline_ns, &name);
  const bool good =
      read.ok() && !name.empty() && name.size() <= kMaxJobNameBytes && std::all_of(name.begin(), name.end(), InJobName);
  return good ? name : o.job_name;
}

}  // namespace

int64_t NamingBudget(int64_t deadline_ns) { return std::min(2000 * kMs, deadline_ns / 4); }

Facts CommonFacts(const MemberOptions& o) {
  return {{"gradgate", GRADGATE_VERSION},
          {"protocol", kProtocol},
          {"world_size", std::to_string(o.world_size)},
          {"job", o.named_by_program ? "" : o.job_name},
          {"GRADGATE", std::string(Name(o.enforcement))},
          {"mode", std::string(Name(o.mode))},
          {"accumulate", std::to_string(o.accumulate)},
          {"windows", o.variable_windows ? "variable" : "equal"},
          {"strict", o.strict ? "yes" : "no"}};
}

Status Member::Join(const MemberOptions& options, const Facts& facts, SyncMode in_force, std::unique_ptr<Member>* out) {
  static std::atomic<uint32_t> joined{0};
  AgreedIds ids{.run_id = {}, .launch_id = MakeLaunchId(ReadLaunchSigns(), joined.fetch_add(1))};
  if (getrandom(ids.run_id.data(), ids.run_id.size(), 0) != static_cast<ssize_t>(ids.run_id.size()))
    return Internal("getrandom gave no run id");
  const bool several = options.named_by_program && options.world_size > 1;
  if (several && options.rank == 0)
    (void)options.store->Set(options.store_prefix + "name", options.job_name, options.handshake_deadline_ns);
  const Status agreed = Handshake({.store = options.store,
                                   .prefix = options.store_prefix,
                                   .rank = options.rank,
                                   .world_size = options.world_size,
                                   .facts = facts,
                                   .run_id = ids.run_id,
                                   .launch_id = ids.launch_id,
                                   .timeout_ns = options.handshake_deadline_ns},
                                  &ids);
  if (!agreed.ok()) return agreed;
  std::unique_ptr<Member> member(new Member(options));
  MemberOptions named = options;
  if (several && options.rank != 0) named.job_name = CommonName(options);
  member->Publish(named, facts, in_force, ids);
  if (options.world_size > 1)
    member->board_ = std::make_unique<ArrivalBoard>(options.store, options.store_prefix, options.rank, options.world_size);
  *out = std::move(member);
  return OkStatus();
}

void Member::Publish(const MemberOptions& o, const Facts& facts, SyncMode in_force, const AgreedIds& ids) {
  RecorderIdentity identity;
  identity.job_name = o.job_name;
  std::copy(ids.run_id.begin(), ids.run_id.end(), identity.run_id);
  std::copy(ids.launch_id.begin(), ids.launch_id.end(), identity.launch_id);
  identity.attempt = o.attempt;
  identity.rank = o.rank;
  identity.world_size = o.world_size;
  identity.local_rank = o.local_rank;
  identity.accumulate = o.accumulate;
  identity.sync_mode = o.mode;
  identity.enforcement = o.enforcement;
  identity.config_hash = Digest(facts);
  const Status exported = Recorder::Create(identity, &recorder_);
  guard_ = std::make_unique<ForkGuard>(nullptr, &recorder_->page(), sizeof(page::StatsPage));
  PublishMode(in_force, o.enforcement);
  if (!exported.ok()) Warn("stats_page", "counts stay in this process: " + exported.message());
  if (!exported.ok() || o.enforcement == Enforcement::kOff || o.daemon_dirs.empty()) return;
  const auto log = [](void* user, const char* reason, const char* message) {
    static_cast<Member*>(user)->Warn(reason, message);
  };
  link_ = std::make_unique<Link>(o.daemon_dirs, recorder_->fd(), &page(), log, this);
  link_->Poll(MonotonicNs());
}

void Member::Warn(const char* reason, const std::string& message) {
  Recorder::AddOwned(page().totals.warning_count, 1);
  if (told_.insert(reason).second && log_) log_(log_user_, 1, reason, message.c_str());
}

void Member::MicroStepBegun(uint32_t micro_step, int64_t now_ns) {
  page::PageTotals& totals = page().totals;
  totals.micro_step.store(micro_step, std::memory_order_relaxed);
  Recorder::AddOwned(totals.micro_step_count, 1);
  totals.last_event_ns.store(static_cast<uint64_t>(now_ns), std::memory_order_relaxed);
  recorder_->Record(EventKind::kMicroStepBegin, GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kOther, micro_step, 0,
                    now_ns);
  if (link_ && link_->Due(now_ns)) link_->Poll(now_ns);
}

void Member::MicroStepEnded(uint32_t micro_step, uint64_t duration_ns, int64_t now_ns) {
  page::PageTotals& totals = page().totals;
  Recorder::AddOwned(totals.micro_step_ns, duration_ns);
  totals.last_event_ns.store(static_cast<uint64_t>(now_ns), std::memory_order_relaxed);
  recorder_->Record(EventKind::kMicroStepEnd, GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kOther, micro_step,
                    duration_ns, now_ns);
}

bool Member::WindowClosed(page::WindowRecord record, const WindowEnd& end) {
  record.flags = (end.late ? page::kWindowLate : 0) | (end.mismatched ? page::kWindowMismatched : 0) |
                 (end.disagreed ? page::kWindowDisagreed : 0) | (!end.stepped ? page::kWindowUnstepped : 0) |
                 (end.failed ? page::kWindowFailed : 0);
  page::PageTotals& totals = page().totals;
  const auto kind = static_cast<WindowKind>(record.kind);
  Recorder::AddOwned(kind == WindowKind::kFull      ? totals.window_full_count
                     : kind == WindowKind::kPartial ? totals.window_partial_count
                                                    : totals.window_empty_count,
                     1);
  Recorder::AddOwned(totals.window_late_count, end.late);
  Recorder::AddOwned(totals.window_mismatched_count, end.mismatched);
  Recorder::AddOwned(totals.window_disagreed_count, end.disagreed);
  Recorder::AddOwned(totals.window_unstepped_count, !end.stepped && !end.failed && !end.discarded);
  Recorder::AddOwned(totals.exposed_ns, record.exposed_ns);
  Recorder::AddOwned(totals.wait_ns, record.wait_ns);
  Recorder::AddOwned(totals.window_ns, record.end_ns - record.begin_ns);
  recorder_->WindowClosed(record);
  recorder_->Record(EventKind::kWindowClosed, GroupRole::kDp, CollectiveOp::kAllReduce, TrafficClass::kOther,
                    record.micro_steps, record.exposed_ns, static_cast<int64_t>(record.end_ns));
  totals.window_index.store(record.window_index + 1, std::memory_order_relaxed);
  totals.micro_step.store(0, std::memory_order_relaxed);
  totals.last_event_ns.store(record.end_ns, std::memory_order_relaxed);
  // Also where the step was refused on this rank alone: the others take up what all have agreed on.
  const bool adopted = !end.over && stage_.WindowClosed(record.window_index + 1, alone_);
  if (link_) {
    link_->Poll(static_cast<int64_t>(record.end_ns));
    if (link_->policy_waits() && stage_.Offered(ToPolicy(link_->TakePolicy())) && !KnownPolicy(stage_.unvetted()))
      AnswerPolicy(PolicyRejection::kInvalid);
  }
  if (adopted) PublishPolicy();
  return adopted;
}

bool EveryMicroStep(Enforcement enforcement, SyncMode mode) {
  return enforcement != Enforcement::kEnforce || mode == SyncMode::kEveryMicroStep;
}

void Member::PublishMode(SyncMode in_force, Enforcement enforcement) {
  const Enforcement changed = enforcement == given_ ? Enforcement::kUnspecified : enforcement;
  page().totals.sync_mode.store(page::PackMode(in_force, changed), std::memory_order_relaxed);
}

void Member::AnswerPolicy(PolicyRejection rejection) {
  if (rejection == PolicyRejection::kNone) {
    stage_.Accept();
  } else {
    stage_.Reject(rejection);
  }
  PublishPolicy();
}

void Member::PublishPolicy() {
  page::PageTotals& totals = page().totals;
  totals.policy_version.store(stage_.in_force().version, std::memory_order_relaxed);
  totals.policy_adopted_window.store(stage_.adopted_window(), std::memory_order_relaxed);
  totals.policy_staged_version.store(stage_.waiting_version(), std::memory_order_relaxed);
  totals.policy_rejection.store(static_cast<uint64_t>(stage_.rejection()), std::memory_order_relaxed);
  totals.policy_rejected_version.store(stage_.rejected_version(), std::memory_order_relaxed);
}

void Member::Leave(bool failed, uint64_t window, const char* why) {
  page().totals.closed.store(1, std::memory_order_relaxed);
  if (!failed) LeaveUnsaid(window, why);
  if (link_) link_->Goodbye(failed);
}

void Member::LeaveUnsaid(uint64_t window, const char* why) {
  if (board_) board_->Left(window, why, kTellNs);
}

}  // namespace gradgate
