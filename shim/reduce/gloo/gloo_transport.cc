#include "shim/reduce/gloo/gloo_transport.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <thread>
#include <utility>

#include "shim/core/thread_annotations.h"
#include "shim/reduce/clock.h"
#include "shim/reduce/gloo/gloo_group.h"
#include "shim/reduce/store_limits.h"

namespace gradgate {
namespace {

constexpr int64_t kLateLookNs = 50'000'000;
constexpr size_t kMaxNamed = 16;

// While it lives, threads made by this thread get no signals. Gloo writes to broken connections, which must not end the
// process.
constexpr int64_t kLookNs = 1'000'000;

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

Status CheckOptions(const GlooOptions& options) {
  if (options.world_size == 0 || options.rank >= options.world_size) {
    return InvalidArgument("rank " + std::to_string(options.rank) + " of a world of " + std::to_string(options.world_size));
  }
  if (options.world_size == 1) return OkStatus();
  if (options.store == nullptr) return InvalidArgument("a group of several ranks needs a store");
  if (options.timeout_ns <= 0)
    return InvalidArgument("timeout of " + std::to_string(options.timeout_ns) + " ns: must be above 0");
  if (!IsStoreKey(options.group_name) || options.group_name.size() > 100) {
    return InvalidArgument("group name '" + options.group_name + "': use 1 to 100 printable ASCII characters, no spaces");
  }
  return OkStatus();
}

std::string HelloKey(const GlooOptions& options, uint32_t rank) {
  return "gloo/" + options.group_name + "/hello/" + std::to_string(rank);
}

// Says that this rank is there, and waits until all are.
Status Meet(const GlooOptions& options, int64_t deadline_ns) {
  const std::string hello = std::to_string(options.world_size);
  std::string earlier;
  if (options.store->Get(HelloKey(options, options.rank), kLookNs, &earlier).ok()) {
    return FailedPrecondition("the rendezvous already holds rank " + std::to_string(options.rank) +
                              " of another run: give each run a directory or store of its own");
  }
  Status status = options.store->Set(HelloKey(options, options.rank), hello, options.timeout_ns);
  if (!status.ok()) return status;
  std::string missing;
  size_t missing_count = 0;
  for (uint32_t r = 0; r < options.world_size && missing_count < kMaxNamed; ++r) {
    if (r == options.rank) continue;
    // After the deadline, a short look tells who else is missing.
    std::string theirs;
    status = options.store->Get(HelloKey(options, r), std::max(deadline_ns - MonotonicNs(), kLateLookNs), &theirs);
    if (status.code() == Code::kNotFound) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(r);
      ++missing_count;
    } else if (!status.ok()) {
      return status;
    } else if (theirs != hello) {
      return InvalidArgument("rank " + std::to_string(r) + " has a world of '" + theirs.substr(0, 16) + "', this rank of " +
                             hello);
    }
  }
  if (missing_count == 0) return OkStatus();
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.1f s", static_cast<double>(options.timeout_ns) / 1e9);
  return DeadlineExceeded("ranks [" + missing + (missing_count == kMaxNamed ? ", …" : "") + "] did not come within " + seconds);
}

}  // namespace

class GlooTransport::Worker {
 public:
  // group: null when there is one rank.
  Worker(uint32_t rank, uint32_t world_size, std::unique_ptr<GlooGroup> group)
      : rank_(rank), world_size_(world_size), group_(std::move(group)), thread_([this] { Run(); }) {}

  ~Worker() GG_EXCLUDES(mutex_) {
    Stop();
    thread_.join();
  }

  uint32_t rank() const { return rank_; }
  uint32_t world_size() const { return world_size_; }

  Ticket Start(const AllReduceRequest& request) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    queue_.push_back({request, MonotonicNs()});
    changed_.notify_all();
    return ++started_;
  }

  Status Wait(Ticket ticket, int64_t deadline_ns) GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (ticket > started_) return InvalidArgument("ticket " + std::to_string(ticket) + " was not started");
    while (done_ < ticket) {
      if (MonotonicNs() >= deadline_ns) return DeadlineExceeded("request " + std::to_string(ticket) + " is not done yet");
      changed_.wait_until(mutex_, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns)));
    }
    return ticket <= succeeded_ ? OkStatus() : failure_;
  }

  void Abort(const std::string& reason) GG_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (!failure_.ok()) return;
      failure_ = Aborted(reason);
    }
    if (group_ != nullptr) group_->Interrupt();
  }

 private:
  struct Pending {
    AllReduceRequest request;
    int64_t start_ns;
  };

  void Stop() GG_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
      if (queue_.empty()) return;
    }
    Abort("the transport was destroyed");
  }

  void Run() GG_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (;;) {
      if (!queue_.empty()) {
        RunFirst();
      } else if (stopping_) {
        break;
      } else {
        changed_.wait(mutex_);
      }
    }
    // On this thread, whose signals are blocked: writing to a peer that left before raises one.
    if (failure_.ok() && group_ != nullptr) group_->Leave();
  }

  void RunFirst() GG_REQUIRES(mutex_) {
    const Pending first = queue_.front();
    Status status = failure_;
    const uint64_t number = done_ + 1;
    mutex_.unlock();
    if (status.ok() && group_ != nullptr) {
      status = group_->AllReduce(first.request, number);
      if (!status.ok()) group_->Interrupt();
    }
    mutex_.lock();
    if (!status.ok() && failure_.ok()) failure_ = status;
    mutex_.unlock();
    const AllReduceRequest& request = first.request;
    if (request.done != nullptr) request.done(request.user, request.tag, status.ok(), first.start_ns, MonotonicNs());
    mutex_.lock();
    queue_.pop_front();
    ++done_;
    if (status.ok()) ++succeeded_;
    changed_.notify_all();
  }

  const uint32_t rank_;
  const uint32_t world_size_;
  const std::unique_ptr<GlooGroup> group_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Pending> queue_ GG_GUARDED_BY(mutex_);  // the first one is running
  Ticket started_ GG_GUARDED_BY(mutex_) = 0;
  Ticket done_ GG_GUARDED_BY(mutex_) = 0;  // advanced after the callback
  Ticket succeeded_ GG_GUARDED_BY(mutex_) = 0;
  Status failure_ GG_GUARDED_BY(mutex_);  // not ok once the group is dead
  bool stopping_ GG_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when the rest is there
};

Status GlooTransport::Open(const GlooOptions& options, std::unique_ptr<Transport>* transport) {
  const int64_t deadline_ns = MonotonicNs() + options.timeout_ns;
  if (Status status = CheckOptions(options); !status.ok()) return status;
  const SignalsBlocked blocked;
  std::unique_ptr<GlooGroup> group;
  if (options.world_size > 1) {
    if (Status status = GlooGroup::Create(options.interface_name, &group); !status.ok()) return status;
    if (Status status = Meet(options, deadline_ns); !status.ok()) return status;
    const std::string prefix = "gloo/" + options.group_name + "/";
    Status status = group->Connect(options.rank, options.world_size, options.store, prefix, deadline_ns);
    if (!status.ok()) return status;
  }
  transport->reset(new GlooTransport(std::make_unique<Worker>(options.rank, options.world_size, std::move(group))));
  return OkStatus();
}

GlooTransport::GlooTransport(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}
GlooTransport::~GlooTransport() = default;

uint32_t GlooTransport::rank() const { return worker_->rank(); }
uint32_t GlooTransport::world_size() const { return worker_->world_size(); }
Ticket GlooTransport::Start(const AllReduceRequest& request) { return worker_->Start(request); }
Status GlooTransport::Wait(Ticket ticket, int64_t deadline_ns) { return worker_->Wait(ticket, deadline_ns); }

void GlooTransport::Abort(const char* reason) { worker_->Abort(reason); }

}  // namespace gradgate
