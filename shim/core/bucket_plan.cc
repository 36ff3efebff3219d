#include "shim/core/bucket_plan.h"

namespace gradgate {

BucketPlan PlanBuckets(const std::vector<TensorShape>& tensors, uint64_t bucket_bytes) {
  BucketPlan plan;
  plan.places.resize(tensors.size());
  for (uint32_t i = static_cast<uint32_t>(tensors.size()); i-- > 0;) {
    const TensorShape& tensor = tensors[i];
    const auto fits = [&](const BucketPlan::Bucket& bucket) {
      return bucket.dtype == tensor.dtype &&
             (bucket.element_count + tensor.element_count) * tensor.element_bytes <= bucket_bytes;
    };
    if (plan.buckets.empty() || !fits(plan.buckets.back())) {
      plan.buckets.push_back({tensor.dtype, tensor.element_bytes, 0, {}});
    }
    BucketPlan::Bucket& bucket = plan.buckets.back();
    plan.places[i] = {static_cast<uint32_t>(plan.buckets.size() - 1), bucket.element_count};
    bucket.element_count += tensor.element_count;
    bucket.tensors.push_back(i);
  }
  return plan;
}

}  // namespace gradgate
