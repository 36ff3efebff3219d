// The bucketed reducer: holds the buckets, starts the all-reduce of each as soon as its last gradient is ready, and brings the
// results back. Mechanism alone: when to reduce, what to count and what to divide by is the session's.
//
//   Reset ──► MarkReady… ──► NextReady / Launch (in bucket order) ──► MarkAllReady, Launch the rest ──► wait ──► Finish
//
// All ranks launch buckets in the same order, bucket 0 first, since the order of collectives must agree: a bucket that is ready
// early waits for those before it.
//
// Thread class: one thread at a time. Launch does not block. Memory: one allocation per bucket, 64-byte aligned, for as long as
// the reducer lives; gradients given as null are views of it, others are copied in at Launch and out at Finish.

#ifndef GRADGATE_SHIM_REDUCE_REDUCER_H_
#define GRADGATE_SHIM_REDUCE_REDUCER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shim/core/bucket_plan.h"
#include "shim/core/status.h"
#include "shim/reduce/transport.h"

namespace gradgate {

struct GradientTensor {
  void* gradient = nullptr;  // null: a view of the bucket
  uint64_t element_count = 0;
  DType dtype = DType::kFloat32;  // kFloat32 or kFloat64
};

class Reducer {
 public:
  Reducer(const std::vector<GradientTensor>& tensors, uint64_t bucket_bytes);

  uint32_t tensor_count() const { return static_cast<uint32_t>(tensors_.size()); }
  uint32_t bucket_count() const { return static_cast<uint32_t>(plan_.buckets.size()); }
  uint64_t bucket_bytes(uint32_t bucket) const;
  uint32_t bucket_tensors(uint32_t bucket) const { return static_cast<uint32_t>(plan_.buckets[bucket].tensors.size()); }
  void* gradient(uint32_t tensor) const { return tensors_[tensor].gradient; }

  // Some gradient is a view of a bucket.
  bool has_views() const;

  // Lays the buckets out anew; between windows, and only where no gradient is a view.
  void Replan(uint64_t bucket_bytes);

  // A new micro-step: no gradient is ready. `reducing`: its buckets will be launched.
  void Reset(bool reducing) {
    ++epoch_;
    reducing_ = reducing;
    if (reducing) ResetBuckets();
  }

  // False if `tensor` was marked since Reset.
  bool MarkReady(uint32_t tensor);
  void MarkAllReady() { all_ready_ = true; }

  // The next bucket to launch is ready.
  bool NextReady() const { return next_ < buckets_.size() && (all_ready_ || buckets_[next_].missing == 0); }
  uint32_t next() const { return next_; }

  // Sets all gradients to zero: for a rank that brought no data.
  void Zero();

  // Starts the next bucket's sum; `request` brings deadline, done, user and tag.
  Ticket Launch(Transport& transport, AllReduceRequest request);

  // The bucket is complete: its gradients become bucket · multiply / divide, true division, so that multiples stay exact.
  void Finish(uint32_t bucket, double multiply, double divide);

  // Multiplies the gradients themselves, outside a reduction.
  void Scale(double multiply, double divide);

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  struct Bucket {
    std::unique_ptr<void, Free> memory;
    uint32_t missing = 0;  // tensors not yet ready
  };
  struct Tensor {
    void* gradient;
    bool view;
    uint64_t marked_epoch = 0;
  };

  void Plan(uint64_t bucket_bytes);
  void ResetBuckets();
  void* InBucket(uint32_t tensor) const;
  uint64_t TensorBytes(uint32_t tensor) const { return shapes_[tensor].element_count * shapes_[tensor].element_bytes; }

  std::vector<TensorShape> shapes_;
  BucketPlan plan_;
  std::vector<Bucket> buckets_;
  std::vector<Tensor> tensors_;
  uint64_t epoch_ = 0;
  uint32_t next_ = 0;
  bool reducing_ = false;
  bool all_ready_ = false;
};

}  // namespace gradgate

#endif  // GRADGATE_SHIM_REDUCE_REDUCER_H_
