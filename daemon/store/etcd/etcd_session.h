// One connection's worth of work: reads everything, then follows the watch and keeps the lease, until something breaks.
//
//   reading ─► watching ─► ended        Run() returns why
//
// A watch that was silent for a while is asked for a sign of life; without one by the deadline the session ends. Nothing is
// ever missed: the next session reads everything anew, and the copy tells what is different.
//
// Thread class: Run() on one thread; Wake() and Stop() on any.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ETCD_SESSION_H_
#define GRADGATE_DAEMON_STORE_ETCD_ETCD_SESSION_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "daemon/node/mutex.h"
#include "daemon/store/etcd/announcer.h"
#include "daemon/store/etcd/async_stream.h"
#include "daemon/store/etcd/etcd_link.h"
#include "daemon/store/etcd/etcd_options.h"
#include "daemon/store/etcd/etcd_state.h"
#include "grpcpp/alarm.h"
#include "grpcpp/completion_queue.h"

namespace gradgate {

class EtcdSession {
 public:
  // None is owned; all outlive this.
  EtcdSession(const EtcdOptions* options, size_t endpoint, EtcdLink* link, EtcdState* state, Announcer* announcer);
  ~EtcdSession();

  // Why it ended. OK: it was stopped, or the watch has to begin anew at once. Whether it was ever watching: `reached`.
  absl::Status Run();
  bool reached() const { return reached_; }

  // There is something to announce.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using WatchStream = AsyncStream<etcdserverpb::WatchRequest, etcdserverpb::WatchResponse>;
  using LeaseStream = AsyncStream<etcdserverpb::LeaseKeepAliveRequest, etcdserverpb::LeaseKeepAliveResponse>;

  absl::Status StartWatch();
  absl::Status StartLease();
  void Watched(const etcdserverpb::WatchResponse& response_untrusted);
  void Canceled(const etcdserverpb::WatchResponse& response_untrusted);
  void Prolonged(const etcdserverpb::LeaseKeepAliveResponse& response_untrusted);
  void End(absl::Status why);
  // What is due now; the time of what is due next.
  absl::Time Tick(absl::Time now);
  absl::Time TickHeartbeat(absl::Time now);
  absl::Time TickLease(absl::Time now);
  bool TakeWoken() ABSL_LOCKS_EXCLUDED(mutex_);
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

  const EtcdOptions& options_;
  const size_t endpoint_;
  EtcdLink* const link_;
  EtcdState* const state_;
  Announcer* const announcer_;

  std::unique_ptr<WatchStream> watch_;
  std::unique_ptr<LeaseStream> lease_;
  std::optional<absl::Status> ended_;
  bool reached_ = false;
  bool announce_due_ = true;
  absl::Time announce_again_ = absl::InfiniteFuture();
  absl::Time heard_;
  absl::Time asked_ = absl::InfiniteFuture();  // for a sign of life that has not come; infinite: not
  absl::Time prolonged_;
  absl::Time prolong_next_;

  Mutex mutex_;
  grpc::CompletionQueue queue_;
  AsyncTag woken_tag_;
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
  bool alarm_set_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ETCD_SESSION_H_
