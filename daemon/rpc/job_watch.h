// A stream of the windows of a whole job: the daemon asks all nodes again and again (ListWindows), and tells what is new.
//
//   asking --(answers)--> writing, message by message --(all written)--> resting --(time, or news here)--> asking
//      └────────────────────────┴──(the job's end, the watcher gone, shutdown)────────┴──> finished
//
// One question is under way, or one answer's messages, never both: a slow watcher costs one answer, and is told how many
// windows it missed. No node keeps anything for it. A question waits four fifths of kQuestionTime for slow nodes, less for
// those that were silent not long ago (Peers). Questions come kLeastRest after each other, later where nothing changes, and in
// all of the hub's watches at most kMostCalls calls a second go to other nodes.
//
// Thread class: any thread (gRPC's); the steps follow each other. gRPC is called with no lock held, since it may call back at
// once.

#ifndef GRADGATE_DAEMON_RPC_JOB_WATCH_H_
#define GRADGATE_DAEMON_RPC_JOB_WATCH_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "daemon/node/mutex.h"
#include "daemon/node/registry.h"
#include "daemon/rpc/job_call.h"
#include "daemon/rpc/page_token.h"
#include "daemon/rpc/peers.h"
#include "daemon/rpc/watch_hub.h"
#include "daemon/rpc/watched_job.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/alarm.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

class JobWatch final : public grpc::ServerWriteReactor<v1::WatchWindowsResponse>,
                       public Watcher,
                       public std::enable_shared_from_this<JobWatch> {
 public:
  static constexpr absl::Duration kQuestionTime = absl::Milliseconds(1250);
  static constexpr absl::Duration kLeastRest = absl::Milliseconds(250);
  static constexpr absl::Duration kLongestRest = absl::Seconds(2);
  static constexpr double kMostCalls = 256;

  // None is owned; all outlive the stream.
  JobWatch(WatchHub* hub, Registry* registry, Peers* peers, const PageTokens* tokens, WatchedJob job)
      : hub_(hub), registry_(registry), peers_(peers), tokens_(tokens), job_(std::move(job)) {}

  // Asks for the first time. Once, after it was added to the hub.
  void Begin() { Ask(); }

  void Wake() override;
  void ShutDown() override;

 private:
  using WindowsAsking = JobAsking<v1::ListWindowsRequest, v1::ListWindowsResponse>;

  // The steps.
  void Ask();
  void Take(absl::StatusOr<v1::ListWindowsResponse> answer);
  void WriteOrGoOn();
  void Rest(absl::Duration longest);
  void Rested();

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { hub_->Remove(shared_from_this()); }

  // Lets the step under way end soon; the next one finishes the stream.
  void End(const grpc::Status& status);
  bool ending() {
    MutexLock lock(&mutex_);
    return end_.has_value();
  }
  void FinishEnded();

  WatchHub* const hub_;
  Registry* const registry_;
  Peers* const peers_;
  const PageTokens* const tokens_;

  // Of the steps.
  WatchedJob job_;
  WatchedJob::News news_;
  size_t written_count_ = 0;  // of its messages, or being written
  absl::Time asked_;
  absl::Time ask_after_;  // not before that
  absl::Time ask_by_;
  absl::Duration rest_ = kLeastRest;

  Mutex mutex_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<WindowsAsking> asking_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // a new one each time: a callback may not set its own again
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_JOB_WATCH_H_
