// Bounds what the daemon holds of answers that callers have not read yet.
//
// An answer is counted from when it is ready until its call ends, which it does when the caller has read it; a stream's last
// message until the next. What would go beyond the bound, or beyond a quarter of it for one peer, is not sent: the call ends
// with RESOURCE_EXHAUSTED.
//
// Thread class: any thread. It outlives the server that has its interceptors.

#ifndef GRADGATE_DAEMON_RPC_ANSWER_BUDGET_H_
#define GRADGATE_DAEMON_RPC_ANSWER_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "daemon/node/mutex.h"
#include "grpcpp/support/server_interceptor.h"

namespace gradgate {

class AnswerBudget {
 public:
  explicit AnswerBudget(size_t max_bytes) : max_bytes_(max_bytes), max_peer_bytes_(max_bytes / 4) {}

  // What the server is to be built with. `peer_of` names who is at the other end, from ServerContext::peer().
  using PeerOf = std::function<std::string(const std::string& grpc_peer)>;
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeInterceptors(PeerOf peer_of);

  // False: there is no room; nothing was taken. A peer that holds nothing always gets one answer, if the whole has room.
  bool Take(const std::string& peer, size_t bytes);
  void GiveBack(const std::string& peer, size_t bytes);

  size_t held_bytes();
  uint64_t refused_count();

 private:
  const size_t max_bytes_;
  const size_t max_peer_bytes_;
  Mutex mutex_;
  std::map<std::string, size_t> of_peer_ ABSL_GUARDED_BY(mutex_);
  size_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t refused_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_ANSWER_BUDGET_H_
