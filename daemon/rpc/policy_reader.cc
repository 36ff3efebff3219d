#include "daemon/rpc/policy_reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/text_check.h"
#include "daemon/policy/policy_content.h"
#include "daemon/policy/policy_state.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/merge_jobs.h"

namespace gradgate {
namespace {

std::string Describe(const StoreHealth& health) {
  return health.trouble.empty() ? health.name : absl::StrCat(health.name, ", ", health.trouble);
}

// By rank; of two that claim to be one, the running one.
void KeepEachOnce(google::protobuf::RepeatedPtrField<v1::RankPolicy>* ranks) {
  const auto place = [](const v1::RankPolicy& rank) { return std::pair(rank.rank(), rank.state() != v1::STATE_RUNNING); };
  std::stable_sort(ranks->begin(), ranks->end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  const auto end = std::unique(ranks->begin(), ranks->end(), [](const auto& a, const auto& b) { return a.rank() == b.rank(); });
  ranks->erase(end, ranks->end());
}

}  // namespace

absl::StatusOr<v1::GetPolicyResponse> MergePolicyParts(Parts<v1::GetPolicyResponse> parts) {
  v1::GetPolicyResponse merged = std::move(parts.parts.front().answer);
  v1::PolicyStatus& status = *merged.mutable_status();
  std::vector<const v1::Job*> jobs;
  for (const auto& part : parts.parts) jobs.push_back(&part.answer.status().job());
  jobs.front() = &status.job();
  const v1::Job job = MergeJob(jobs);
  *status.mutable_job() = job;
  for (size_t i = 1; i < parts.parts.size(); ++i) {
    const v1::PolicyStatus& other = parts.parts[i].answer.status();
    if (other.proposed().version() > status.proposed().version()) *status.mutable_proposed() = other.proposed();
    status.mutable_ranks()->MergeFrom(other.ranks());
  }
  KeepEachOnce(status.mutable_ranks());
  status.clear_nodes();  // as the first part's node has them
  for (v1::NodeAnswer& node : parts.nodes) *status.add_nodes() = std::move(node);
  Judge(&status);
  return merged;
}

// Text of another daemon ends on terminals.
absl::Status CheckPolicyPart(const v1::GetPolicyResponse& part) {
  if (absl::Status status = CheckJob(part.status().job()); !status.ok()) return status;
  const v1::ProposedPolicy& proposed = part.status().proposed();
  for (const std::string& text : {proposed.actor(), proposed.node_name(), proposed.content_hash(), part.status().store()}) {
    if (!IsPrintableUtf8(text)) return absl::InvalidArgumentError("text that is not printable");
  }
  std::set<int32_t> ranks;
  for (const v1::RankPolicy& rank : part.status().ranks()) {
    if (rank.rank() < 0 || !ranks.insert(rank.rank()).second)
      return absl::DataLossError("a rank that is negative, or there twice");
    if (!IsPrintableUtf8(rank.node_name())) return absl::DataLossError("text that cannot be shown");
  }
  if (absl::Status status = CheckPolicy(proposed.policy()); !status.ok()) return status;
  return CheckPolicy(proposed.former_policy());
}

JobKey KeyOf(const v1::Job& job) {
  return {static_cast<uint32_t>(job.user_id()), job.job_name(), job.run_id(), static_cast<uint32_t>(job.attempt())};
}

absl::StatusOr<v1::GetPolicyResponse> PolicyReader::Own(const v1::GetPolicyRequest& request) const {
  const absl::StatusOr<JobStatsView> stats = registry_->GetJobStats(request.job());
  if (!stats.ok()) return stats.status();
  v1::GetPolicyResponse response;
  v1::PolicyStatus& status = *response.mutable_status();
  *status.mutable_job() = ToMessage(stats->job);
  *status.mutable_proposed() = desk_->Latest(KeyOf(status.job()), status.job().launch_id());
  for (const RankView& rank : stats->ranks) *status.add_ranks() = ToRankPolicy(rank, node_name_);
  status.set_store(Describe(desk_->Health()));
  Judge(&status);
  return response;
}

JobQuestion<v1::GetPolicyRequest, v1::GetPolicyResponse> PolicyReader::Question() const {
  JobQuestion<v1::GetPolicyRequest, v1::GetPolicyResponse> question;
  question.method = "/gradgate.v1.PolicyService/GetPolicy";
  question.own = [this](const v1::GetPolicyRequest& request) { return Own(request); };
  question.job = [](const v1::GetPolicyResponse& response) -> const v1::Job& { return response.status().job(); };
  question.check = CheckPolicyPart;
  question.merge = MergePolicyParts;
  return question;
}

grpc::ServerUnaryReactor* PolicyReader::Answer(grpc::CallbackServerContext* context, const v1::GetPolicyRequest& request,
                                               v1::GetPolicyResponse* response) const {
  return AnswerForJob(context, request, response, peers_, Question());
}

absl::StatusOr<v1::GetPolicyResponse> PolicyReader::Read(const v1::GetPolicyRequest& request, absl::Time deadline) const {
  return AskForJob(deadline, request, peers_, Question());
}

}  // namespace gradgate
