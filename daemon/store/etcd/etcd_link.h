// Channels to the endpoints of an etcd, the token of its user, and calls with deadlines.
//
// Thread class: any thread. Call() blocks until its deadline at most; Cancel() ends the calls that run and lets no other begin.

#ifndef GRADGATE_DAEMON_STORE_ETCD_ETCD_LINK_H_
#define GRADGATE_DAEMON_STORE_ETCD_ETCD_LINK_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/node/mutex.h"
#include "daemon/store/etcd/etcd_options.h"
#include "etcdserverpb/etcd.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"

namespace gradgate {

// One endpoint.
struct EtcdStubs {
  std::string endpoint;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<etcdserverpb::KV::Stub> kv;
  std::unique_ptr<etcdserverpb::Lease::Stub> lease;
  std::unique_ptr<etcdserverpb::Watch::Stub> watch;
  std::unique_ptr<etcdserverpb::Auth::Stub> auth;
};

class EtcdLink {
 public:
  // Connects to nothing yet. INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED: a PEM file cannot be used.
  static absl::StatusOr<std::unique_ptr<EtcdLink>> Create(const EtcdOptions& options);

  size_t endpoint_count() const { return stubs_.size(); }
  EtcdStubs& stubs(size_t endpoint) { return stubs_[endpoint % stubs_.size()]; }

  using Method = absl::FunctionRef<grpc::Status(EtcdStubs& stubs, grpc::ClientContext* context)>;
  // Calls `method`, with a token if there is a user; with a new one if etcd no longer takes the old one.
  absl::Status Call(size_t endpoint, absl::Time deadline, Method method) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, once more after Cancel(): for a farewell.
  absl::Status CallAfterCancel(size_t endpoint, absl::Time deadline, Method method) ABSL_LOCKS_EXCLUDED(mutex_);

  // Metadata and token for a stream, whose deadline is the caller's business. By the deadline.
  absl::Status PrepareStream(size_t endpoint, absl::Time deadline, grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_);

  // What a stream's end means. A token that is no longer taken is forgotten.
  absl::Status StreamError(size_t endpoint, const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit EtcdLink(const EtcdOptions& options) : options_(options) {}

  // Waits until the endpoint is connected, or an attempt to connect has failed that ended after this began.
  void AwaitConnection(size_t endpoint, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  bool cancelled() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return cancelled_;
  }
  grpc::Status CallOnce(size_t endpoint, absl::Time deadline, const std::string& token, bool is_last, Method method)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Call(size_t endpoint, absl::Time deadline, bool is_last, Method method) ABSL_LOCKS_EXCLUDED(mutex_);
  // Empty where none is needed.
  absl::StatusOr<std::string> Token(size_t endpoint, absl::Time deadline, bool is_last) ABSL_LOCKS_EXCLUDED(mutex_);
  void ForgetToken(const std::string& token) ABSL_LOCKS_EXCLUDED(mutex_);

  const EtcdOptions options_;
  std::vector<EtcdStubs> stubs_;
  Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  bool auth_is_off_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_STORE_ETCD_ETCD_LINK_H_
