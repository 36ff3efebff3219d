#include "daemon/rpc/diagnosis_answer.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/doctor/doctor.h"
#include "daemon/node/process_state.h"
#include "daemon/rpc/evidence.h"
#include "daemon/rpc/fields.h"
#include "daemon/rpc/merge_jobs.h"

namespace gradgate {
namespace {

// More than any node keeps.
constexpr int kMaxWindows = 1024;

std::string KindWord(v1::VerdictKind kind) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::VerdictKind_Name(kind), "VERDICT_KIND_"));
}

// With what the kernel says of the ranks' processes.
v1::NodeEvidence WithProcesses(const JobEvidenceView& view) {
  v1::NodeEvidence evidence = ToEvidence(view);
  for (size_t i = 0; i < view.ranks.size(); ++i) {
    evidence.mutable_ranks(static_cast<int>(i))->set_process_state(ReadProcessState(view.ranks[i].peer_process_id));
  }
  return evidence;
}

}  // namespace

absl::StatusOr<v1::DiagnoseResponse> AnswerEvidence(const v1::DiagnoseRequest& request, const std::string& node_name,
                                                    const Store* store, Registry& registry) {
  absl::StatusOr<JobEvidenceView> view = registry.GetEvidence(request.job());
  if (!view.ok()) return view.status();
  v1::DiagnoseResponse response;
  v1::NodeEvidence* evidence = response.add_evidence();
  *evidence = WithProcesses(*view);
  evidence->set_node_name(node_name);
  if (store != nullptr) {
    const StoreHealth health = store->Health();
    if (!health.reachable) evidence->set_store_error(absl::StrCat(health.name, ": ", health.trouble));
    if (health.unreachable_since) Set(view->now - *health.unreachable_since, evidence->mutable_store_unreachable_duration());
  }
  *response.mutable_job() = evidence->job();
  return response;
}

absl::Status CheckEvidence(const v1::DiagnoseResponse& part) {
  if (part.evidence_size() != 1)
    return absl::DataLossError(absl::StrCat("evidence of ", part.evidence_size(), " nodes, not of 1"));
  v1::GetJobStatsResponse stats;
  *stats.mutable_job() = part.job();
  for (const v1::RankEvidence& rank : part.evidence(0).ranks()) {
    *stats.add_ranks() = rank.stats();
    if (rank.windows_size() > kMaxWindows) {
      return absl::DataLossError(absl::StrCat("rank ", rank.stats().rank(), " brings ", rank.windows_size(), " windows"));
    }
  }
  return CheckJobStats(stats);
}

std::map<std::string, int64_t> CountVerdicts(Registry& registry) {
  std::map<std::string, int64_t> counts;
  for (int kind = v1::VERDICT_KIND_HEALTHY; kind <= v1::VerdictKind_MAX; ++kind) {
    counts.emplace(KindWord(static_cast<v1::VerdictKind>(kind)), 0);
  }
  for (const JobEvidenceView& view : registry.GetRunningEvidence()) {
    Evidence evidence;
    evidence.nodes.push_back(WithProcesses(view));
    std::set<std::string> kinds;
    for (const v1::Verdict& verdict : Diagnose(evidence)) kinds.insert(KindWord(verdict.kind()));
    for (const std::string& kind : kinds) ++counts[kind];
  }
  return counts;
}

v1::DiagnoseResponse Judge(Parts<v1::DiagnoseResponse> parts, bool other_nodes_asked, bool with_evidence) {
  Evidence evidence;
  evidence.other_nodes_asked = other_nodes_asked;
  std::vector<const v1::Job*> jobs;
  for (Part<v1::DiagnoseResponse>& part : parts.parts) {
    jobs.push_back(&part.answer.job());
    for (v1::NodeEvidence& node : *part.answer.mutable_evidence()) {
      node.set_node_name(parts.nodes[part.node].node_name());
      evidence.nodes.push_back(std::move(node));
    }
  }
  evidence.answers = std::move(parts.nodes);
  v1::DiagnoseResponse response;
  *response.mutable_job() = MergeJob(jobs);
  for (v1::Verdict& verdict : Diagnose(evidence)) *response.add_verdicts() = std::move(verdict);
  for (v1::NodeAnswer& node : evidence.answers) *response.add_nodes() = std::move(node);
  if (!with_evidence) return response;
  for (v1::NodeEvidence& node : evidence.nodes) *response.add_evidence() = std::move(node);
  return response;
}

}  // namespace gradgate
