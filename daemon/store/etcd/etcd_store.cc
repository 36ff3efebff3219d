#include "daemon/store/etcd/etcd_store.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/mutex.h"
#include "daemon/store/etcd/announcer.h"
#include "daemon/store/etcd/backoff.h"
#include "daemon/store/etcd/etcd_errors.h"
#include "daemon/store/etcd/etcd_link.h"
#include "daemon/store/etcd/etcd_session.h"
#include "daemon/store/etcd/etcd_state.h"
#include "daemon/store/etcd/transactions.h"
#include "daemon/store/limits.h"

namespace gradgate {
namespace {

constexpr absl::Duration kFarewell = absl::Milliseconds(500);
constexpr absl::Duration kLeastTry = absl::Milliseconds(250);

uint64_t RandomSeed() {
  std::random_device random;
  return static_cast<uint64_t>(random()) << 32 | random();
}

absl::Status ClosedError() { return absl::CancelledError("the store is being closed"); }

class EtcdStore final : public Store {
 public:
  EtcdStore(const EtcdOptions& options, std::unique_ptr<EtcdLink> link)
      : options_(options),
        link_(std::move(link)),
        state_(options.name, options.prefix, options.log),
        announcer_(&options_, link_.get(), &state_) {
    endpoint_ = RandomSeed() % link_->endpoint_count();
    thread_ = std::thread([this] { Run(); });
  }
  ~EtcdStore() override;

  absl::StatusOr<int64_t> Put(absl::string_view key, absl::string_view value, std::optional<int64_t> expected_revision,
                              absl::Time deadline) override;
  absl::Status Delete(absl::string_view key, absl::Time deadline) override;
  std::vector<StoredValue> List(absl::string_view prefix) const override { return state_.List(prefix); }
  void Announce(absl::string_view key, absl::string_view value) override;
  absl::Status AnnounceStatus() const override { return state_.AnnounceStatus(); }
  StoreHealth Health() const override { return state_.Health(); }
  void OnChange(Changed changed) override { state_.OnChange(std::move(changed)); }

 private:
  // The own thread: one session after another.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status RunSession(bool* reached) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `method` on one endpoint after another until one answers.
  absl::Status CallAnywhere(absl::Time deadline, absl::FunctionRef<void(const absl::Status&)> failed, EtcdLink::Method method)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits, or not if the store is being closed; then false.
  bool Sleep(absl::Duration longest) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CountError(absl::Status status);
  // A write that failed, with what is wrong with etcd if the time was used up waiting for it.
  absl::Status WriteError(absl::Status status);

  const EtcdOptions options_;
  const std::unique_ptr<EtcdLink> link_;
  EtcdState state_;
  Announcer announcer_;           // of the own thread
  std::atomic<size_t> endpoint_;  // that answered last
  Mutex mutex_;
  CondVar condition_;
  EtcdSession* session_ ABSL_GUARDED_BY(mutex_) = nullptr;  // while one runs
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

EtcdStore::~EtcdStore() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    condition_.NotifyAll();
    if (session_ != nullptr) session_->Stop();
  }
  link_->Cancel();
  state_.Stop();
  thread_.join();
}

void EtcdStore::Run() {
  Backoff backoff(options_.min_backoff, options_.max_backoff, RandomSeed());
  size_t failure_count = 0;
  while (true) {
    bool reached = false;
    const absl::Time begin = absl::Now();
    const absl::Status why = RunSession(&reached);
    {
      MutexLock lock(&mutex_);
      if (stopping_) break;
    }
    if (reached && absl::Now() - begin >= options_.heartbeat_interval) {  // not one that ends as soon as it has begun
      backoff.Reset();
      failure_count = 0;
    }
    if (why.ok() && reached) {  // only the watch has to begin anew
      if (!Sleep(backoff.Next())) break;
      continue;
    }
    state_.SetTrouble(why.ok() ? absl::UnavailableError("what was read was compacted away at once") : why, absl::Now());
    ++endpoint_;
    // The other endpoints are tried soon, and all of them once before the wait grows.
    const bool round_is_over = ++failure_count % link_->endpoint_count() == 0;
    if (!Sleep(round_is_over ? backoff.Next() : options_.min_backoff / 2)) break;
  }
  if (state_.Health().reachable) announcer_.SayFarewell(endpoint_, absl::Now() + kFarewell);
}

absl::Status EtcdStore::RunSession(bool* reached) {
  EtcdSession session(&options_, endpoint_, link_.get(), &state_, &announcer_);
  {
    MutexLock lock(&mutex_);
    if (stopping_) return ClosedError();
    session_ = &session;
  }
  absl::Status why = session.Run();
  *reached = session.reached();
  MutexLock lock(&mutex_);
  session_ = nullptr;
  return why;
}

bool EtcdStore::Sleep(absl::Duration longest) {
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(longest);
  MutexLock lock(&mutex_);
  while (!stopping_ && std::chrono::steady_clock::now() < until) condition_.WaitUntil(&mutex_, until);
  return !stopping_;
}

void EtcdStore::Announce(absl::string_view key, absl::string_view value) {
  if (!state_.Announce(key, value)) return;
  MutexLock lock(&mutex_);
  if (session_ != nullptr) session_->Wake();
}

absl::Status EtcdStore::CountError(absl::Status status) {
  state_.CountError();
  return status;
}

absl::Status EtcdStore::WriteError(absl::Status status) {
  const StoreHealth health = state_.Health();
  if (absl::IsDeadlineExceeded(status) && !health.reachable) status = absl::UnavailableError(health.trouble);
  return CountError(status);
}

absl::Status EtcdStore::CallAnywhere(absl::Time deadline, absl::FunctionRef<void(const absl::Status&)> failed,
                                     EtcdLink::Method method) {
  Backoff backoff(options_.min_backoff / 2, options_.max_backoff / 5, RandomSeed());
  size_t endpoint = endpoint_;
  while (true) {
    // A member whose leader has just died takes a call and never answers it: there has to be time for another try.
    const absl::Duration share = std::max((deadline - absl::Now()) / 3, kLeastTry);
    const absl::Status status =
        link_->Call(endpoint, std::min(deadline, absl::Now() + std::min(share, options_.call_timeout)), method);
    if (!IsTransient(status)) return status;
    failed(status);
    ++endpoint;
    const absl::Duration wait = backoff.Next();
    if (absl::Now() + wait >= deadline) return status;
    if (!Sleep(wait)) return ClosedError();
  }
}

absl::StatusOr<int64_t> EtcdStore::Put(absl::string_view key, absl::string_view value, std::optional<int64_t> expected_revision,
                                       absl::Time deadline) {
  if (absl::Status s = CheckStoreKey(key); !s.ok()) return CountError(s);
  if (absl::Status s = CheckStoreValue(key, value); !s.ok()) return CountError(s);
  if (absl::Status s = state_.CheckRoom(key, value); !s.ok()) return CountError(s);
  const etcdserverpb::TxnRequest request =
      PutTransaction(absl::StrCat(options_.prefix, key), std::string(value), 0, expected_revision);
  etcdserverpb::TxnResponse response;
  bool may_be_written = false;
  const absl::Status status = CallAnywhere(
      deadline, [&](const absl::Status&) { may_be_written = true; },
      [&](EtcdStubs& stubs, grpc::ClientContext* context) { return stubs.kv->Txn(context, request, &response); });
  if (!status.ok()) return WriteError(status);
  int64_t revision = response.header().revision();
  if (!response.succeeded()) {
    const std::optional<EtcdCopy::Entry> present = PresentValue(response);
    const int64_t present_revision = present ? present->revision : 0;
    // An earlier try whose answer was lost has done it.
    const bool was_written =
        may_be_written && present && present->value == value && present->revision > expected_revision.value_or(0);
    if (!was_written) {
      return absl::AbortedError(absl::StrCat(key, " has revision ", present_revision, ", not ", expected_revision.value_or(0)));
    }
    revision = present_revision;
  }
  if (revision < 1)
    return CountError(absl::InternalError(absl::StrCat("the answer makes no sense: revision ", revision, "; is it an etcd?")));
  state_.ChangeCopy([&](EtcdCopy& copy) {
    return copy.Wrote(key, value, revision, 0) ? std::vector<std::string>{std::string(key)} : std::vector<std::string>();
  });
  return revision;
}

absl::Status EtcdStore::Delete(absl::string_view key, absl::Time deadline) {
  if (absl::Status s = CheckStoreKey(key); !s.ok()) return CountError(s);
  etcdserverpb::DeleteRangeRequest request;
  request.set_key(absl::StrCat(options_.prefix, key));
  etcdserverpb::DeleteRangeResponse response;
  const absl::Status status = CallAnywhere(
      deadline, [](const absl::Status&) {},
      [&](EtcdStubs& stubs, grpc::ClientContext* context) { return stubs.kv->DeleteRange(context, request, &response); });
  if (!status.ok()) return WriteError(status);
  state_.ChangeCopy([&](EtcdCopy& copy) {
    return copy.Removed(key, response.header().revision()) ? std::vector<std::string>{std::string(key)}
                                                           : std::vector<std::string>();
  });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenEtcdStore(const EtcdOptions& options) {
  absl::StatusOr<std::unique_ptr<EtcdLink>> link = EtcdLink::Create(options);
  if (!link.ok()) return link.status();
  return std::make_unique<EtcdStore>(options, *std::move(link));
}

}  // namespace gradgate
