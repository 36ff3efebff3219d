#include "shim/reduce/reducer.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace gradgate {
namespace {

constexpr std::align_val_t kAlignment{64};

// out = in · multiply / divide; in and out may be the same.
template <typename T>
void ScaleInto(T* out, const T* in, uint64_t count, T multiply, T divide) {
  if (multiply == T{1} && divide == T{1}) {
    if (out != in) std::memcpy(out, in, count * sizeof(T));
  } else if (multiply == T{1}) {
    for (uint64_t i = 0; i < count; ++i) out[i] = in[i] / divide;
  } else {
    for (uint64_t i = 0; i < count; ++i) out[i] = in[i] * multiply / divide;
  }
}

void ScaleInto(void* out, const void* in, const TensorShape& shape, double multiply, double divide) {
  if (static_cast<DType>(shape.dtype) == DType::kFloat32) {
    ScaleInto(static_cast<float*>(out), static_cast<const float*>(in), shape.element_count, static_cast<float>(multiply),
              static_cast<float>(divide));
  } else {
    ScaleInto(static_cast<double*>(out), static_cast<const double*>(in), shape.element_count, multiply, divide);
  }
}

}  // namespace

void Reducer::Free::operator()(void* memory) const { ::operator delete(memory, kAlignment); }

Reducer::Reducer(const std::vector<GradientTensor>& tensors, uint64_t bucket_bytes) {
  for (const GradientTensor& tensor : tensors) {
    shapes_.push_back(
        {tensor.element_count, static_cast<uint32_t>(DTypeBytes(tensor.dtype)), static_cast<uint32_t>(tensor.dtype)});
  }
  Plan(bucket_bytes);
  tensors_.resize(tensors.size());
  for (uint32_t i = 0; i < tensor_count(); ++i) {
    tensors_[i].view = tensors[i].gradient == nullptr;
    tensors_[i].gradient = tensors_[i].view ? InBucket(i) : tensors[i].gradient;
  }
}

void Reducer::Plan(uint64_t bucket_bytes) {
  plan_ = PlanBuckets(shapes_, bucket_bytes);
  buckets_.clear();
  buckets_.resize(plan_.buckets.size());
  for (uint32_t i = 0; i < bucket_count(); ++i) {
    buckets_[i].memory.reset(::operator new(this->bucket_bytes(i), kAlignment));
    std::memset(buckets_[i].memory.get(), 0, this->bucket_bytes(i));
  }
}

bool Reducer::has_views() const {
  return std::any_of(tensors_.begin(), tensors_.end(), [](const Tensor& tensor) { return tensor.view; });
}

void Reducer::Replan(uint64_t bucket_bytes) {
  Plan(bucket_bytes);
  ResetBuckets();
}

uint64_t Reducer::bucket_bytes(uint32_t bucket) const {
  return plan_.buckets[bucket].element_count * plan_.buckets[bucket].element_bytes;
}

void* Reducer::InBucket(uint32_t tensor) const {
  const BucketPlan::Place& place = plan_.places[tensor];
  return static_cast<char*>(buckets_[place.bucket].memory.get()) + place.offset * shapes_[tensor].element_bytes;
}

void Reducer::ResetBuckets() {
  next_ = 0;
  all_ready_ = false;
  for (uint32_t i = 0; i < bucket_count(); ++i) buckets_[i].missing = bucket_tensors(i);
}

bool Reducer::MarkReady(uint32_t tensor) {
  if (tensors_[tensor].marked_epoch == epoch_) return false;
  tensors_[tensor].marked_epoch = epoch_;
  if (reducing_) --buckets_[plan_.places[tensor].bucket].missing;
  return true;
}

void Reducer::Zero() {
  for (uint32_t i = 0; i < tensor_count(); ++i) std::memset(tensors_[i].gradient, 0, TensorBytes(i));
}

Ticket Reducer::Launch(Transport& transport, AllReduceRequest request) {
  const uint32_t bucket = next_++;
  for (uint32_t tensor : plan_.buckets[bucket].tensors) {
    if (!tensors_[tensor].view) std::memcpy(InBucket(tensor), tensors_[tensor].gradient, TensorBytes(tensor));
  }
  request.data = buckets_[bucket].memory.get();
  request.element_count = plan_.buckets[bucket].element_count;
  request.dtype = static_cast<DType>(plan_.buckets[bucket].dtype);
  request.op = ReduceOp::kSum;
  return transport.Start(request);
}

void Reducer::Finish(uint32_t bucket, double multiply, double divide) {
  for (const uint32_t i : plan_.buckets[bucket].tensors)
    ScaleInto(tensors_[i].gradient, InBucket(i), shapes_[i], multiply, divide);
}

void Reducer::Scale(double multiply, double divide) {
  for (uint32_t i = 0; i < tensor_count(); ++i) {
    ScaleInto(tensors_[i].gradient, tensors_[i].gradient, shapes_[i], multiply, divide);
  }
}

}  // namespace gradgate
