// One question to many daemons: unary calls of one method with one request, whose answers are handed over together.
//
//   made --Start()--> calls under way --(the last of them ended)--> done, once
//
// A call ends with its answer, an error, its deadline or Cancel(). The object keeps itself alive until then.
//
// Thread class: any thread. One lock, a leaf; gRPC and the callbacks are called without it.

#ifndef GRADGATE_DAEMON_RPC_FAN_OUT_H_
#define GRADGATE_DAEMON_RPC_FAN_OUT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "daemon/node/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace gradgate {

class FanOut final : public std::enable_shared_from_this<FanOut> {
 public:
  struct Call {
    std::shared_ptr<grpc::Channel> channel;
    absl::Time deadline;
  };
  struct End {
    grpc::Status status;  // RESOURCE_EXHAUSTED also for an answer that was too much with those before
    grpc::ByteBuffer answer;
    absl::Duration duration;
  };
  using Ended = std::function<void(size_t call, const End& end)>;  // as each ends; several at once
  using Done = std::function<void(std::vector<End> ends)>;         // in the order of the calls

  FanOut(std::string method, std::string request, size_t max_total_bytes)
      : method_(std::move(method)), request_(std::move(request)), max_total_bytes_(max_total_bytes) {}

  // Once. Without calls `done` is called at once.
  void Start(const std::vector<Call>& calls, Ended ended, Done done);

  void Cancel();

 private:
  struct Running {
    grpc::ClientContext context;
    absl::Time start;
    End end;
  };

  void OnEnd(size_t call, grpc::Status status);
  void OneLess();

  const std::string method_;
  const std::string request_;
  const size_t max_total_bytes_;
  Ended ended_;
  Done done_;
  std::vector<std::unique_ptr<Running>> running_;  // each touched by its own call alone, and by the last

  Mutex mutex_;
  size_t waiting_for_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;  // running_ is complete
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_FAN_OUT_H_
