// gradgate.hpp: C++20 over the C interface in gradgate.h: handles that free themselves, failures as exceptions, spans for
// memory. Header only; the library stays a C library, so a trainer may be built with another compiler or standard library than
// it.
//
//     gradgate::Store store({.url = "file:///shared/run-7"});
//     gradgate::Transport transport = gradgate::Transport::Gloo(store, {.rank = rank, .world_size = world});
//     gradgate::Session session({.accumulate = 4}, tensors, &transport);
//     for each window:
//       for each micro-batch:
//         auto micro = session.micro_step();          // ends with its scope
//         forward(); backward([&](uint32_t i) { micro.gradient_ready(i); });
//       session.step();                               // then the optimizer's step, on session.gradient<float>(i)
//     session.close();
//
// Errors: every call that fails throws gradgate::Error with the status and the library's message; destructors never throw.
// Lifetimes: a Store outlives its Transports, a Transport outlives its Sessions, a Session outlives its MicroSteps and the
// spans it gave. Thread classes are those of gradgate.h.
//
// Times are std::chrono::nanoseconds; zero means the default written in gradgate.h. Enumerations are gradgate.h's:
// GG_MODE_WINDOW, GG_LAST_YES….

#ifndef GRADGATE_GRADGATE_HPP_
#define GRADGATE_GRADGATE_HPP_

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradgate/gradgate.h"

namespace gradgate {
// The names are gradgate::Store and so on; v1 keeps their symbols apart from anything else's.
inline namespace v1 {

class Error : public std::runtime_error {
 public:
  Error(gg_status_t code, const std::string& message) : std::runtime_error(message), code_(code) {}
  gg_status_t code() const noexcept { return code_; }
  const char* code_name() const noexcept { return gg_status_name(code_); }

 private:
  gg_status_t code_;
};

namespace internal {

// Calls function(arguments…, &error) and throws what it reports.
template <typename Function, typename... Arguments>
void Check(Function function, Arguments... arguments) {
  gg_error error;  // not cleared as a whole: a kilobyte on every call of the loop
  error.message[0] = '\0';
  const gg_status_t status = function(arguments..., &error);
  if (status != GG_OK) throw Error(status, error.message[0] != '\0' ? error.message : gg_status_name(status));
}

struct Destroy {
  void operator()(gg_store* store) const { gg_store_destroy(store); }
  void operator()(gg_transport* transport) const { gg_transport_destroy(transport); }
  void operator()(gg_session* session) const { gg_session_destroy(session); }
};

}  // namespace internal

// Throws GG_FAILED_PRECONDITION, naming both versions, if the loaded library cannot serve code compiled against this header.
// Store and Session do it by themselves.
inline void CheckAbi(uint32_t library = gg_abi_version()) {
  constexpr uint32_t kNeeded = GG_ABI_MAJOR << 16 | GG_ABI_MINOR;
  const uint32_t major = library >> 16, minor = library & 0xffff;
  if (major == GG_ABI_MAJOR && library >= kNeeded) return;
  throw Error(GG_FAILED_PRECONDITION, "libgradgate has ABI " + std::to_string(major) + "." + std::to_string(minor) +
                                          ", this program was compiled against " + std::to_string(GG_ABI_MAJOR) + "." +
                                          std::to_string(GG_ABI_MINOR) +
                                          ": install a library of the same major and at least that minor");
}

struct StoreOptions {
  std::string url;     // "file:///a/shared/directory", new for each run, or "tcp://host:port"
  bool serve = false;  // tcp: true on the one rank that hosts the store
  std::chrono::nanoseconds deadline{0};
};

// The rendezvous of a job's ranks. Movable. Errors: gg_store_open's.
class Store {
 public:
  explicit Store(const StoreOptions& options) {
    CheckAbi();
    gg_store_options c = GG_STORE_OPTIONS_INIT;
    c.url = options.url.c_str();
    c.serve = options.serve ? 1 : 0;
    c.deadline_ns = options.deadline.count();
    gg_store* handle = nullptr;
    internal::Check(gg_store_open, &c, &handle);
    handle_.reset(handle);
  }
  gg_store* get() const noexcept { return handle_.get(); }

 private:
  std::unique_ptr<gg_store, internal::Destroy> handle_;
};

struct GlooOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::string interface_name = {};  // empty: chosen by gradgate.h's rule
  std::string group_name = {};      // empty: "dp"
  std::chrono::nanoseconds deadline{0};
};

// The collectives of a group of ranks. Movable.
class Transport {
 public:
  // Connects all ranks over TCP; blocks up to the deadline. Errors: gg_transport_open_gloo's.
  static Transport Gloo(const Store& store, const GlooOptions& options) {
    gg_gloo_options c = GG_GLOO_OPTIONS_INIT;
    c.rank = options.rank;
    c.world_size = options.world_size;
    c.store = store.get();
    c.interface_name = options.interface_name.empty() ? nullptr : options.interface_name.c_str();
    c.group_name = options.group_name.empty() ? nullptr : options.group_name.c_str();
    c.deadline_ns = options.deadline.count();
    gg_transport* handle = nullptr;
    internal::Check(gg_transport_open_gloo, &c, &handle);
    return Transport(handle, store.get());
  }
  gg_transport* get() const noexcept { return handle_.get(); }
  gg_store* store() const noexcept { return store_; }  // the one it connected through; a Session shakes hands there too

 private:
  Transport(gg_transport* handle, gg_store* store) : handle_(handle), store_(store) {}

  std::unique_ptr<gg_transport, internal::Destroy> handle_;
  gg_store* store_;
};

// The dtype of T: float or double.
template <typename T>
constexpr gg_dtype DTypeOf() {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "gradients are float or double");
  return std::is_same_v<T, float> ? GG_FLOAT32 : GG_FLOAT64;
}

// A parameter's gradient that the session allocates as a view of a bucket. `name` is copied by the session.
template <typename T>
gg_tensor View(const char* name, uint64_t element_count) {
  return {name, nullptr, element_count, DTypeOf<T>(), 0};
}

// A parameter's gradient in the caller's memory, copied to and from buckets.
template <typename T>
gg_tensor Own(const char* name, std::span<T> gradient) {
  return {name, gradient.data(), gradient.size(), DTypeOf<T>(), 0};
}

struct SessionOptions {
  uint32_t accumulate = 1;  // micro-steps per window
  gg_mode mode = GG_MODE_DEFAULT;
  gg_windows windows = GG_WINDOWS_EQUAL;
  gg_divide divide = GG_DIVIDE_WORLD;
  bool strict = false;
  int32_t local_rank = -1;                     // < 0: from the launcher's environment
  std::string job_name = {};                   // empty: from the environment
  std::optional<std::string> daemon_dir = {};  // unset: from the environment; "": no link to a daemon
  uint64_t bucket_bytes = 0;
  std::chrono::nanoseconds deadline{0};  // of each window's reduction
  std::chrono::nanoseconds handshake_deadline{0};
  // Receives messages for people, each reason once; empty: one line on stderr. Must not throw.
  std::function<void(gg_severity severity, std::string_view reason, std::string_view message)> log = {};
};

struct MicroStepOptions {
  uint32_t last = GG_LAST_BY_COUNT;  // GG_LAST_…: whether this micro-step closes its window
  int64_t items = 0;                 // with GG_DIVIDE_ITEMS: items whose losses are summed
};

// One rank of a data-parallel job. Movable, but not while a MicroStep is open.
class Session {
  struct State {
    std::function<void(gg_severity, std::string_view, std::string_view)> log;
    std::unique_ptr<gg_session, internal::Destroy> handle;
    std::vector<gg_tensor> tensors;  // sizes and dtypes; names may dangle
    std::optional<Error> pending;    // of a micro-step that ended in a destructor

    void ThrowPending() {
      if (pending) throw *std::exchange(pending, std::nullopt);
    }
  };

 public:
  // The scope of one micro-step. end() ends it and throws what went wrong; so does leaving the scope, except that an error is
  // then thrown by the session's next call. Left by an exception, the micro-step is undone and may be tried again; once a
  // gradient was told ready that cannot be, and the session refuses to go on.
  class MicroStep {
   public:
    ~MicroStep() {
      if (!open_) return;
      if (std::uncaught_exceptions() > exceptions_) {
        (void)gg_micro_step_abandon(state_->handle.get(), nullptr);
        return;
      }
      try {
        end();
      } catch (const Error& error) {
        state_->pending = error;
      }
    }
    MicroStep(const MicroStep&) = delete;
    MicroStep& operator=(const MicroStep&) = delete;

    // Whether gradients are reduced during this micro-step.
    bool boundary() const noexcept { return boundary_; }
    void gradient_ready(uint32_t tensor) { internal::Check(gg_gradient_ready, state_->handle.get(), tensor); }
    void end() {
      if (std::exchange(open_, false)) internal::Check(gg_micro_step_end, state_->handle.get());
    }

   private:
    friend class Session;
    MicroStep(State* state, const MicroStepOptions& options) : state_(state) {
      state_->ThrowPending();
      gg_micro_step c = GG_MICRO_STEP_INIT;
      c.last = options.last;
      c.item_count = options.items;
      uint32_t boundary = 0;
      internal::Check(gg_micro_step_begin, state_->handle.get(), &c, &boundary);
      boundary_ = boundary != 0;
      open_ = true;
    }

    State* state_;
    const int exceptions_ = std::uncaught_exceptions();
    bool boundary_ = false;
    bool open_ = false;
  };

  // `tensors`: in order of registration, the same on all ranks. `transport`: null for a process alone. Blocks for the
  // handshake. Errors: gg_session_create's.
  Session(const SessionOptions& options, std::span<const gg_tensor> tensors, const Transport* transport = nullptr)
      : state_(std::make_unique<State>()) {
    CheckAbi();
    gg_session_options c = GG_SESSION_OPTIONS_INIT;
    c.accumulate = options.accumulate;
    c.mode = options.mode;
    c.windows = options.windows;
    c.divide = options.divide;
    c.strict = options.strict ? 1 : 0;
    c.local_rank = options.local_rank;
    c.tensors = tensors.data();
    c.tensor_count = static_cast<uint32_t>(tensors.size());
    c.transport = transport != nullptr ? transport->get() : nullptr;
    c.store = transport != nullptr ? transport->store() : nullptr;
    c.job_name = options.job_name.empty() ? nullptr : options.job_name.c_str();
    c.daemon_dir = options.daemon_dir ? options.daemon_dir->c_str() : nullptr;
    c.bucket_bytes = options.bucket_bytes;
    c.deadline_ns = options.deadline.count();
    c.handshake_deadline_ns = options.handshake_deadline.count();
    state_->tensors.assign(tensors.begin(), tensors.end());
    if ((state_->log = options.log)) {
      c.log = [](void* user, gg_severity severity, const char* reason, const char* message) {
        static_cast<State*>(user)->log(severity, reason, message);
      };
      c.log_user = state_.get();
    }
    gg_session* handle = nullptr;
    internal::Check(gg_session_create, &c, &handle);
    state_->handle.reset(handle);
  }

  // A tensor's gradient, valid as long as the session. GG_INVALID_ARGUMENT: no such tensor, or registered with another dtype
  // than T's.
  template <typename T>
  std::span<T> gradient(uint32_t tensor) const {
    void* memory = nullptr;
    internal::Check(gg_session_gradient, get(), tensor, &memory);
    const gg_tensor& registered = state_->tensors[tensor];
    if (registered.dtype != DTypeOf<T>()) {
      throw Error(GG_INVALID_ARGUMENT, "tensor " + std::to_string(tensor) + " was registered as " +
                                           (registered.dtype == GG_FLOAT32 ? "float" : "double") + ": ask for that");
    }
    return {static_cast<T*>(memory), registered.element_count};
  }

  MicroStep micro_step(const MicroStepOptions& options = {}) { return MicroStep(state_.get(), options); }

  // Before the optimizer's step, on all ranks. When it returns, every gradient holds the same reduced values on all ranks;
  // where max_micro_steps is 0 nobody brought data and the optimizer must not step. When it throws the optimizer must not step.
  gg_window step() {
    state_->ThrowPending();
    gg_window window = GG_WINDOW_INIT;
    internal::Check(gg_step_begin, get(), &window);
    return window;
  }

  // At the end of the data, on all ranks: `while (session.flush()) optimizer.step();` closes what is left and ends, on all
  // ranks together, when none has data. divisor: what the loops divided each loss by, see gg_flush; 0: leave.
  std::optional<gg_window> flush(uint32_t divisor = 0) {
    state_->ThrowPending();
    uint32_t flushed = 0;
    gg_window window = GG_WINDOW_INIT;
    internal::Check(gg_flush, get(), divisor, &flushed, &window);
    return flushed != 0 ? std::optional<gg_window>(window) : std::nullopt;
  }

  gg_stats stats() const {
    gg_stats stats = GG_STATS_INIT;
    internal::Check(gg_stats_get, get(), &stats);
    return stats;
  }
  gg_collective_stats collective_stats(gg_group group, gg_op op) const {
    gg_collective_stats stats = GG_COLLECTIVE_STATS_INIT;
    internal::Check(gg_collective_stats_get, get(), group, op, &stats);
    return stats;
  }
  uint32_t bucket_count() const noexcept { return gg_session_bucket_count(get()); }

  // Says goodbye to the daemon: a session destroyed without it reads there as a failure of the trainer.
  void close() {
    state_->ThrowPending();
    internal::Check(gg_session_close, get());
  }

  gg_session* get() const noexcept { return state_->handle.get(); }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace v1
}  // namespace gradgate

#endif  // GRADGATE_GRADGATE_HPP_
