// A data-parallel job inside a test: one session per rank, each on a thread of its own, over the in-process transport and an
// in-memory store.

#ifndef GRADGATE_TESTS_SHIM_CAPI_JOB_H_
#define GRADGATE_TESTS_SHIM_CAPI_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shim/capi/session.h"
#include "shim/reduce/in_process_transport.h"
#include "shim/reduce/store.h"
#include "tests/shim/reduce/memory_store.h"

namespace gradgate {

inline constexpr int64_t kTestSecond = 1'000'000'000;

// Every rank's gradients: tensors of float64 unless the test says otherwise, views of the session's buckets.
class Job {
 public:
  using Configure = std::function<void(uint32_t rank, SessionOptions& options)>;
  using Body = std::function<void(uint32_t rank, Session& session)>;

  explicit Job(uint32_t world_size) : hub_(world_size), world_size_(world_size), created_(world_size), log_(world_size) {}

  SessionOptions Defaults(uint32_t rank) {
    SessionOptions options;
    options.accumulate = 4;
    options.rank = rank;
    options.world_size = world_size_;
    options.local_rank = rank;
    options.job_name = "test";
    options.store_prefix = "t/";
    options.tensor_names = {"w"};
    options.tensors = {{nullptr, 1, DType::kFloat64}};
    options.store = &store_;
    options.transport = world_size_ > 1 ? hub_.transport(rank) : nullptr;
    options.bucket_bytes = 1 << 20;
    options.deadline_ns = 30 * kTestSecond;
    options.handshake_deadline_ns = 30 * kTestSecond;
    options.log = [](void* user, uint32_t, const char* reason, const char* message) {
      static_cast<std::vector<std::string>*>(user)->push_back(std::string(reason) + ": " + message);
    };
    options.log_user = &log_[rank];
    return options;
  }

  // Creates the sessions and runs `body` on every rank; returns when all have ended. created(rank) tells how creation went.
  void Run(const Configure& configure, const Body& body) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < world_size_; ++rank) {
      threads.emplace_back([this, rank, &configure, &body] {
        SessionOptions options = Defaults(rank);
        if (configure) configure(rank, options);
        std::unique_ptr<Session> session;
        created_[rank] = Session::Create(std::move(options), &session);
        if (created_[rank].ok()) body(rank, *session);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const Status& created(uint32_t rank) const { return created_[rank]; }
  const std::vector<std::string>& log(uint32_t rank) const { return log_[rank]; }
  InProcessHub& hub() { return hub_; }
  Store& store() { return store_; }
  uint32_t world_size() const { return world_size_; }

 private:
  MemoryStore store_;
  InProcessHub hub_;
  uint32_t world_size_;
  std::vector<Status> created_;
  std::vector<std::vector<std::string>> log_;
};

inline double& Gradient(Session& session, uint32_t tensor = 0, uint64_t element = 0) {
  return static_cast<double*>(session.reducer().gradient(tensor))[element];
}

// One micro-step whose gradient of every element of tensor 0 is `gradient`.
inline Status AddMicroStep(Session& session, double gradient, Last last = Last::kByCount, int64_t items = 0) {
  bool boundary = false;
  Status status = session.BeginMicroStep(last, items, &boundary);
  if (!status.ok()) return status;
  Gradient(session) += gradient;
  status = session.GradientReady(0);
  return status.ok() ? session.EndMicroStep() : status;
}

inline uint64_t Count(const page::U64& counter) { return counter.load(std::memory_order_relaxed); }

}  // namespace gradgate

#endif  // GRADGATE_TESTS_SHIM_CAPI_JOB_H_
