#include "daemon/store/etcd/etcd_session.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/etcd/etcd_errors.h"
#include "daemon/store/etcd/etcd_reader.h"
#include "daemon/store/etcd/transactions.h"

namespace gradgate {
namespace {

constexpr absl::Duration kAnnounceAgain = absl::Seconds(5);  // a key that was refused, or is somebody else's

// Of a clock that nobody sets.
absl::Time SteadyNow() { return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

gpr_timespec Deadline(absl::Time due) {
  const int64_t wait_ns = std::clamp<int64_t>(absl::ToInt64Nanoseconds(due - SteadyNow()), 0, 3600 * int64_t{1'000'000'000});
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(wait_ns, GPR_TIMESPAN));
}

}  // namespace

EtcdSession::EtcdSession(const EtcdOptions* options, size_t endpoint, EtcdLink* link, EtcdState* state, Announcer* announcer)
    : options_(*options), endpoint_(endpoint), link_(link), state_(state), announcer_(announcer), woken_tag_([this](bool) {
        MutexLock lock(&mutex_);
        alarm_set_ = false;
      }) {}

EtcdSession::~EtcdSession() { Drain(); }

absl::Status EtcdSession::Run() {
  if (absl::Status s = ReadAll(options_, endpoint_, link_, state_); !s.ok()) return s;
  if (absl::Status s = StartWatch(); !s.ok()) return s;
  while (!ended_.has_value()) {
    const absl::Time due = Tick(SteadyNow());
    if (ended_.has_value()) break;
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, Deadline(due)) == grpc::CompletionQueue::GOT_EVENT) {
      static_cast<AsyncTag*>(tag)->Done(ok);
    }
  }
  return *ended_;
}

absl::Status EtcdSession::StartWatch() {
  watch_ = std::make_unique<WatchStream>([this](const etcdserverpb::WatchResponse& response) { Watched(response); },
                                         [this](const grpc::Status& status) {
                                           const absl::Status why = link_->StreamError(endpoint_, status);
                                           End(why.ok() ? absl::UnavailableError("the watch ended") : why);
                                         });
  if (absl::Status s = link_->PrepareStream(endpoint_, absl::Now() + options_.call_timeout, watch_->context()); !s.ok())
    return s;
  watch_->Start(link_->stubs(endpoint_).watch->PrepareAsyncWatch(watch_->context(), &queue_));
  etcdserverpb::WatchRequest request;
  etcdserverpb::WatchCreateRequest& create = *request.mutable_create_request();
  create.set_key(options_.prefix);
  create.set_range_end(PrefixEnd(options_.prefix));
  create.set_start_revision(state_->revision() + 1);
  create.set_fragment(true);
  watch_->Send(std::move(request));
  heard_ = SteadyNow();
  asked_ = heard_;  // its beginning is a sign of life
  return absl::OkStatus();
}

void EtcdSession::Watched(const etcdserverpb::WatchResponse& response_untrusted) {
  heard_ = SteadyNow();
  asked_ = absl::InfiniteFuture();
  if (response_untrusted.canceled()) return Canceled(response_untrusted);
  if (response_untrusted.created()) {
    reached_ = true;
    state_->SetReachable(absl::Now());
  }
  if (response_untrusted.events().empty()) return;
  const std::vector<std::string> keys = state_->ChangeCopy([&](EtcdCopy& copy) { return copy.Apply(response_untrusted); });
  const auto announced = state_->announced();
  for (const std::string& key : keys) announce_due_ |= announced.contains(key);
}

void EtcdSession::Canceled(const etcdserverpb::WatchResponse& response_untrusted) {
  if (response_untrusted.compact_revision() > 0) return End(absl::OkStatus());  // what was compacted away is read instead
  const std::string reason = ShownText(response_untrusted.cancel_reason());
  End(link_->StreamError(endpoint_, grpc::Status(absl::StrContains(reason, "ermission") ? grpc::StatusCode::PERMISSION_DENIED
                                                                                        : grpc::StatusCode::UNAVAILABLE,
                                                 absl::StrCat("the watch was refused: ", reason))));
}

void EtcdSession::End(absl::Status why) {
  if (!ended_.has_value()) ended_ = std::move(why);
}

absl::Time EtcdSession::Tick(absl::Time now) {
  announce_due_ |= TakeWoken();
  if (ended_.has_value()) return now;
  if (reached_ && (announce_due_ || now >= announce_again_)) {
    announce_due_ = false;
    if (absl::Status s = announcer_->Update(endpoint_); !s.ok()) End(s);
    announce_again_ = state_->AnnounceStatus().ok() ? absl::InfiniteFuture() : SteadyNow() + kAnnounceAgain;
    now = SteadyNow();
  }
  return std::min({TickHeartbeat(now), TickLease(now), announce_again_});
}

absl::Time EtcdSession::TickHeartbeat(absl::Time now) {
  if (asked_ != absl::InfiniteFuture()) {
    const absl::Time due = asked_ + options_.heartbeat_timeout;
    if (now >= due) {
      End(absl::DeadlineExceededError(
          absl::StrCat(link_->stubs(endpoint_).endpoint, ": nothing was heard for ", absl::FormatDuration(now - heard_))));
    }
    return due;
  }
  if (now >= heard_ + options_.heartbeat_interval) {
    etcdserverpb::WatchRequest request;
    request.mutable_progress_request();
    watch_->Send(std::move(request));
    asked_ = now;
    return now + options_.heartbeat_timeout;
  }
  return heard_ + options_.heartbeat_interval;
}

absl::Status EtcdSession::StartLease() {
  lease_ = std::make_unique<LeaseStream>([this](const etcdserverpb::LeaseKeepAliveResponse& response) { Prolonged(response); },
                                         [this](const grpc::Status& status) {
                                           const absl::Status why = link_->StreamError(endpoint_, status);
                                           End(why.ok() ? absl::UnavailableError("the lease's stream ended") : why);
                                         });
  if (absl::Status s = link_->PrepareStream(endpoint_, absl::Now() + options_.call_timeout, lease_->context()); !s.ok())
    return s;
  lease_->Start(link_->stubs(endpoint_).lease->PrepareAsyncLeaseKeepAlive(lease_->context(), &queue_));
  prolonged_ = SteadyNow();
  prolong_next_ = prolonged_;
  return absl::OkStatus();
}

absl::Time EtcdSession::TickLease(absl::Time now) {
  if (announcer_->lease() == 0) return absl::InfiniteFuture();
  if (!lease_) {
    if (absl::Status s = StartLease(); !s.ok()) End(s);
    now = SteadyNow();
  }
  if (now >= prolonged_ + options_.lease_ttl) {
    End(absl::DeadlineExceededError(absl::StrCat(link_->stubs(endpoint_).endpoint, ": the lease was not prolonged for ",
                                                 absl::FormatDuration(now - prolonged_))));
  }
  if (now >= prolong_next_) {
    etcdserverpb::LeaseKeepAliveRequest request;
    request.set_id(announcer_->lease());
    lease_->Send(std::move(request));
    prolong_next_ = now + options_.lease_ttl / 3;
  }
  return std::min(prolong_next_, prolonged_ + options_.lease_ttl);
}

void EtcdSession::Prolonged(const etcdserverpb::LeaseKeepAliveResponse& response_untrusted) {
  if (response_untrusted.id() != announcer_->lease()) return;  // of one that was forgotten
  prolonged_ = SteadyNow();
  if (response_untrusted.ttl() > 0) return;
  announcer_->ForgetLease();
  announce_due_ = true;
}

bool EtcdSession::TakeWoken() {
  MutexLock lock(&mutex_);
  if (stopped_) End(absl::OkStatus());
  return std::exchange(woken_, false);
}

void EtcdSession::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  if (alarm_set_ || drained_) return;
  alarm_set_ = true;
  alarm_.Set(&queue_, gpr_now(GPR_CLOCK_MONOTONIC), &woken_tag_);
}

void EtcdSession::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  Wake();
}

void EtcdSession::Drain() {
  {
    MutexLock lock(&mutex_);
    drained_ = true;
  }
  End(absl::OkStatus());
  if (watch_) watch_->Cancel();
  if (lease_) lease_->Cancel();
  void* tag = nullptr;
  bool ok = false;
  while (!(!watch_ || watch_->done()) || !(!lease_ || lease_->done())) {
    if (queue_.Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Done(ok);
  }
  queue_.Shutdown();
  while (queue_.Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Done(ok);  // of the alarm
}

}  // namespace gradgate
