// Ends a call from another thread.
//
//   waiting --Cancel()--> cancelled   (for good; a call made with it later ends at once)
//
// Any thread. Must outlive the calls that were given it.

#ifndef GRADGATE_CLIENT_CANCELLATION_H_
#define GRADGATE_CLIENT_CANCELLATION_H_

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace grpc {
class ClientContext;
}

namespace gradgate::client {

class Cancellation {
 public:
  Cancellation() = default;
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  // Does not wait for the calls to end. Not async-signal-safe.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);

  bool cancelled() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits for it, for so long at most; what cancelled() then is.
  bool Await(absl::Duration longest) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ties a call to a cancellation for as long as it lives. A null `cancellation` does nothing.
  class Scope {
   public:
    Scope(Cancellation* cancellation, grpc::ClientContext* context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Cancellation* const cancellation_;
    grpc::ClientContext* const context_;
  };

 private:
  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_CANCELLATION_H_
