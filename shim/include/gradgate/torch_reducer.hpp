// torch_reducer.hpp: reduces the gradients of parameters that no wrapper reduces, through a c10d process group.
// gradgate/torch.hpp (C++ trainers) and gradgate's Python package (gradgate.attach on a module without wrapper) use it. Header
// only; no library of gradgate's is needed.
//
//     bucket 0, bucket 1, … as their last gradients arrive; [the rest]; the map; [what some rank has changed since]; write
//
//     idle ──arm──► armed ──last gradient of bucket 0──► launched ──finish──► complete ──arm──► armed
//                     └───────────────finish (all late)────────────────────────▲
//
// Buckets hold gradients of one type and device, parameters in reverse order of registration, and are sent in order on every
// rank, as soon as all before them are filled; a rank that sends them all in finish() therefore pairs with one that sends them
// within its backward. The map, one small all-reduce, says which parameters some rank has gradients for, so that one that
// nobody used keeps none, and which buckets some rank has changed since it sent them: by another backward, or by arithmetic on
// its gradients. Those are sent again, by all; so is, in buckets of its own, what was frozen inside the window and has a
// gradient somewhere. How often each gradient arrives in a boundary is remembered, for the next to
// send it at its last.
//
// What is left in a parameter's gradient is the mean over the group's ranks. Where nobody else holds the gradient's memory it
// is replaced by a view of the bucket; elsewhere it is overwritten in place. A bucket's memory is used again once no view is
// left.
//
// Thread class: one thread calls, outside a backward. Gradients arrive on the engine's threads, one per device; a lock that is
// held while a bucket is filled and issued keeps them apart. Callers that hold Python's lock release it first: filling may need
// it. Errors: ReductionFailed where a collective failed or took longer than the deadline, naming what was waited for; what
// torch throws otherwise.
//
// gradgate/adapters/plain_python.py does the same without a compiler; ranks of one job may use either.

#ifndef GRADGATE_TORCH_REDUCER_HPP_
#define GRADGATE_TORCH_REDUCER_HPP_

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace gradgate {
inline namespace v1 {
namespace torch {

class ReductionFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Sees every collective. Called on the issuing thread, with the reducer's lock held: may issue collectives, may not call the
// reducer.
class ReductionObserver {
 public:
  virtual ~ReductionObserver() = default;
  // Before the first gradient collective after arm(), or after finish() began where that is the first.
  virtual void before_first() = 0;
  // `gradient`: not the map. What it returns is handed to done().
  virtual int64_t issued(bool gradient, uint64_t bytes, uint32_t tensors) = 0;
  virtual void done(bool gradient, int64_t token, bool ok) = 0;
};

struct ReducerOptions {
  uint64_t bucket_bytes = uint64_t{25} << 20;   // a larger parameter has a bucket of its own
  std::optional<at::ScalarType> wire = {};      // wider real gradients are sent in this type
  std::chrono::milliseconds deadline{300'000};  // of each wait
  bool overlap = true;                          // false: nothing is sent before finish()
  ReductionObserver* observer = nullptr;        // borrowed
};

namespace internal {

// Without torch's stack.
inline std::string TextOf(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

// Waits, tells `done` how it ended, and throws what it failed with.
template <typename F>
void Await(const c10::intrusive_ptr<c10d::Work>& work, std::chrono::milliseconds deadline, F done) {
  bool ok = false;
  try {
    ok = work->wait(deadline);
  } catch (...) {
    done(false);
    throw;
  }
  done(ok);
  if (!ok) throw std::runtime_error("it was aborted");
}

// One bucket, used by Reducer alone. Empty -> launched (any number of times) -> written, which is empty again.
class Bucket {
 public:
  Bucket(at::ScalarType type, at::Device device, std::optional<at::ScalarType> wire)
      : type_(type), device_(device), sent_type_(Narrows(type, wire) ? *wire : type) {}

  std::vector<size_t> indices;  // of parameters
  int64_t element_count = 0;
  uint64_t bytes = 0;
  size_t missing = 0;  // parameters whose gradients are still to arrive

  bool holds(const at::Tensor& parameter) const { return parameter.scalar_type() == type_ && parameter.device() == device_; }
  void add(size_t index, const at::Tensor& parameter) {
    indices.push_back(index);
    element_count += parameter.numel();
    bytes += parameter.nbytes();
  }

  // Fills a buffer with this rank's part of the mean, zeros where there is no gradient, and sends it. Does not wait.
  // `share`: one number, by which gradients are multiplied in their own type.
  void launch(const std::vector<at::Tensor>& parameters, const at::Tensor& share, c10d::ProcessGroup& group,
              ReductionObserver* observer) {
    if (!sent_) sent_ = Take(parameters);
    seen_.clear();
    for (size_t i = 0; i < indices.size(); ++i) {
      const at::Tensor& gradient = parameters[indices[i]].grad();
      at::Tensor& view = sent_->views[i];
      if (!gradient.defined()) {
        view.zero_();
      } else {
        at::mul_out(view, gradient.layout() == at::kStrided ? gradient : gradient.to_dense(), share);
      }
      seen_.emplace_back(gradient, gradient.defined() ? gradient._version() : 0);
    }
    std::vector<at::Tensor> tensors{sent_->flat};
    if (observer != nullptr) token_ = observer->issued(true, sent_->flat.nbytes(), static_cast<uint32_t>(indices.size()));
    work_ = group.allreduce(tensors);
  }

  // Whether a gradient is another tensor than the one that was sent, or has been written since.
  bool stale(const std::vector<at::Tensor>& parameters) const {
    for (size_t i = 0; i < indices.size(); ++i) {
      const at::Tensor& gradient = parameters[indices[i]].grad();
      if (!gradient.is_same(seen_[i].first) || (gradient.defined() && gradient._version() != seen_[i].second)) return true;
    }
    return false;
  }

  void wait(std::chrono::milliseconds deadline, ReductionObserver* observer) {
    if (!work_) return;
    Await(std::exchange(work_, {}), deadline, [&](bool ok) {
      if (observer != nullptr) observer->done(true, token_, ok);
    });
  }

  // Hands out the means. `totals`: by parameter, 0 where no rank has a gradient, kSparse and more where one has a sparse one.
  static constexpr int32_t kSparse = 1 << 16;
  void write(const std::vector<at::Tensor>& parameters, const int32_t* totals) {
    for (size_t i = 0; i < indices.size(); ++i) {
      const at::Tensor& parameter = parameters[indices[i]];
      const int32_t total = totals[indices[i]];
      if (total == 0) continue;
      const at::Tensor& view = sent_->views[i];
      at::Tensor& gradient = parameter.mutable_grad();
      if (total >= kSparse) {
        gradient = view.to(type_).to_sparse(1);
      } else if (sent_type_ == type_ && parameter.is_contiguous() && OursAlone(gradient)) {
        gradient = at::Tensor(view.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true));
      } else {
        if (!gradient.defined()) gradient = at::empty_like(parameter);
        gradient.copy_(view);
      }
    }
    drop();
  }

  void drop() {
    sent_ = nullptr;
    work_.reset();
    seen_.clear();
  }

 private:
  struct Buffer {
    at::Tensor flat;
    std::vector<at::Tensor> views;  // in the order of `indices`, contiguous
    // Whether no gradient is a view of it: flat and views are its only holders.
    bool free() const { return flat.storage().use_count() == views.size() + 1; }
  };

  static bool Narrows(at::ScalarType type, std::optional<at::ScalarType> wire) {
    return wire && at::isFloatingType(type) && c10::elementSize(type) > c10::elementSize(*wire);
  }

  // Whether nobody would notice if this gradient were a view of a bucket: the parameter and `seen_` alone hold it, and nothing
  // else its memory. A Python object for it counts as a holder.
  bool OursAlone(const at::Tensor& gradient) const {
    return !gradient.defined() ||
           (gradient.use_count() <= 2 && gradient.layout() == at::kStrided && gradient.scalar_type() == type_ &&
            gradient.storage().use_count() == 1 && !gradient.key_set().has(c10::DispatchKey::Python));
  }

  // At most two: one that gradients may be views of, and one to send.
  Buffer* Take(const std::vector<at::Tensor>& parameters) {
    for (const auto& buffer : buffers_) {
      if (buffer->free()) return buffer.get();
    }
    if (buffers_.size() >= 2) buffers_.erase(buffers_.begin());
    auto made = std::make_unique<Buffer>();
    made->flat = at::empty({element_count}, at::TensorOptions().dtype(sent_type_).device(device_));
    int64_t offset = 0;
    for (const size_t index : indices) {
      const at::Tensor& parameter = parameters[index];
      made->views.push_back(made->flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      offset += parameter.numel();
    }
    return buffers_.emplace_back(std::move(made)).get();
  }

  const at::ScalarType type_;
  const at::Device device_;
  const at::ScalarType sent_type_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Buffer* sent_ = nullptr;  // one of them, while launched
  c10::intrusive_ptr<c10d::Work> work_;
  int64_t token_ = 0;
  std::vector<std::pair<at::Tensor, int64_t>> seen_;  // gradients that were sent, and their versions then
};

}  // namespace internal

// Neither copied nor moved; made by std::make_shared, for its hooks hold it weakly.
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  // `parameters`: leaves, each once, in order of registration, the same on all ranks; `names` for messages, as many. Frozen
  // ones may be among them: buckets follow requires_grad, type and device at each arm(). Values are the caller's to make equal.
  Reducer(std::vector<at::Tensor> parameters, std::vector<std::string> names, c10::intrusive_ptr<c10d::ProcessGroup> group,
          const ReducerOptions& options)
      : parameters_(std::move(parameters)), names_(std::move(names)), group_(std::move(group)), options_(options) {
    if (parameters_.empty() || parameters_.size() != names_.size()) {
      throw std::invalid_argument("a reducer needs parameters, and a name for each");
    }
    share_.unsafeGetTensorImpl()->set_wrapped_number(true);
    Plan();
  }
  ~Reducer() { RemoveHooks(); }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Before the forward of a micro-step that is to reduce: buckets are sent in its backward. After one that has launched and was
  // not finished: finishes that first.
  void arm() {
    if (state().launched) finish();
    const std::lock_guard lock(mutex_);
    complete_ = false;
    Begin();
    if (options_.overlap && hooks_.empty()) AddHooks();
  }

  // After the backward, also after one that failed. Cheap when not armed.
  void disarm() { RemoveHooks(); }

  // Sends what the backward has not, and waits for all. Blocks up to the deadline for each wait.
  void finish() {
    const c10::InferenceMode normal(false);
    const at::NoGradGuard no_grad;
    const std::lock_guard lock(mutex_);
    if (next_ == 0 && !Any()) Begin();
    while (next_ < buckets_.size()) LaunchNext();
    std::string where = "the map of used parameters";
    try {
      const std::vector<int32_t> totals = ReduceMap();
      sent_again_ = 0;
      for (size_t i = 0; i < buckets_.size(); ++i) {
        if (totals[parameters_.size() + i] == 0) continue;
        buckets_[i].wait(options_.deadline, options_.observer);
        buckets_[i].launch(parameters_, share_, *group_, options_.observer);
        ++sent_again_;
      }
      for (internal::Bucket& bucket : buckets_) {
        where =
            "a bucket of " + std::to_string(bucket.indices.size()) + " parameters, " + names_[bucket.indices[0]] + " first,";
        bucket.wait(options_.deadline, options_.observer);
      }
      std::vector<internal::Bucket> frozen;
      Fill([&](size_t index) { return bucket_of_[index] == kNone && totals[index] > 0; }, &frozen);
      for (internal::Bucket& bucket : frozen) {
        bucket.launch(parameters_, share_, *group_, options_.observer);
        where = "a bucket of frozen parameters, " + names_[bucket.indices[0]] + " first,";
        bucket.wait(options_.deadline, options_.observer);
        bucket.write(parameters_, totals.data());
      }
      for (internal::Bucket& bucket : buckets_) bucket.write(parameters_, totals.data());
    } catch (const std::exception& error) {
      const double seconds = std::chrono::duration<double>(options_.deadline).count();
      std::string limit = std::to_string(seconds);
      limit.erase(limit.find_last_not_of('0') + 1);
      if (limit.back() == '.') limit.pop_back();
      throw ReductionFailed(where + " was not reduced within " + limit + " s, or failed: " + internal::TextOf(error));
    }
    if (Any()) {
      wanted_ = arrived_;
      arrived_.assign(parameters_.size(), 0);
    }
    next_ = 0;
    complete_ = true;
  }

  // Waits for what was sent and throws it away. Gradients stay as they are.
  void discard() {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < next_; ++i) {
      buckets_[i].wait(options_.deadline, options_.observer);
      buckets_[i].drop();
    }
    next_ = 0;
  }

  // Of the reduction that the last arm() or finish() began.
  struct State {
    bool complete;
    bool launched;                      // and not complete
    bool began;                         // some gradient has arrived
    std::vector<int64_t> bucket_sizes;  // in elements
    size_t sent_again;                  // buckets, in the last reduction
  };
  State state() const {
    const std::lock_guard lock(mutex_);
    State state{complete_, next_ > 0, Any(), {}, sent_again_};
    for (const internal::Bucket& bucket : buckets_) state.bucket_sizes.push_back(bucket.element_count);
    return state;
  }

  // Not while launched.
  void configure(uint64_t bucket_bytes, std::optional<at::ScalarType> wire) {
    const std::lock_guard lock(mutex_);
    options_.bucket_bytes = bucket_bytes;
    options_.wire = wire;
    Plan();
  }

 private:
  // On the accumulating node, which is the parameter's: the one hook of the parameter itself may be somebody else's.
  class Hook : public ::torch::autograd::FunctionPostHook {
   public:
    Hook(std::weak_ptr<Reducer> reducer, size_t index) : reducer_(std::move(reducer)), index_(index) {}
    ::torch::autograd::variable_list operator()(const ::torch::autograd::variable_list& outputs,
                                                const ::torch::autograd::variable_list&) override {
      if (const auto reducer = reducer_.lock()) reducer->OnGradient(index_);
      return outputs;
    }
    // In a compiled backward nothing is sent early.
    void compiled_args(::torch::dynamo::autograd::CompiledNodeArgs&) const override {}

   private:
    const std::weak_ptr<Reducer> reducer_;
    const size_t index_;
  };
  using NodePointer = decltype(::torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  struct Fact {  // that buckets depend on
    bool trainable;
    at::ScalarType type;
    at::Device device;
    bool operator==(const Fact&) const = default;
  };

  bool Any() const {
    for (const uint32_t count : arrived_) {
      if (count != 0) return true;
    }
    return false;
  }

  std::vector<Fact> Facts() const {
    std::vector<Fact> facts;
    facts.reserve(parameters_.size());
    for (const at::Tensor& p : parameters_) facts.push_back({p.requires_grad(), p.scalar_type(), p.device()});
    return facts;
  }

  void Fill(const std::function<bool(size_t index)>& wanted, std::vector<internal::Bucket>* buckets) const {
    std::vector<size_t> open;  // the last bucket of each type and device
    for (size_t index = parameters_.size(); index-- > 0;) {
      const at::Tensor& parameter = parameters_[index];
      if (!wanted(index)) continue;
      size_t* place = nullptr;
      for (size_t& candidate : open) {
        if ((*buckets)[candidate].holds(parameter)) place = &candidate;
      }
      if (place == nullptr || (*buckets)[*place].bytes + parameter.nbytes() > options_.bucket_bytes) {
        buckets->emplace_back(parameter.scalar_type(), parameter.device(), options_.wire);
        if (place == nullptr) place = &open.emplace_back();
        *place = buckets->size() - 1;
      }
      (*buckets)[*place].add(index, parameter);
    }
  }

  void Plan() {
    facts_ = Facts();
    buckets_.clear();
    bucket_of_.assign(parameters_.size(), kNone);
    Fill([this](size_t index) { return facts_[index].trainable; }, &buckets_);
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      for (const size_t index : buckets_[bucket].indices) bucket_of_[index] = bucket;
    }
    wanted_.assign(parameters_.size(), 1);
    arrived_.assign(parameters_.size(), 0);
    next_ = 0;
    sent_again_ = 0;
  }

  // Freezing and unfreezing changes the buckets, on all ranks alike.
  void Begin() {
    if (Facts() != facts_) {
      RemoveHooks();
      Plan();
    }
    arrived_.assign(parameters_.size(), 0);
    for (internal::Bucket& bucket : buckets_) {
      bucket.missing = 0;
      for (const size_t index : bucket.indices) bucket.missing += wanted_[index] > 0;
    }
  }

  void AddHooks() {
    for (size_t index = 0; index < parameters_.size(); ++index) {
      if (bucket_of_[index] == kNone) continue;
      NodePointer node = ::torch::autograd::impl::grad_accumulator(parameters_[index]);
      const uintptr_t key = node->add_post_hook(std::make_unique<Hook>(weak_from_this(), index));
      hooks_.emplace_back(std::move(node), key);
    }
  }

  void RemoveHooks() {
    for (auto& [node, key] : hooks_) node->del_post_hook(key);
    hooks_.clear();
  }

  void OnGradient(size_t index) {
    const c10::InferenceMode normal(false);
    const at::NoGradGuard no_grad;
    const std::lock_guard lock(mutex_);
    if (++arrived_[index] != wanted_[index]) return;
    --buckets_[bucket_of_[index]].missing;
    while (next_ < buckets_.size() && buckets_[next_].missing == 0) LaunchNext();
  }

  void LaunchNext() {
    if (next_ == 0 && options_.observer != nullptr) options_.observer->before_first();
    buckets_[next_].launch(parameters_, share_, *group_, options_.observer);
    ++next_;
  }

  // Summed over ranks: an entry for each parameter, and one for each bucket.
  std::vector<int32_t> ReduceMap() {
    at::Tensor map =
        at::empty({static_cast<int64_t>(parameters_.size() + buckets_.size())}, at::TensorOptions().dtype(at::kInt));
    int32_t* entry = map.mutable_data_ptr<int32_t>();
    for (const at::Tensor& parameter : parameters_) {
      const at::Tensor& gradient = parameter.grad();
      *entry++ = !gradient.defined() ? 0 : gradient.layout() == at::kStrided ? 1 : internal::Bucket::kSparse;
    }
    for (const internal::Bucket& bucket : buckets_) *entry++ = bucket.stale(parameters_) ? 1 : 0;
    map = map.to(parameters_[0].device());
    std::vector<at::Tensor> tensors{map};
    ReductionObserver* const observer = options_.observer;
    const int64_t token = observer != nullptr ? observer->issued(false, map.nbytes(), 1) : 0;
    internal::Await(group_->allreduce(tensors), options_.deadline, [&](bool ok) {
      if (observer != nullptr) observer->done(false, token, ok);
    });
    map = map.cpu();
    const int32_t* const first = map.const_data_ptr<int32_t>();
    return {first, first + map.numel()};
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);

  const std::vector<at::Tensor> parameters_;
  const std::vector<std::string> names_;
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const at::Tensor share_ = at::scalar_tensor(1.0 / group_->getSize(), at::TensorOptions().dtype(at::kDouble));
  ReducerOptions options_;

  mutable std::mutex mutex_;  // all below but hooks_, which only the calling thread touches
  std::vector<Fact> facts_;
  std::vector<internal::Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // by parameter; kNone: frozen
  std::vector<uint32_t> wanted_;   // by parameter: arrivals in a boundary
  std::vector<uint32_t> arrived_;  // since arm()
  size_t next_ = 0;                // bucket to be sent
  size_t sent_again_ = 0;
  bool complete_ = false;
  std::vector<std::pair<NodePointer, uintptr_t>> hooks_;
};

}  // namespace torch
}  // namespace v1
}  // namespace gradgate

#endif  // GRADGATE_TORCH_REDUCER_HPP_
