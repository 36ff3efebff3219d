#include "daemon/rpc/policy_service.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/mutex.h"
#include "daemon/node/text_check.h"
#include "daemon/policy/policy_content.h"
#include "daemon/policy/policy_state.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/method_gate.h"
#include "daemon/rpc/policy_audit.h"
#include "daemon/rpc/policy_watch.h"
#include "daemon/rpc/refused_stream.h"

namespace gradgate {
namespace {

constexpr size_t kMaxActorBytes = 128;
constexpr size_t kMaxCallerBytes = 80;
constexpr absl::Duration kMaxWait = absl::Seconds(3);  // for the store, or for other nodes
constexpr double kCallersShare = 0.9;                  // of its time is used: it is to hear what took so long
constexpr int kTries = 5;
constexpr absl::Duration kPause = absl::Milliseconds(50);

using RefusedWatch = RefusedStream<v1::WatchPolicyResponse>;

absl::Status ShuttingDown() { return absl::UnavailableError("the daemon is shutting down"); }

constexpr absl::Duration kAuditWait = absl::Seconds(1);

std::string NameOf(const Caller& caller) { return caller.common_name.empty() ? caller.subject : caller.common_name; }

// UNAVAILABLE would say that this daemon is not there.
absl::Status AsOfStore(const absl::Status& status, const StoreHealth& health) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  return absl::FailedPreconditionError(absl::StrCat(
      "the store (", health.name, ") cannot be written: ", status.message(),
      absl::IsDeadlineExceeded(status) ? "; the policy may be in it all the same" : "; jobs keep the policies they have"));
}

// At most so many bytes of it, whole characters.
std::string Cut(const std::string& text, size_t max_bytes) {
  size_t bytes = std::min(text.size(), max_bytes);
  while (bytes > 0 && bytes < text.size() && (text[bytes] & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// However long a name somebody gives himself, that of his certificate stays behind it.
std::string Signed(const std::string& actor, const std::string& caller) {
  if (caller.empty()) return actor;
  const std::string name = IsPrintableUtf8(caller) ? caller : absl::CHexEscape(caller);
  const std::string suffix = absl::StrCat(" (", Cut(name, kMaxCallerBytes), ")");
  return Cut(actor, kMaxActorBytes - suffix.size()) + suffix;
}

// What is not named stays as it is; so that has to be known.
absl::Status CheckKnown(const v1::SetPolicyRequest& request, const v1::PolicyStatus& present) {
  int64_t held = 0;
  for (const v1::RankPolicy& rank : present.ranks()) held = std::max(held, rank.adopted_version());
  const int fields = v1::Policy::descriptor()->field_count();
  if (held == 0 || present.proposed().version() >= held || request.update_mask().paths_size() >= fields)
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks have version ", held, " in force, which the store does not have (it was emptied), so what is to stay is ",
      "not known; name all ", fields, " fields: mode=, bucket=, wire=, reshard= and enforcement="));
}

absl::Status CheckRunning(const v1::PolicyStatus& present) {
  const v1::Job& job = present.job();
  if (job.state() == v1::STATE_RUNNING) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", job.job_name(), "\" (run ", job.run_id(), ") has ended; nothing of it can change"));
}

}  // namespace

const v1::Policy& BaseOf(const v1::PolicyStatus& present) {
  const bool rejected = present.state() == v1::POLICY_STATE_REJECTED;
  return rejected ? present.proposed().former_policy() : present.proposed().policy();
}

absl::StatusOr<Proposal> CheckProposal(const v1::SetPolicyRequest& request, const v1::PolicyStatus& present,
                                       const std::string& caller) {
  if (request.actor().size() > kMaxActorBytes || !IsPrintableUtf8(request.actor())) {
    return absl::InvalidArgumentError(
        absl::StrCat("actor has ", request.actor().size(), " bytes; give at most ", kMaxActorBytes, " of printable UTF-8"));
  }
  if (request.expected_version() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected_version is ", request.expected_version(), ", must not be negative"));
  }
  const v1::Policy& base = BaseOf(present);
  absl::StatusOr<v1::Policy> merged = Merge(base, request.policy(), request.update_mask());
  if (!merged.ok()) return merged.status();
  if (absl::Status status = CheckRunning(present); !status.ok()) return status;
  if (absl::Status status = CheckKnown(request, present); !status.ok()) return status;
  Proposal proposal;
  proposal.job = KeyOf(present.job());
  proposal.launch_id = present.job().launch_id();
  proposal.policy = *std::move(merged);
  // What ranks have in force, so that a field which nobody carries out is not handed on.
  proposal.former = present.state() == v1::POLICY_STATE_ADOPTED ? base : present.proposed().former_policy();
  proposal.actor = Signed(request.actor(), caller);
  proposal.expected = present.proposed().version();
  if (request.expected_version() != 0 && request.expected_version() != proposal.expected) {
    return absl::AbortedError(absl::StrCat("the present version is ", proposal.expected, ", not ", request.expected_version(),
                                           "; look at it and set again"));
  }
  for (const v1::RankPolicy& rank : present.ranks()) {
    proposal.above = std::max({proposal.above, rank.adopted_version(), rank.staged_version(), rank.rejected_version()});
  }
  return proposal;
}

// The service's thread: proposals in the order in which they came, and between them the watches.
class PolicyService::Worker {
 public:
  using Task = std::function<void(bool shutting_down)>;

  Worker(const PolicyReader* reader, size_t max_watchers)
      : reader_(reader), max_watchers_(max_watchers), thread_([this] { Run(); }) {}
  ~Worker() { ShutDown(); }

  absl::Status Add(Task task) {
    MutexLock lock(&mutex_);
    if (ending_) return ShuttingDown();
    if (tasks_.size() >= kMaxWaiting) {
      return absl::ResourceExhaustedError(absl::StrCat(tasks_.size(), " proposals wait already; try again"));
    }
    tasks_.push_back(std::move(task));
    wake_.NotifyAll();
    return absl::OkStatus();
  }

  absl::Status Add(std::shared_ptr<PolicyWatch> watch) {
    MutexLock lock(&mutex_);
    if (ending_) return ShuttingDown();
    DropOver();
    if (watches_.size() >= max_watchers_) {
      return absl::ResourceExhaustedError(absl::StrCat("too many watchers: ", watches_.size(), "; raise --max_watchers"));
    }
    watches_.push_back(std::move(watch));
    new_watch_ = true;
    wake_.NotifyAll();
    return absl::OkStatus();
  }

  void ShutDown() {
    {
      MutexLock lock(&mutex_);
      ending_ = true;
      wake_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Work {
    std::deque<Task> tasks;
    std::vector<std::shared_ptr<PolicyWatch>> watches;
  };

  void Run() {
    Work work;
    while (Next(&work)) {
      for (const Task& task : work.tasks) task(ending());
      Look(work.watches);
      work.watches.clear();
    }
    for (const Task& task : work.tasks) task(true);
    for (const auto& watch : work.watches) watch->End(ToGrpc(ShuttingDown()));
  }

  // Waits for something to do. False: this is the last of it.
  bool Next(Work* work) {
    MutexLock lock(&mutex_);
    while (!ending_ && tasks_.empty() && watches_.empty()) wake_.WaitFor(&mutex_, std::chrono::minutes(1));
    if (!ending_ && tasks_.empty() && !new_watch_) wake_.WaitFor(&mutex_, absl::ToChronoNanoseconds(kWatchInterval));
    new_watch_ = false;
    DropOver();
    work->tasks = std::exchange(tasks_, {});
    work->watches = watches_;
    if (ending_) watches_.clear();
    return !ending_;
  }

  void DropOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto over = [](const std::shared_ptr<PolicyWatch>& watch) { return watch->over(); };
    watches_.erase(std::remove_if(watches_.begin(), watches_.end(), over), watches_.end());
  }

  bool ending() {
    MutexLock lock(&mutex_);
    return ending_;
  }

  // Each job is read once, however many watch it.
  void Look(const std::vector<std::shared_ptr<PolicyWatch>>& watches) {
    std::map<std::string, absl::StatusOr<v1::GetPolicyResponse>> seen;
    for (const auto& watch : watches) {
      if (watch->over()) continue;
      auto at = seen.find(watch->job());
      if (at == seen.end()) {
        v1::GetPolicyRequest request;
        request.set_job(watch->job());
        at = seen.emplace(watch->job(), reader_->Read(request, absl::Now() + kMaxWait)).first;
      }
      watch->Show(at->second);
    }
  }

  const PolicyReader* const reader_;
  const size_t max_watchers_;
  Mutex mutex_;
  CondVar wake_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<PolicyWatch>> watches_ ABSL_GUARDED_BY(mutex_);
  bool new_watch_ ABSL_GUARDED_BY(mutex_) = false;  // has been shown nothing yet
  std::thread thread_;                              // last: it uses the others
};

PolicyService::PolicyService(const PolicyReader* reader, PolicyDesk* desk, Options options)
    : reader_(reader),
      desk_(desk),
      options_(std::move(options)),
      worker_(std::make_unique<Worker>(reader, options_.max_watchers)) {}

PolicyService::~PolicyService() = default;

void PolicyService::ShutDown() { worker_->ShutDown(); }

grpc::ServerUnaryReactor* PolicyService::GetPolicy(grpc::CallbackServerContext* context, const v1::GetPolicyRequest* request,
                                                   v1::GetPolicyResponse* response) {
  return reader_->Answer(context, *request, response);
}

void PolicyService::Audit(const v1::AuditRecord& record) const {
  if (options_.audit == nullptr) return;
  options_.audit->Add(record);
  if (record.to_version() != 0) options_.audit->Flush(kAuditWait);
}

// Reads, checks, writes, and reads again, so that the answer shows the proposal.
grpc::ServerUnaryReactor* PolicyService::SetPolicy(grpc::CallbackServerContext* context, const v1::SetPolicyRequest* request,
                                                   v1::SetPolicyResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Caller caller = options_.caller_of(*context);
  const auto record = std::make_shared<v1::AuditRecord>(RecordOf(caller, *request));
  if (const absl::Status allowed = CheckAccess(caller, kSetPolicyMethod); !allowed.ok()) {
    NoteDenied(allowed, record.get());
    Audit(*record);
    reactor->Finish(ToGrpc(allowed));
    return reactor;
  }
  const absl::Time now = absl::Now();
  const absl::Time deadline = now + std::min(kCallersShare * (absl::FromChrono(context->deadline()) - now), 2 * kMaxWait);
  const auto set_once = [this, request, response, name = NameOf(caller), deadline, record]() -> absl::Status {
    if (absl::Now() >= deadline) return absl::DeadlineExceededError("others' proposals took too long; nothing was proposed");
    v1::GetPolicyRequest get;
    get.set_job(request->job());
    absl::StatusOr<v1::GetPolicyResponse> present = reader_->Read(get, deadline);
    if (!present.ok()) return present.status();
    const absl::StatusOr<Proposal> proposal = CheckProposal(*request, present->status(), name);
    if (!proposal.ok()) return proposal.status();
    NoteProposal(present->status(), BaseOf(present->status()), *proposal, record.get());
    *response->mutable_status() = present->status();
    if (request->validate_only()) return absl::OkStatus();
    const absl::StatusOr<v1::ProposedPolicy> proposed = desk_->Propose(*proposal, std::min(deadline, absl::Now() + kMaxWait));
    if (!proposed.ok()) return AsOfStore(proposed.status(), desk_->Health());
    record->set_to_version(proposed->version());
    *response->mutable_status()->mutable_proposed() = *proposed;
    Judge(response->mutable_status());
    return absl::OkStatus();
  };
  // Somebody else has set a policy between the read and the write, and this daemon hears of it in a moment.
  const auto set = [set_once, request]() -> absl::Status {
    absl::Status done = set_once();
    for (int again = 0; again < kTries && absl::IsAborted(done) && request->expected_version() == 0; ++again) {
      absl::SleepFor(kPause);
      done = set_once();
    }
    return done;
  };
  const auto finish = [this, reactor, record](const absl::Status& done) {
    NoteOutcome(done, record->to_version(), record.get());
    Audit(*record);
    reactor->Finish(ToGrpc(done));
  };
  const absl::Status queued =
      worker_->Add([finish, set](bool shutting_down) { finish(shutting_down ? ShuttingDown() : set()); });
  if (!queued.ok()) finish(queued);
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchPolicyResponse>* PolicyService::WatchPolicy(grpc::CallbackServerContext*,
                                                                              const v1::WatchPolicyRequest* request) {
  if (request->job().empty()) return new RefusedWatch(absl::InvalidArgumentError("job is empty; give a job name or a run id"));
  auto watch = std::make_shared<PolicyWatch>(request->job());
  watch->Hold();
  PolicyWatch* const reactor = watch.get();
  if (absl::Status status = worker_->Add(std::move(watch)); !status.ok()) reactor->End(ToGrpc(status));
  return reactor;
}

}  // namespace gradgate
