#include "shim/torch/kernel.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "shim/torch/completions.h"
#include "shim/torch/ledgers.h"

namespace gradgate::tap {
namespace {

thread_local bool thread_is_late = false;
thread_local bool thread_is_inside = false;  // a counted collective is being dispatched
void (*first_gradient_callback)(gg_ledger*) = nullptr;

bool Reducing() { return thread_is_late || ::torch::autograd::get_current_graph_task_id() >= 0; }

class Inside {
 public:
  Inside() { thread_is_inside = true; }
  ~Inside() { thread_is_inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

uint64_t BytesOf(const at::Tensor& tensor) {
  if (tensor.layout() == c10::kSparse) {
    const auto* sparse = static_cast<const at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    return BytesOf(sparse->indices()) + BytesOf(sparse->values());
  }
  return static_cast<uint64_t>(tensor.numel()) * tensor.itemsize();
}

// Adds a tensor, or whatever nests tensors, to `call`.
void AddPayload(const c10::IValue& value, Call* call) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return;
    if (call->tensors++ == 0) call->real = at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
    call->element_count += tensor.numel();
    call->bytes += BytesOf(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) AddPayload(element, call);
  }
}

std::optional<c10::Device> FirstDevice(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device();
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (const auto device = FirstDevice(element)) return device;
    }
  }
  return std::nullopt;
}

// The object in a custom class's value; empty if it holds none. The operator's schema says that it is a T.
template <typename T>
c10::intrusive_ptr<T> ObjectIn(const c10::IValue& value) {
  if (!value.isObject() || value.toObjectRef().slots().size() != 1) return {};
  const c10::IValue& slot = value.toObjectRef().slots()[0];
  return slot.isCapsule() ? c10::static_intrusive_pointer_cast<T>(slot.toCapsule()) : c10::intrusive_ptr<T>();
}

// What is known of a collective between its issue and its return.
struct Pending {
  Issue issue;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  c10::Device device = c10::kCPU;
  uint64_t bytes = 0;
};

class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(Operator operation, size_t arguments, bool returns)
      : operation_(std::move(operation)), arguments_(arguments), returns_(returns) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, ::torch::jit::Stack* stack) {
    const c10::DispatchKeySet after =
        keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
    if (!Ledgers::Instance().Any() || thread_is_inside || keys.has_backend(c10::BackendComponent::MetaBit)) {
      handle.redispatchBoxed(after, stack);
      return;
    }
    Pending pending = Count(*stack);
    try {
      const Inside inside;
      handle.redispatchBoxed(after, stack);
    } catch (...) {
      Ledgers::Instance().Done(pending.issue, GG_OUTCOME_FAILED);
      throw;
    }
    if (pending.issue.binding != 0) Watch(pending, *stack);
  }

 private:
  // Never fails: what cannot be read is not counted.
  Pending Count(const ::torch::jit::Stack& stack) const {
    Pending pending;
    try {
      const c10::IValue* const arguments = &stack[stack.size() - arguments_];
      pending.group = ObjectIn<c10d::ProcessGroup>(arguments[operation_.group]);
      if (!pending.group) return pending;
      Call call{operation_.op};
      if (operation_.payload >= 0) AddPayload(arguments[operation_.payload], &call);
      for (size_t i = 0; i < arguments_; ++i) {
        if (const auto device = FirstDevice(arguments[i])) {
          pending.device = *device;
          break;
        }
      }
      pending.bytes = call.bytes;
      gg_ledger* stop = nullptr;
      pending.issue = Ledgers::Instance().Issued(pending.group->getGroupName(), call, &Reducing, &stop);
      if (stop != nullptr) {
        if (first_gradient_callback != nullptr) first_gradient_callback(stop);
        pending.issue = Ledgers::Instance().Issued(pending.group->getGroupName(), call, &Reducing, nullptr);
      }
    } catch (const std::exception&) {
    }
    return pending;
  }

  void Watch(const Pending& pending, const ::torch::jit::Stack& stack) const {
    if (!returns_) {  // it blocked until it was over
      Ledgers::Instance().Done(pending.issue, GG_OUTCOME_OK);
      return;
    }
    try {
      // The Work is returned alone or last.
      const auto work = stack.empty() ? c10::intrusive_ptr<c10d::Work>() : ObjectIn<c10d::Work>(stack.back());
      Completions::Instance().Watch(pending.issue, work, *pending.group, pending.device, pending.bytes);
    } catch (const std::exception&) {
      Ledgers::Instance().Done(pending.issue, GG_OUTCOME_UNKNOWN);
    }
  }

  const Operator operation_;
  const size_t arguments_;
  const bool returns_;
};

::torch::Library& TheLibrary() {
  // Never freed: torch's dispatcher may be gone before us.
  static auto* const library =
      new ::torch::Library(::torch::Library::IMPL, "c10d", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
  return *library;
}

}  // namespace

bool Register(const Operator& operation) {
  const auto handle = c10::Dispatcher::singleton().findSchema({"c10d::" + operation.name, operation.overload});
  if (!handle || handle->hasKernelForDispatchKey(c10::DispatchKey::BackendSelect)) return false;
  const c10::FunctionSchema& schema = handle->schema();
  const std::string name = operation.overload.empty() ? operation.name : operation.name + "." + operation.overload;
  TheLibrary().impl(name.c_str(), ::torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(
                                      operation, schema.arguments().size(), !schema.returns().empty())));
  return true;
}

void SetFirstGradientCallback(void (*callback)(gg_ledger* ledger)) { first_gradient_callback = callback; }

void SetLate(bool late) { thread_is_late = late; }

}  // namespace gradgate::tap
