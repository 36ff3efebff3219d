// torch.hpp: gradgate for C++ trainers on libtorch. It decides at which micro-step gradients are reduced, reduces them in that
// backward over a c10d process group (gradgate/torch_reducer.hpp), counts them, and shows the counts to the node's daemon.
// Header only, over libgradgate and libtorch.
//
//     gradgate::torch::Sync sync(model->parameters(), process_group, {.accumulate = 4});
//     for each micro-batch:
//       {
//         auto step = sync.micro_step();                 // ends with its scope
//         (loss(model->forward(x), y) / 4).backward();
//       }
//       if (sync.boundary()) { optimizer.step(); optimizer.zero_grad(); }
//     while (sync.flush()) { optimizer.step(); optimizer.zero_grad(); }    // what is left at the end of the data, on all ranks
//     sync.close();
//
//     between ──micro_step──► inside ──its end──► between;   at the last of a window: reduced ──boundary, flush──► between
//                                                            what fails: failed, only stats and close work
//
// Collectives of a window, in this order on every rank: the ballot (what each rank brings), the buckets, the map; where ranks
// differ or gradients are divided by what they bring, one more. All go over the group that is given: whatever else uses it
// keeps to the same order on all ranks. Values of parameters and buffers at the start are the caller's to make equal.
//
// Thread class: one thread, the loop's; backwards may run on the engine's. Errors: gradgate::Error as in gradgate.hpp;
// destructors do not throw, what ends badly in a destructor is thrown by the next call. Lifetimes: a Sync outlives its
// MicroSteps; it shares the group and the parameters.

#ifndef GRADGATE_TORCH_HPP_
#define GRADGATE_TORCH_HPP_

#include <ATen/ops/cat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "gradgate/gradgate.hpp"
#include "gradgate/torch_reducer.hpp"

namespace gradgate {
inline namespace v1 {
namespace torch {

struct SyncOptions {
  uint32_t accumulate = 1;         // micro-steps per window; 0: each micro_step says whether it is the last
  gg_mode mode = GG_MODE_DEFAULT;  // GG_MODE_WINDOW or GG_MODE_EVERY_MICRO_STEP
  gg_windows windows = GG_WINDOWS_EQUAL;
  gg_divide divide = GG_DIVIDE_WORLD;
  bool strict = false;
  int32_t local_rank = -1;                     // < 0: from the launcher's environment
  std::string job_name = {};                   // empty: from the environment
  std::optional<std::string> daemon_dir = {};  // unset: from the environment; "": no link to a daemon
  c10::intrusive_ptr<c10d::Store> store = {};  // null: the group's own
  std::vector<std::string> names = {};         // of parameters, for messages; empty: parameters[i]
  uint64_t bucket_bytes = uint64_t{25} << 20;
  std::optional<at::ScalarType> wire = {};  // at::kBFloat16 or at::kHalf: sends wider gradients so
  std::chrono::nanoseconds deadline{0};     // of each wait; 0: 300 s
  std::chrono::nanoseconds handshake_deadline{0};
  // As in SessionOptions.
  std::function<void(gg_severity severity, std::string_view reason, std::string_view message)> log = {};
};

namespace internal {

// A c10d store as gradgate.h's. Setup and loop thread.
class StoreBridge {
 public:
  explicit StoreBridge(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {
    gg_store_callbacks c = GG_STORE_CALLBACKS_INIT;
    c.user = this;
    c.set = &Set;
    c.get = &Get;
    gg_store* made = nullptr;
    gradgate::internal::Check(gg_store_create, &c, &made);
    handle_.reset(made);
  }
  gg_store* get() const { return handle_.get(); }

 private:
  static gg_status_t Set(void* user, const char* key, const void* value, size_t value_bytes, int64_t) {
    try {
      const auto* const bytes = static_cast<const uint8_t*>(value);
      static_cast<StoreBridge*>(user)->store_->set(key, std::vector<uint8_t>(bytes, bytes + value_bytes));
      return GG_OK;
    } catch (const std::exception&) {
      return GG_UNAVAILABLE;
    }
  }
  static gg_status_t Get(void* user, const char* key, void* buffer, size_t capacity, size_t* value_bytes, int64_t deadline_ns) {
    constexpr int64_t kALookNs = 10'000'000;  // torch logs each wait that ends without the key
    try {
      c10d::Store& store = *static_cast<StoreBridge*>(user)->store_;
      if (deadline_ns <= kALookNs && !store.check({key})) return GG_NOT_FOUND;
      store.wait({key}, std::chrono::milliseconds(std::max<int64_t>(1, (deadline_ns + 999'999) / 1'000'000)));
      const std::vector<uint8_t> value = store.get(key);
      std::memcpy(buffer, value.data(), std::min(capacity, value.size()));
      *value_bytes = value.size();
      return GG_OK;
    } catch (const std::exception&) {
      return GG_NOT_FOUND;
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<gg_store, gradgate::internal::Destroy> handle_;
};

struct DestroyLedger {
  void operator()(gg_ledger* ledger) const { gg_ledger_destroy(ledger); }
};

// Syncs that this process has made: the same on all ranks.
inline std::atomic<uint32_t> sync_count{0};

}  // namespace internal

class Sync {
  class State;

 public:
  // The scope of one micro-step, around forward and backward. end() ends it and throws what went wrong; so does leaving the
  // scope, except that an error is then thrown by the next call. Left by an exception, the micro-step is undone and may be
  // tried again; once its gradients have been sent it cannot, and the job ends.
  class MicroStep {
   public:
    ~MicroStep();
    MicroStep(const MicroStep&) = delete;
    MicroStep& operator=(const MicroStep&) = delete;

    bool boundary() const noexcept { return boundary_; }  // whether it closes its window
    void skip() noexcept { skipped_ = true; }             // this rank runs no backward in it
    void end();

   private:
    friend class Sync;
    MicroStep(State* state, const MicroStepOptions& options);

    State* state_;
    const int exceptions_ = std::uncaught_exceptions();
    bool boundary_ = false;
    bool skipped_ = false;
    bool open_ = false;
  };

  // `parameters`: leaves, in order of registration, the same on all ranks; frozen ones may be among them. `group`: null for a
  // process alone. Blocks for the handshake. Errors: gg_ledger_create's.
  Sync(std::vector<at::Tensor> parameters, c10::intrusive_ptr<c10d::ProcessGroup> group, const SyncOptions& options = {});

  MicroStep micro_step(const MicroStepOptions& options = {}) { return MicroStep(state_.get(), options); }

  // Whether the window is reduced, and the optimizer is to step: true from the end of its last micro-step until the next
  // begins.
  bool boundary();

  // As Session::flush.
  std::optional<gg_window> flush(uint32_t divisor = 0);

  // The window that boundary() or flush() told of last.
  const gg_window& window() const noexcept;

  gg_stats stats() const;
  gg_collective_stats collective_stats(gg_group group, gg_op op) const;
  uint32_t bucket_count() const;

  // Says goodbye to the daemon, as Session::close does. No collective; twice is fine.
  void close();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace torch
}  // namespace v1
}  // namespace gradgate

#include "gradgate/torch_sync.hpp"  // IWYU pragma: keep

#endif  // GRADGATE_TORCH_HPP_
