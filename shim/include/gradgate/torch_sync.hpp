// torch_sync.hpp: what is behind gradgate/torch.hpp, which includes it; include that.

#ifndef GRADGATE_TORCH_SYNC_HPP_
#define GRADGATE_TORCH_SYNC_HPP_

#include "gradgate/torch.hpp"

namespace gradgate {
inline namespace v1 {
namespace torch {

// One Sync's ledger, reducer and window.
class Sync::State final : public ReductionObserver {
  template <typename Function, typename... Arguments>
  static void Check(Function function, Arguments... arguments) {
    gradgate::internal::Check(function, arguments...);
  }

 public:
  State(std::vector<at::Tensor> parameters, c10::intrusive_ptr<c10d::ProcessGroup> group, const SyncOptions& options)
      : options_(options), parameters_(std::move(parameters)), group_(std::move(group)) {
    CheckAbi();
    if (group_) world_ = static_cast<uint32_t>(group_->getSize());
    if (options_.mode != GG_MODE_DEFAULT && options_.mode != GG_MODE_WINDOW && options_.mode != GG_MODE_EVERY_MICRO_STEP)
      throw Error(GG_INVALID_ARGUMENT, "mode: must be window or every_micro_step, parameters are not sharded here");
    if (options_.names.empty()) {
      for (size_t i = 0; i < parameters_.size(); ++i) options_.names.push_back("parameters[" + std::to_string(i) + "]");
    }
    if (parameters_.empty() || options_.names.size() != parameters_.size())
      throw Error(GG_INVALID_ARGUMENT, "parameters: at least one, and as many names, or none");
    if (options_.divide > GG_DIVIDE_NONE)
      throw Error(GG_INVALID_ARGUMENT, "divide is " + std::to_string(options_.divide) + ", which is none of gg_divide");
    if (options_.wire && *options_.wire != at::kBFloat16 && *options_.wire != at::kHalf)
      throw Error(GG_INVALID_ARGUMENT, "wire: must be at::kBFloat16 or at::kHalf, or unset");
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].defined() || !parameters_[i].is_leaf())
        throw Error(GG_INVALID_ARGUMENT, options_.names[i] + " is undefined, or no leaf: give module->parameters()");
    }
    if (options_.deadline.count() == 0) options_.deadline = std::chrono::seconds(300);
    CreateLedger();
    every_micro_step_ = options_.mode == GG_MODE_EVERY_MICRO_STEP || gg_ledger_enforcement(ledger()) != GG_ENFORCEMENT_ENFORCE;
    if (world_ == 1) return;
    ReducerOptions reducing;
    reducing.bucket_bytes = options_.bucket_bytes;
    reducing.wire = options_.wire;
    reducing.deadline = std::chrono::duration_cast<std::chrono::milliseconds>(options_.deadline);
    reducing.observer = this;
    reducer_ = std::make_shared<Reducer>(parameters_, options_.names, group_, reducing);
  }

  gg_ledger* ledger() const { return ledger_.get(); }
  uint32_t bucket_count() const { return reducer_ ? static_cast<uint32_t>(reducer_->state().bucket_sizes.size()) : 0; }
  const gg_window& window() const { return window_; }
  void Keep(const Error& error) { pending_ = error; }
  void ThrowPending() {
    if (pending_) throw *std::exchange(pending_, std::nullopt);
  }

  // --- ReductionObserver; on the thread of a backward, or the loop's ---------------------------------------------------------

  void before_first() override {
    if (closing_ && !ballot_) SendBallot(true, 0);
  }
  int64_t issued(bool gradient, uint64_t bytes, uint32_t tensors) override {
    return gg_ledger_collective_issued(ledger(), GG_GROUP_DP, GG_OP_ALL_REDUCE,
                                       gradient ? GG_TRAFFIC_GRADIENT : GG_TRAFFIC_OURS, bytes, tensors);
  }
  void done(bool gradient, int64_t token, bool ok) override {
    gg_ledger_collective_done(ledger(), GG_GROUP_DP, GG_OP_ALL_REDUCE, gradient ? GG_TRAFFIC_GRADIENT : GG_TRAFFIC_OURS, token,
                              ok ? GG_OUTCOME_OK : GG_OUTCOME_FAILED);
  }

  // --- Micro-steps
  // ---------------------------------------------------------------------------------------------------------------

  bool Begin(const MicroStepOptions& options) {
    ThrowPending();
    if (closed_) Publish(false);
    at_boundary_ = false;
    if (options.items < 0 || options.items > GG_MAX_ITEM_COUNT || (options.items != 0 && options_.divide != GG_DIVIDE_ITEMS))
      throw Error(GG_INVALID_ARGUMENT, "items: a count, and only where gradients are divided by items");
    uint32_t closes = 0;
    Check(gg_ledger_micro_step_begin, ledger(), options.last, &closes);
    items_now_ = options.items;
    closing_ = closes != 0;
    if (reducer_ && (closing_ || every_micro_step_)) Reducing([this] { reducer_->arm(); });
    return closing_;
  }

  void End(bool skipped) {
    bool began = skipped || !reducer_;
    if (reducer_) {
      reducer_->disarm();
      const Reducer::State now = reducer_->state();
      began |= now.began || now.launched || now.complete;
      if ((closing_ || every_micro_step_) && (now.launched || (now.began && !now.complete)))
        Reducing([this] { reducer_->finish(); });
    }
    Check(gg_ledger_micro_step_end, ledger());
    ++micro_steps_;
    skips_ += skipped ? 1 : 0;
    items_ += items_now_;
    if (!std::exchange(closing_, false)) return;
    if (!began) {
      Fail(GG_FAILED_PRECONDITION,
           "the boundary micro-step ended and no backward has run in it: put the backward inside the scope of "
           "sync.micro_step(), or "
           "call skip() on it where there is none");
    }
    Conclude(0, reducer_ && reducer_->state().complete);
  }

  // An exception left the micro-step.
  void Abandon() noexcept {
    try {
      if (reducer_) {
        reducer_->disarm();
        if (ballot_ || reducer_->state().launched) {
          gg_ledger_fail(ledger(), "an exception left the boundary micro-step after its gradients were sent", nullptr);
          return;
        }
      }
      closing_ = false;
      gg_ledger_micro_step_abandon(ledger(), nullptr);
    } catch (const std::exception&) {
      gg_ledger_fail(ledger(), "an exception left a micro-step", nullptr);
    }
  }

  // --- The end of a window
  // -------------------------------------------------------------------------------------------------------

  bool Boundary() {
    ThrowPending();
    if (at_boundary_ && closed_) Publish(true);
    return at_boundary_;
  }

  std::optional<gg_window> Flush(uint32_t divisor) {
    ThrowPending();
    if (closed_) Publish(false);
    at_boundary_ = false;
    if (world_ == 1 && micro_steps_ == 0) return std::nullopt;
    Conclude(divisor, false);
    if (!at_boundary_) return std::nullopt;
    at_boundary_ = false;
    Publish(true);
    return window_;
  }

 private:
  void CreateLedger() {
    gg_ledger_options c = GG_LEDGER_OPTIONS_INIT;
    c.accumulate = options_.accumulate;
    c.mode = options_.mode;
    c.windows = options_.windows;
    c.strict = options_.strict ? 1 : 0;
    c.local_rank = options_.local_rank;
    c.world_size = world_;
    const uint32_t number = internal::sync_count.fetch_add(1);
    if (group_) c.rank = static_cast<uint32_t>(group_->getRank());
    if (world_ > 1) {
      c.roles = 1U << GG_GROUP_DP;
      const auto under = options_.store ? options_.store : group_->getStore();
      if (!under) throw Error(GG_INVALID_ARGUMENT, "store: the group has none, give one");
      store_.emplace(c10::make_intrusive<c10d::PrefixStore>("gradgate/" + std::to_string(number), under));
      c.store = store_->get();
    }
    const std::string facts = Facts();
    const std::string scope = number == 0 ? "" : "#" + std::to_string(number + 1);
    c.facts = facts.c_str();
    c.scope = scope.c_str();
    c.job_name = options_.job_name.empty() ? nullptr : options_.job_name.c_str();
    c.daemon_dir = options_.daemon_dir ? options_.daemon_dir->c_str() : nullptr;
    c.deadline_ns = options_.deadline.count();
    c.handshake_deadline_ns = options_.handshake_deadline.count();
    if (options_.log) {
      c.log = [](void* user, gg_severity severity, const char* reason, const char* message) {
        static_cast<State*>(user)->options_.log(severity, reason, message);
      };
      c.log_user = this;
    }
    gg_ledger* made = nullptr;
    Check(gg_ledger_create, &c, &made);
    ledger_.reset(made);
  }

  std::string Facts() const {
    uint64_t hash = 14695981039346656037U;  // FNV-1a over shapes and types
    const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211U; };
    for (const at::Tensor& p : parameters_) {
      for (const int64_t size : p.sizes()) add(static_cast<uint64_t>(size));
      add(static_cast<uint64_t>(p.scalar_type()) << 32);
    }
    return "wrappers=libtorch\nparameters=" + std::to_string(parameters_.size()) + " (" + std::to_string(hash) +
           ")\ndivide=" + std::to_string(options_.divide) + "\nbucket_bytes=" + std::to_string(options_.bucket_bytes) +
           "\nwire=" + (options_.wire ? c10::toString(*options_.wire) : "none");
  }

  // Runs what reduces; a failure names the ranks that did not come, and is told to the others.
  template <typename F>
  void Reducing(F reduce) {
    const auto begun = std::chrono::steady_clock::now();
    try {
      reduce();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const bool late = std::chrono::steady_clock::now() - begun >= options_.deadline;
      const std::string who = Missing();
      Fail(late ? GG_DEADLINE_EXCEEDED : GG_UNAVAILABLE, internal::TextOf(error) + (who.empty() ? "" : "; " + who));
    }
  }

  std::string Missing() {
    std::array<char, 1024> text{};
    gg_ledger_missing(ledger(), text.data(), text.size(), nullptr);
    return text.data();
  }

  [[noreturn]] void Fail(gg_status_t code, const std::string& why) {
    closing_ = false;
    gg_ledger_fail(ledger(), why.c_str(), nullptr);
    throw Error(code, why);
  }

  // Issues an all-reduce of gradgate's own numbers, and counts it.
  c10::intrusive_ptr<c10d::Work> SendOwn(at::Tensor* tensor, c10d::ReduceOp op, int64_t* token) {
    *tensor = tensor->to(parameters_[0].device());
    c10d::AllreduceOptions how;
    how.reduceOp = std::move(op);
    std::vector<at::Tensor> tensors{*tensor};
    *token = gg_ledger_collective_issued(ledger(), GG_GROUP_OTHER, GG_OP_ALL_REDUCE, GG_TRAFFIC_OURS, tensor->nbytes(), 1);
    return group_->allreduce(tensors, how);
  }

  void AwaitOwn(const c10::intrusive_ptr<c10d::Work>& work, gg_op op, int64_t token) {
    const auto begun = std::chrono::steady_clock::now();
    const auto soon = begun + std::min<std::chrono::nanoseconds>(std::chrono::seconds(1), options_.deadline / 4);
    std::chrono::microseconds pause{20};
    bool told = false;
    bool ok = false;
    try {
      while (!work->isCompleted()) {
        const auto now = std::chrono::steady_clock::now();
        if (now - begun > options_.deadline) break;
        if (!told && now > soon) {
          gg_ledger_arrived(ledger(), nullptr);
          told = true;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 3 / 2, std::chrono::microseconds(2000));
      }
      ok = work->isCompleted() && work->wait();
    } catch (const std::exception&) {
    }
    gg_ledger_collective_done(ledger(), GG_GROUP_OTHER, op, GG_TRAFFIC_OURS, token, ok ? GG_OUTCOME_OK : GG_OUTCOME_FAILED);
    if (ok) return;
    const std::string who = Missing();
    const auto seconds = std::chrono::duration<double>(options_.deadline).count();
    Fail(GG_DEADLINE_EXCEEDED, !who.empty() ? who : "no answer from the other ranks within " + std::to_string(seconds) + " s");
  }

  void SendBallot(bool contributes, uint32_t divisor) {
    gg_vote vote = GG_VOTE_INIT;
    vote.contributes = contributes ? 1 : 0;
    vote.skipped = skips_;
    vote.sums = options_.divide == GG_DIVIDE_ACTIVE || options_.divide == GG_DIVIDE_ITEMS ? 1 : 0;
    vote.divisor = divisor;
    uint32_t count = 0;
    std::array<int64_t, GG_VOTE_CAPACITY> words{};
    Check(gg_ledger_vote, ledger(), &vote, words.data(), static_cast<uint32_t>(words.size()), &count);
    row_.assign(words.begin(), words.begin() + count / 2);
    ballot_words_ = at::empty({count}, at::TensorOptions().dtype(at::kLong));
    std::copy_n(words.begin(), count, ballot_words_.mutable_data_ptr<int64_t>());
    if (world_ > 1) ballot_ = SendOwn(&ballot_words_, c10d::ReduceOp(c10d::ReduceOp::MAX), &ballot_token_);
  }

  gg_verdict ReadBallot() {
    if (const auto ballot = std::exchange(ballot_, {})) AwaitOwn(ballot, GG_OP_ALL_REDUCE, ballot_token_);
    const at::Tensor words = ballot_words_.cpu();
    gg_verdict verdict = GG_VERDICT_INIT;
    Check(gg_ledger_verdict, ledger(), words.const_data_ptr<int64_t>(), static_cast<uint32_t>(words.numel()), &verdict);
    return verdict;
  }

  // Ends the window on all ranks; at_boundary_ where anybody brought data.
  void Conclude(uint32_t divisor, bool reduced) {
    const auto begun = std::chrono::steady_clock::now();
    if (!ballot_) SendBallot(false, divisor);
    const gg_verdict verdict = ReadBallot();
    const bool brought = verdict.max_micro_steps > 0;
    const bool empty = brought && verdict.min_skipped >= verdict.max_micro_steps;  // nobody has anything
    const bool own = verdict.min_micro_steps != verdict.max_micro_steps && !every_micro_step_;
    if (brought && own && divisor != 0 && micro_steps_ != 0) Multiply(static_cast<double>(divisor) / micro_steps_);
    reduced |= !reducer_ || (every_micro_step_ && reducer_->state().complete);
    if (brought && !reduced && !(empty && verdict.any_contribute == 0)) {
      Check(gg_ledger_late_begin, ledger());
      Reducing([this] { reducer_->finish(); });
    }
    std::array<double, 3> totals{};
    if (verdict.any_sums != 0) totals = Sums();
    if (verdict.differs != 0 || verdict.incompatible != 0) TellDifferences(verdict);
    if (!brought) return Reset();
    end_ = GG_WINDOW_END_INIT;
    end_.discarded = empty ? 1 : 0;
    end_.min_micro_steps = verdict.min_micro_steps;
    end_.max_micro_steps = verdict.max_micro_steps;
    end_.active_ranks = static_cast<uint32_t>(totals[1]);
    end_.disagreed = verdict.unequal != 0 && options_.windows == GG_WINDOWS_EQUAL ? 1 : 0;
    end_.skipped = skips_;
    end_.item_count_local = items_;
    end_.item_count_global = static_cast<int64_t>(totals[0]);
    if (!empty) Multiply(Factor(totals) * FlushFactor(verdict, divisor, own));
    end_.wait_ns = (std::chrono::steady_clock::now() - begun).count();
    closed_ = true;
    at_boundary_ = !empty;
    if (empty) Publish(false);
  }

  // [items, ranks with data, ranks with data and no items] over all ranks.
  std::array<double, 3> Sums() {
    const bool active = micro_steps_ > skips_;
    const bool without = active && items_ == 0;
    std::array<double, 3> own{static_cast<double>(items_), active ? 1.0 : 0.0, without ? 1.0 : 0.0};
    if (world_ == 1) return own;
    at::Tensor sums = at::empty({3}, at::TensorOptions().dtype(at::kDouble));
    std::copy_n(own.begin(), 3, sums.mutable_data_ptr<double>());
    int64_t token = 0;
    AwaitOwn(SendOwn(&sums, c10d::ReduceOp(c10d::ReduceOp::SUM), &token), GG_OP_ALL_REDUCE, token);
    sums = sums.cpu();
    std::copy_n(sums.const_data_ptr<double>(), 3, own.begin());
    return own;
  }

  // What the mean over ranks is multiplied by.
  double Factor(const std::array<double, 3>& totals) {
    switch (options_.divide) {
      case GG_DIVIDE_ACTIVE:
        return world_ / std::max(totals[1], 1.0);
      case GG_DIVIDE_NONE:
        return world_;
      case GG_DIVIDE_ITEMS:
        if (totals[0] <= 0 || totals[2] > 0)
          Fail(GG_FAILED_PRECONDITION,
               "items: each micro-step of each rank needs a count where gradients are divided by items");
        return world_ / totals[0];
      default:
        return 1.0;
    }
  }

  double FlushFactor(const gg_verdict& verdict, uint32_t divisor, bool own) {
    const uint32_t largest = std::max(divisor, verdict.max_divisor);
    const uint32_t brought = verdict.max_micro_steps;
    if (largest == 0 || brought == largest || own) return 1.0;
    if (verdict.min_micro_steps != brought || verdict.min_divisor != largest)
      Fail(GG_FAILED_PRECONDITION, "flush: a divisor needs the same call and as many micro-steps on all ranks");
    return static_cast<double>(largest) / brought;
  }

  void Multiply(double factor) {
    if (factor == 1.0) return;
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : parameters_) {
      if (p.grad().defined()) p.mutable_grad().mul_(at::Scalar(factor));
    }
  }

  // Ranks that differ are named on all of them; strict fails on all.
  void TellDifferences(const gg_verdict& verdict) {
    if (world_ == 1) return;
    const at::Device device = parameters_[0].device();
    at::Tensor own = at::empty({static_cast<int64_t>(row_.size())}, at::TensorOptions().dtype(at::kLong));
    std::copy(row_.begin(), row_.end(), own.mutable_data_ptr<int64_t>());
    own = own.to(device);
    std::vector<at::Tensor> rows;
    for (uint32_t i = 0; i < world_; ++i) rows.push_back(at::empty_like(own));
    std::vector<std::vector<at::Tensor>> outputs{rows};
    std::vector<at::Tensor> inputs{own};
    const int64_t token =
        gg_ledger_collective_issued(ledger(), GG_GROUP_OTHER, GG_OP_ALL_GATHER, GG_TRAFFIC_OURS, own.nbytes(), 1);
    AwaitOwn(group_->allgather(outputs, inputs), GG_OP_ALL_GATHER, token);
    const at::Tensor all = at::cat(outputs[0]).cpu();
    std::array<char, 1024> text{};
    Check(gg_ledger_describe, ledger(), all.const_data_ptr<int64_t>(), static_cast<uint32_t>(all.numel()), text.data(),
          text.size());
    const std::string what = std::string("ranks differ: ") + text.data();
    const bool unequal = verdict.unequal != 0 && options_.windows == GG_WINDOWS_EQUAL;
    if (verdict.incompatible != 0 || (options_.strict && unequal)) Fail(GG_ABORTED, what);
    Check(gg_ledger_warn, ledger(), unequal ? "ranks_disagree" : "ranks_skipped", what.c_str());
  }

  // Hands the closed window to the ledger.
  void Publish(bool stepped) {
    if (!stepped && end_.discarded == 0)
      Check(gg_ledger_warn, ledger(), "unstepped",
            "a window was reduced, and sync.boundary() was not asked before the next micro-step");
    end_.stepped = stepped ? 1 : 0;
    gg_window window = GG_WINDOW_INIT;
    Check(gg_ledger_window_close, ledger(), &end_, &window);
    window_ = window;
    Reset();
  }

  void Reset() {
    closed_ = false;
    micro_steps_ = skips_ = 0;
    items_ = 0;
  }

  SyncOptions options_;
  const std::vector<at::Tensor> parameters_;
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  uint32_t world_ = 1;
  std::optional<internal::StoreBridge> store_;
  std::unique_ptr<gg_ledger, internal::DestroyLedger> ledger_;
  std::shared_ptr<Reducer> reducer_;  // null in a process alone
  bool every_micro_step_ = false;

  bool closing_ = false;      // inside the micro-step that closes its window
  bool closed_ = false;       // reduced, and not yet published
  bool at_boundary_ = false;  // the last thing that happened is that a window was closed with data
  uint32_t micro_steps_ = 0;  // of the open window, ended ones
  uint32_t skips_ = 0;
  int64_t items_ = 0;
  int64_t items_now_ = 0;  // of the micro-step that is open
  c10::intrusive_ptr<c10d::Work> ballot_;
  at::Tensor ballot_words_;
  int64_t ballot_token_ = 0;
  std::vector<int64_t> row_;  // what this rank voted
  gg_window_end end_ = GG_WINDOW_END_INIT;
  gg_window window_ = GG_WINDOW_INIT;
  std::optional<Error> pending_;  // of a micro-step that ended in a destructor
};

inline Sync::MicroStep::MicroStep(State* state, const MicroStepOptions& options) : state_(state) {
  boundary_ = state_->Begin(options);
  open_ = true;
}

inline Sync::MicroStep::~MicroStep() {
  if (!std::exchange(open_, false)) return;
  if (std::uncaught_exceptions() > exceptions_) {
    state_->Abandon();
    return;
  }
  try {
    state_->End(skipped_);
  } catch (const Error& error) {
    state_->Keep(error);
  } catch (const std::exception& error) {
    state_->Keep(Error(GG_INTERNAL, error.what()));
  }
}

inline void Sync::MicroStep::end() {
  if (std::exchange(open_, false)) state_->End(skipped_);
}

inline Sync::Sync(std::vector<at::Tensor> parameters, c10::intrusive_ptr<c10d::ProcessGroup> group, const SyncOptions& options)
    : state_(std::make_unique<State>(std::move(parameters), std::move(group), options)) {}

inline bool Sync::boundary() { return state_->Boundary(); }
inline std::optional<gg_window> Sync::flush(uint32_t divisor) { return state_->Flush(divisor); }
inline const gg_window& Sync::window() const noexcept { return state_->window(); }
inline uint32_t Sync::bucket_count() const { return state_->bucket_count(); }

inline gg_stats Sync::stats() const {
  gg_stats stats = GG_STATS_INIT;
  gradgate::internal::Check(gg_ledger_stats_get, state_->ledger(), &stats);
  return stats;
}

inline gg_collective_stats Sync::collective_stats(gg_group group, gg_op op) const {
  gg_collective_stats stats = GG_COLLECTIVE_STATS_INIT;
  gradgate::internal::Check(gg_ledger_collective_stats_get, state_->ledger(), group, op, &stats);
  return stats;
}

inline void Sync::close() {
  state_->ThrowPending();
  gradgate::internal::Check(gg_ledger_close, state_->ledger());
}

}  // namespace torch
}  // namespace v1
}  // namespace gradgate

#endif  // GRADGATE_TORCH_SYNC_HPP_
