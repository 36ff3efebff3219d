// One stream of a job's policy.
//
// Thread class: Show(), End() and job() on the service's worker; gRPC's callbacks on any thread. gRPC is called with no lock
// held.

#ifndef GRADGATE_DAEMON_RPC_POLICY_WATCH_H_
#define GRADGATE_DAEMON_RPC_POLICY_WATCH_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "daemon/node/mutex.h"
#include "gradgate/v1/policy.pb.h"
#include "grpcpp/grpcpp.h"

namespace gradgate {

// They tell a person the same: they differ at most in what every window or every answer changes.
bool TellTheSame(v1::PolicyStatus a, v1::PolicyStatus b);

class PolicyWatch final : public grpc::ServerWriteReactor<v1::WatchPolicyResponse>,
                          public std::enable_shared_from_this<PolicyWatch> {
 public:
  explicit PolicyWatch(std::string job) : job_(std::move(job)) {}

  // As the caller gave it; once the job was found, its run id.
  const std::string& job() const { return job_; }

  // Keeps this object alive until the stream is done; before it is given to gRPC.
  void Hold() { self_ = shared_from_this(); }

  // Writes `seen` if it is another than before and nothing is being written; ends the stream with an error, or when the job has
  // ended and that was told.
  void Show(const absl::StatusOr<v1::GetPolicyResponse>& seen);
  void End(const grpc::Status& status);

  // The stream is over, or ends with the write under way.
  bool over() const;

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { self_.reset(); }

  // Does what is due: a write, or the end once nothing is being written.
  void Act();

  std::string job_;  // the worker's
  std::shared_ptr<PolicyWatch> self_;
  v1::WatchPolicyResponse response_;  // touched only while no write is under way
  mutable Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;  // a message is to be written, or is being written
  bool write_begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_POLICY_WATCH_H_
