// Requests of any bytes to the services of policies and of diagnosis, and for the list of nodes: what is asked for, proposed,
// judged and planned, over a node with a fixed set of jobs and an own store. Each input begins with an empty store.

#include <memory>
#include <optional>

#include "absl/strings/str_split.h"
#include "client/cli/policy_options.h"
#include "daemon/policy/policy_content.h"
#include "daemon/policy/policy_desk.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/diagnosis_answer.h"
#include "daemon/rpc/merge_nodes.h"
#include "daemon/rpc/plan_asking.h"
#include "daemon/rpc/policy_reader.h"
#include "daemon/rpc/policy_service.h"
#include "daemon/store/memory_store.h"
#include "tests/fuzz/answers.h"
#include "tests/fuzz/fixed_node.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr int kMaxCalls = 6;

enum Call : unsigned { kGetPolicy, kSetPolicy, kDiagnose, kPlanSync, kListNodes, kInForce, kCallCount };

class Caller {
 public:
  explicit Caller(FixedNode& node) : node_(node), desk_(&store_, &node.clock, "node-a") {}

  void Run(Input& in) {
    for (int i = 0; i < kMaxCalls && !in.empty(); ++i) {
      switch (static_cast<Call>(in.Below(kCallCount))) {
        case kGetPolicy:
          GetPolicy(Read<v1::GetPolicyRequest>(in));
          break;
        case kSetPolicy:
          SetPolicy(Read<v1::SetPolicyRequest>(in), in);
          break;
        case kDiagnose:
          Diagnose(Read<v1::DiagnoseRequest>(in));
          break;
        case kPlanSync:
          PlanSync(Read<v1::PlanSyncRequest>(in));
          break;
        case kListNodes:
          ListNodes();
          break;
        case kInForce:
          KeepInForce(in);
          break;
        case kCallCount:
          break;
      }
    }
  }

 private:
  // A request of any bytes; what does not parse counts as far as it does.
  template <typename Request>
  static Request Read(Input& in) {
    Request request;
    (void)request.ParsePartialFromString(in.Text());
    return request;
  }

  static void CheckRefusal(const absl::Status& status) {
    FUZZ_CHECK(absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status) ||
                   absl::IsAborted(status),
               status.ToString());
    FUZZ_CHECK(!ToGrpc(status).error_message().empty(), "a refusal without a message");
  }

  std::optional<v1::PolicyStatus> GetPolicy(const v1::GetPolicyRequest& request) {
    const auto response = reader_.Own(request);
    if (!response.ok()) {
      CheckRefusal(response.status());
      return std::nullopt;
    }
    CheckMessage(*response, false);
    FUZZ_CHECK(CheckPolicy(response->status().proposed().policy()).ok(), response->ShortDebugString());
    return response->status();
  }

  // What the service does on its thread, once.
  void SetPolicy(const v1::SetPolicyRequest& request, Input& in) {
    v1::GetPolicyRequest get;
    get.set_job(request.job());
    std::optional<v1::PolicyStatus> present = GetPolicy(get);
    if (!present) return;
    if (in.Coin()) present->mutable_job()->set_state(v1::STATE_RUNNING);  // of those here one alone runs
    const std::string caller = in.Text();
    const auto proposal = CheckProposal(request, *present, caller);
    if (!proposal.ok()) return CheckRefusal(proposal.status());
    FUZZ_CHECK(CheckPolicy(proposal->policy).ok(), proposal->policy.ShortDebugString());
    const auto proposed = desk_.Propose(*proposal, absl::InfiniteFuture());
    if (!proposed.ok()) return CheckRefusal(proposed.status());
    FUZZ_CHECK(proposed->version() > present->proposed().version(), proposed->ShortDebugString());
    CheckMessage(*proposed, true);
    const link::PolicyFrame frame = desk_.FrameFor(proposal->job, proposal->launch_id);
    FUZZ_CHECK(static_cast<int64_t>(frame.version) == proposed->version(), "another than was proposed is offered");
    FUZZ_CHECK(frame.content_hash == link::PolicyContentHash(frame), "another content than the hash tells");
    job_ = proposal->job;
  }

  // Some run's page claims to have a version in force.
  void KeepInForce(Input& in) {
    PolicyInForce in_force{};
    in_force.job = job_;
    in_force.launch_id = in.Bytes(in.Below(8) + 1);
    in_force.version = in.Below(8) + 1;
    if (in_force.launch_id.empty()) return;
    const absl::Status kept = desk_.Keep(in_force, absl::InfiniteFuture());
    FUZZ_CHECK(kept.ok() || absl::IsInvalidArgument(kept), kept.ToString());  // a launch's id that no page's check lets through
    desk_.Refresh();
    JobKey later = job_;
    ++later.attempt;
    CheckMessage(desk_.Latest(later, in_force.launch_id), true);
  }

  void Diagnose(const v1::DiagnoseRequest& request) {
    auto part = AnswerEvidence(request, "node-a", &store_, node_.registry);
    if (!part.ok()) return CheckRefusal(part.status());
    CheckMessage(*part, true);
    const absl::Status own = CheckEvidence(*part);
    FUZZ_CHECK(own.ok(), "another daemon would not take it: " + own.ToString());
    Parts<v1::DiagnoseResponse> parts;
    parts.parts.push_back({0, *std::move(part)});
    parts.nodes.resize(1);
    parts.nodes[0].set_answered(true);
    const v1::DiagnoseResponse answer = Judge(std::move(parts), request.scope() != v1::SCOPE_NODE, request.evidence());
    FUZZ_CHECK(answer.verdicts_size() > 0, "no verdict");
    CheckMessage(answer, true);
  }

  void PlanSync(const v1::PlanSyncRequest& request) {
    int answers = 0;
    std::make_shared<PlanAsking>(request, nullptr, &node_.registry, &tokens_,
                                 [&answers](absl::StatusOr<v1::PlanSyncResponse> plan) {
                                   ++answers;
                                   if (!plan.ok()) return CheckRefusal(plan.status());
                                   CheckMessage(*plan, true);
                                   if (plan->policy().empty()) return;
                                   std::vector<std::string> words;
                                   for (const absl::string_view word : absl::StrSplit(plan->policy(), ' '))
                                     words.emplace_back(word);
                                   const auto policy = cli::ParsePolicy(words);
                                   FUZZ_CHECK(policy.ok(), plan->policy() + ": " + policy.status().ToString());
                                 })
        ->Start(absl::InfiniteFuture());
    FUZZ_CHECK(answers == 1, std::to_string(answers) + " answers");
  }

  void ListNodes() {
    v1::ListNodesResponse own = NodeItself(node_.registry.ListJobs(), "0.1", node_.clock.Now());
    FUZZ_CHECK(CheckNode(own).ok(), own.ShortDebugString());
    SetStore(&store_, &own);
    CheckMessage(own, true);
  }

  FixedNode& node_;
  MemoryStore store_;
  PolicyDesk desk_;
  const PolicyReader reader_{&node_.registry, &desk_, nullptr, "node-a"};
  const PageTokens tokens_{7};
  JobKey job_{};
};

std::string Ask(Call call, const google::protobuf::Message& request) {
  return SeedBuilder().Byte(call).Text(request.SerializeAsString());
}

v1::PlanSyncRequest PlanOfNumbers() {
  v1::PlanSyncRequest plan;
  v1::PlanNumbers& numbers = *plan.mutable_numbers();
  numbers.set_rank_count(8);
  numbers.set_accumulate(4);
  numbers.set_parameter_count(1'000'000);
  numbers.set_compute_seconds(0.1);
  numbers.set_link_bytes_per_second(1e9);
  plan.add_what_ifs()->set_accumulate(8);
  plan.mutable_what_ifs(0)->set_sync_seconds(0.01);
  return plan;
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const char* job : {"job", "job-5", "1000/13131313131313131313131313131313", "none", "11", "1000/job"}) {
    v1::GetPolicyRequest get;
    get.set_job(job);
    v1::DiagnoseRequest diagnose;
    diagnose.set_job(job);
    diagnose.set_evidence(true);
    v1::PlanSyncRequest plan;
    plan.set_job(job);
    seeds.push_back(Ask(kGetPolicy, get) + Ask(kDiagnose, diagnose) + Ask(kPlanSync, plan));
    v1::SetPolicyRequest set;
    set.set_job(job);
    set.set_actor("somebody");
    set.mutable_policy()->set_sync_mode(v1::SYNC_MODE_WINDOW);
    set.mutable_policy()->set_bucket_bytes(1 << 20);
    set.mutable_update_mask()->add_paths("sync_mode");
    set.mutable_update_mask()->add_paths("bucket_bytes");
    std::string both;
    for (const char* caller : {"", "a caller\n"}) both += SeedBuilder().Raw(Ask(kSetPolicy, set)).Byte(1).Text(caller);
    seeds.push_back(both + std::string(SeedBuilder().Byte(kInForce).Byte(4).Raw("abcd").Byte(2)));
  }
  seeds.push_back(Ask(kPlanSync, PlanOfNumbers()));
  seeds.push_back(SeedBuilder().Byte(kListNodes));
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const node = new gradgate::fuzz::FixedNode;
  gradgate::fuzz::Input in(data, size);
  gradgate::fuzz::Caller(*node).Run(in);
  return 0;
}
