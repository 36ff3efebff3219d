#include "shim/reduce/in_process_transport.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "shim/core/thread_annotations.h"
#include "shim/reduce/clock.h"

namespace gradgate {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point At(int64_t ns) { return Clock::time_point(std::chrono::nanoseconds(ns)); }

template <typename T>
void ReduceTyped(const std::vector<AllReduceRequest>& ranks) {
  const uint64_t n = ranks[0].element_count;
  std::vector<T> result(n);
  if (n > 0) std::memcpy(result.data(), ranks[0].data, n * sizeof(T));
  for (size_t r = 1; r < ranks.size(); ++r) {
    const T* in = static_cast<const T*>(ranks[r].data);
    for (uint64_t i = 0; i < n; ++i) {
      if (ranks[0].op == ReduceOp::kMax) {
        result[i] = std::max(result[i], in[i]);
      } else if constexpr (std::is_same_v<T, int64_t>) {  // wraps, as the hardware does
        result[i] = static_cast<int64_t>(static_cast<uint64_t>(result[i]) + static_cast<uint64_t>(in[i]));
      } else {
        result[i] += in[i];
      }
    }
  }
  for (const AllReduceRequest& rank : ranks) {
    if (n > 0) std::memcpy(rank.data, result.data(), n * sizeof(T));
  }
}

void Reduce(const std::vector<AllReduceRequest>& ranks) {
  switch (ranks[0].dtype) {
    case DType::kFloat32:
      return ReduceTyped<float>(ranks);
    case DType::kFloat64:
      return ReduceTyped<double>(ranks);
    case DType::kInt64:
      return ReduceTyped<int64_t>(ranks);
  }
}

std::string Describe(const AllReduceRequest& request) {
  return std::to_string(request.element_count) + " elements, dtype " + std::to_string(static_cast<int>(request.dtype)) +
         ", op " + std::to_string(static_cast<int>(request.op));
}

}  // namespace

class InProcessHub::State {
 public:
  explicit State(uint32_t world_size) : world_size_(world_size), ranks_(world_size), thread_([this] { Run(); }) {}

  ~State() GG_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      const Status closed = Aborted("the in-process hub was destroyed");
      FailLocked(0, closed, closed);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  uint32_t world_size() const { return world_size_; }

  Ticket Start(uint32_t rank, const AllReduceRequest& request) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ranks_[rank].queue.push_back({request, MonotonicNs()});
    changed_.notify_all();
    return ++ranks_[rank].started;
  }

  Status Wait(uint32_t rank, Ticket ticket, int64_t deadline_ns) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    PerRank& mine = ranks_[rank];
    if (ticket > mine.started) return InvalidArgument("ticket " + std::to_string(ticket) + " was not started");
    while (mine.done < ticket) {
      if (MonotonicNs() >= deadline_ns) {
        return DeadlineExceeded("request " + std::to_string(ticket) + " of rank " + std::to_string(rank) + " is not done yet");
      }
      changed_.wait_until(mutex_, At(deadline_ns));
    }
    return ticket <= mine.succeeded ? OkStatus() : mine.failure;
  }

  // The first failure counts. `own` may be ok when no rank differs from the others.
  void Fail(uint32_t rank, Status own, const Status& others) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    FailLocked(rank, std::move(own), others);
  }

  // Until all that `rank` started is done.
  void Drain(uint32_t rank) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (ranks_[rank].done < ranks_[rank].started) changed_.wait(mutex_);
  }

  void SetHook(Hook hook) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    hook_ = std::move(hook);
  }

  InProcessCount count(uint32_t rank, DType dtype, ReduceOp op) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return ranks_[rank].counts[{dtype, op}];
  }

 private:
  struct Pending {
    AllReduceRequest request;
    int64_t start_ns;
  };
  struct PerRank {
    std::deque<Pending> queue;
    Ticket started = 0;
    Ticket done = 0;       // advanced after the callback
    Ticket succeeded = 0;  // ≤ done
    Status failure;        // not ok once the group is dead
    std::map<std::pair<DType, ReduceOp>, InProcessCount> counts;
  };

  void FailLocked(uint32_t rank, Status own, const Status& others) GG_REQUIRES(mutex_) {
    if (dead_) return;
    dead_ = true;
    for (uint32_t r = 0; r < world_size_; ++r) ranks_[r].failure = r == rank ? own : others;
    changed_.notify_all();
  }

  void Run() GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (;;) {
      if (dead_ && AnyPending()) {
        Finish(false);
      } else if (!dead_ && AllReady()) {
        RunOne();
      } else if (stopping_) {
        return;
      } else if (const int64_t next = NextDeadline(); next == std::numeric_limits<int64_t>::max()) {
        changed_.wait(mutex_);
      } else if (MonotonicNs() < next) {
        changed_.wait_until(mutex_, At(next));
      } else {
        FailLate();
      }
    }
  }

  bool AnyPending() GG_REQUIRES(mutex_) {
    for (const PerRank& rank : ranks_) {
      if (!rank.queue.empty()) return true;
    }
    return false;
  }

  // All ranks have the next request, and none of them too late.
  bool AllReady() GG_REQUIRES(mutex_) {
    for (const PerRank& rank : ranks_) {
      if (rank.queue.empty() || rank.queue.front().request.deadline_ns <= MonotonicNs()) return false;
    }
    return true;
  }

  int64_t NextDeadline() GG_REQUIRES(mutex_) {
    int64_t next = std::numeric_limits<int64_t>::max();
    if (dead_) return next;
    for (const PerRank& rank : ranks_) {
      for (const Pending& pending : rank.queue) next = std::min(next, pending.request.deadline_ns);
    }
    return next;
  }

  void FailLate() GG_REQUIRES(mutex_) {
    std::string missing;
    uint32_t late = world_size_;
    for (uint32_t r = 0; r < world_size_; ++r) {
      if (ranks_[r].queue.empty()) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
      for (const Pending& pending : ranks_[r].queue) {
        if (late == world_size_ && pending.request.deadline_ns <= MonotonicNs()) late = r;
      }
    }
    if (late == world_size_) return;
    const std::string text =
        "the deadline of rank " + std::to_string(late) + "'s request passed; ranks [" + missing + "] had not started";
    FailLocked(late, DeadlineExceeded(text), Unavailable(text));
  }

  void RunOne() GG_REQUIRES(mutex_) {
    std::vector<AllReduceRequest> requests;
    for (const PerRank& rank : ranks_) requests.push_back(rank.queue.front().request);
    const auto key = [](const AllReduceRequest& r) { return std::make_tuple(r.element_count, r.dtype, r.op); };
    for (uint32_t r = 1; r < world_size_; ++r) {
      if (key(requests[r]) == key(requests[0])) continue;
      const Status mismatch =
          Internal("ranks 0 and " + std::to_string(r) + " differ in request " + std::to_string(number_ + 1) + ": " +
                   Describe(requests[0]) + " against " + Describe(requests[r]));
      FailLocked(r, mismatch, mismatch);
      return;
    }
    ++number_;
    if (hook_) {
      const Hook hook = hook_;
      mutex_.unlock();
      hook(number_);
      mutex_.lock();
      if (dead_) return;
    }
    mutex_.unlock();  // the memory is the transport's until the requests are done
    Reduce(requests);
    mutex_.lock();
    if (!dead_) Finish(true);
  }

  // The front request of each rank that has one is done.
  void Finish(bool ok) GG_REQUIRES(mutex_) {
    std::vector<std::pair<uint32_t, Pending>> finished;
    for (uint32_t r = 0; r < world_size_; ++r) {
      if (ranks_[r].queue.empty()) continue;
      finished.emplace_back(r, ranks_[r].queue.front());
      ranks_[r].queue.pop_front();
    }
    mutex_.unlock();
    const int64_t now = MonotonicNs();
    for (const auto& [r, pending] : finished) {
      const AllReduceRequest& request = pending.request;
      if (request.done != nullptr) request.done(request.user, request.tag, ok, pending.start_ns, now);
    }
    mutex_.lock();
    for (const auto& [r, pending] : finished) {
      ++ranks_[r].done;
      if (!ok) continue;
      ++ranks_[r].succeeded;
      InProcessCount& total = ranks_[r].counts[{pending.request.dtype, pending.request.op}];
      ++total.request_count;
      total.byte_count += pending.request.element_count * DTypeBytes(pending.request.dtype);
    }
    changed_.notify_all();
  }

  const uint32_t world_size_;
  uint64_t number_ = 0;  // requests that all ranks started; the hub's thread only
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<PerRank> ranks_ GG_GUARDED_BY(mutex_);
  Hook hook_ GG_GUARDED_BY(mutex_);
  bool dead_ GG_GUARDED_BY(mutex_) = false;
  bool stopping_ GG_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when the rest is there
};

class InProcessHub::Rank : public Transport {
 public:
  Rank(State* state, uint32_t rank) : state_(state), rank_(rank) {}

  uint32_t rank() const override { return rank_; }
  uint32_t world_size() const override { return state_->world_size(); }
  Ticket Start(const AllReduceRequest& request) override { return state_->Start(rank_, request); }
  Status Wait(Ticket ticket, int64_t deadline_ns) override { return state_->Wait(rank_, ticket, deadline_ns); }
  void Abort(const char* reason) override {
    state_->Fail(rank_, Aborted(reason), Unavailable("rank " + std::to_string(rank_) + " aborted: " + reason));
  }

 protected:
  State* const state_;

 private:
  const uint32_t rank_;
};

class InProcessHub::Handle final : public Rank {
 public:
  using Rank::Rank;
  ~Handle() override {
    state_->Fail(rank(), Aborted("the transport was destroyed"),
                 Unavailable("rank " + std::to_string(rank()) + " left the group"));
    state_->Drain(rank());
  }
};

InProcessHub::InProcessHub(uint32_t world_size) : state_(std::make_unique<State>(world_size)) {
  for (uint32_t r = 0; r < world_size; ++r) ranks_.push_back(std::make_unique<Rank>(state_.get(), r));
}

InProcessHub::~InProcessHub() = default;

Transport* InProcessHub::transport(uint32_t rank) { return ranks_[rank].get(); }

std::unique_ptr<Transport> InProcessHub::Open(uint32_t rank) { return std::make_unique<Handle>(state_.get(), rank); }

void InProcessHub::Kill(uint32_t rank) {
  const Status killed = Unavailable("the connection of rank " + std::to_string(rank) + " broke");
  state_->Fail(rank, killed, killed);
}

void InProcessHub::SetHook(Hook hook) { state_->SetHook(std::move(hook)); }

InProcessCount InProcessHub::count(uint32_t rank, DType dtype, ReduceOp op) const { return state_->count(rank, dtype, op); }

}  // namespace gradgate
