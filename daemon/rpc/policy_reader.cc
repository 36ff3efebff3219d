#include "daemon/rpc/policy_reader.h"

#include "absl/strings/str_cat.h"
#include "daemon/policy/policy_state.h"
#include "daemon/rpc/convert.h"

namespace gradgate {
namespace {

std::string Describe(const StoreHealth& health) {
  return health.trouble.empty() ? health.name : absl::StrCat(health.name, ", ", health.trouble);
}

}  // namespace

JobKey KeyOf(const v1::Job& job) {
  return {static_cast<uint32_t>(job.user_id()), job.job_name(), job.run_id(), static_cast<uint32_t>(job.attempt())};
}

absl::StatusOr<v1::GetPolicyResponse> PolicyReader::Own(const v1::GetPolicyRequest& request) const {
  const absl::StatusOr<JobStatsView> stats = registry_->GetJobStats(request.job());
  if (!stats.ok()) return stats.status();
  v1::GetPolicyResponse response;
  v1::PolicyStatus& status = *response.mutable_status();
  *status.mutable_job() = ToMessage(stats->job);
  *status.mutable_proposed() = desk_->Latest(KeyOf(status.job()));
  for (const RankView& rank : stats->ranks) *status.add_ranks() = ToRankPolicy(rank, node_name_);
  status.set_store(Describe(desk_->Health()));
  v1::NodeAnswer& self = *status.add_nodes();
  self.set_node_name(node_name_);
  self.set_answered(true);
  Judge(&status);
  return response;
}

absl::StatusOr<v1::GetPolicyResponse> PolicyReader::Read(const v1::GetPolicyRequest& request, absl::Time) const {
  return Own(request);
}

}  // namespace gradgate
