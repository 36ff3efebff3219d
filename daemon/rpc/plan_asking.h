// DiagnosisService.PlanSync's answer: a job's counts from all nodes, then its latest windows, then the plan.
//
//   made --Start()--> counts asked --> windows of that run asked --> done, once
//     └──(no job is named)--> done
//
// Both questions together take twice Peers::kMaxWait at most. A node that left out any of both has not answered.
//
// Thread class: any thread; `done` is called with no lock held.

#ifndef GRADGATE_DAEMON_RPC_PLAN_ASKING_H_
#define GRADGATE_DAEMON_RPC_PLAN_ASKING_H_

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/node/mutex.h"
#include "daemon/node/registry.h"
#include "daemon/rpc/page_token.h"
#include "daemon/rpc/peers.h"
#include "gradgate/v1/plan.pb.h"

namespace gradgate {

class PlanAsking final : public std::enable_shared_from_this<PlanAsking> {
 public:
  // NOT_FOUND: no such job. INVALID_ARGUMENT: a number outside its range, or that contradicts others. FAILED_PRECONDITION: what
  // was not measured, or is not known.
  using Done = std::function<void(absl::StatusOr<v1::PlanSyncResponse>)>;

  // None is owned; all outlive this. `peers` may be null: nobody else is asked.
  PlanAsking(const v1::PlanSyncRequest& request, Peers* peers, Registry* registry, const PageTokens* tokens, Done done)
      : request_(request), peers_(peers), registry_(registry), tokens_(tokens), done_(std::move(done)) {}

  // `done` is called once, maybe before this returns.
  void Start(absl::Time caller_deadline);

  // `done` comes all the same, soon.
  void Cancel();

 private:
  template <typename Question>
  void Ask(std::shared_ptr<Question> question);
  void Answered();
  void TakeStats(absl::StatusOr<v1::GetJobStatsResponse> stats);
  void TakeWindows(absl::StatusOr<v1::ListWindowsResponse> windows);

  const v1::PlanSyncRequest request_;
  Peers* const peers_;
  Registry* const registry_;
  const PageTokens* const tokens_;
  const Done done_;
  absl::Time caller_deadline_;
  v1::GetJobStatsResponse stats_;

  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> cancel_ ABSL_GUARDED_BY(mutex_);  // of the question under way
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_PLAN_ASKING_H_
