// The layout of gradients in buckets: a pure function of the tensors and the bucket size, the same on all ranks.
//
// Buckets are filled in reverse order of registration, since a backward completes gradients roughly in that order; a bucket
// holds one dtype; a tensor larger than a bucket has one of its own. Tensors lie packed, without padding, so that bytes sent
// are bytes of gradients.

#ifndef GRADGATE_SHIM_CORE_BUCKET_PLAN_H_
#define GRADGATE_SHIM_CORE_BUCKET_PLAN_H_

#include <cstdint>
#include <vector>

namespace gradgate {

struct TensorShape {
  uint64_t element_count;
  uint32_t element_bytes;
  uint32_t dtype;
};

struct BucketPlan {
  struct Place {
    uint32_t bucket;
    uint64_t offset;  // elements from the bucket's begin
  };
  struct Bucket {
    uint32_t dtype;
    uint32_t element_bytes;
    uint64_t element_count;
    std::vector<uint32_t> tensors;  // in bucket order
  };

  std::vector<Place> places;  // by tensor
  std::vector<Bucket> buckets;
};

BucketPlan PlanBuckets(const std::vector<TensorShape>& tensors, uint64_t bucket_bytes);

}  // namespace gradgate

#endif  // GRADGATE_SHIM_CORE_BUCKET_PLAN_H_
