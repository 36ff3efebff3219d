// What other daemons answer: of each kind of question a part or more that are valid at first and then changed by any bytes,
// checked, merged and judged as the daemon does it, and shown as gradgatectl does; and answers that it shows without anybody
// having checked them.

#include <optional>

#include "client/cli/doctor_view.h"
#include "client/cli/job_view.h"
#include "client/cli/json.h"
#include "client/cli/node_view.h"
#include "client/cli/plan_view.h"
#include "client/cli/policy_view.h"
#include "client/cli/window_view.h"
#include "client/planner/answer.h"
#include "daemon/node/text_check.h"
#include "daemon/planner/measure.h"
#include "daemon/policy/policy_content.h"
#include "daemon/policy/policy_state.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/diagnosis_answer.h"
#include "daemon/rpc/job_choice.h"
#include "daemon/rpc/merge_jobs.h"
#include "daemon/rpc/merge_nodes.h"
#include "daemon/rpc/merge_windows.h"
#include "daemon/rpc/policy_reader.h"
#include "daemon/rpc/presentable.h"
#include "daemon/rpc/stats_answers.h"
#include "daemon/rpc/watched_job.h"
#include "tests/fuzz/answers.h"
#include "tests/fuzz/fixed_node.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace gradgate::fuzz {
namespace {

constexpr size_t kMaxParts = 3;
constexpr int kMaxWatched = 5;

enum Kind : unsigned { kJobs, kStats, kWindows, kNodes, kPolicy, kEvidence, kPlan, kWatch, kText, kKindCount };

// Answers that a good daemon gives, made once.
struct Good {
  Good() {
    FixedNode node;
    const PageTokens tokens(7);
    v1::ListJobsRequest list;
    jobs = *AnswerListJobs(list, tokens, node.registry);
    v1::GetJobStatsRequest of_job;
    of_job.set_job("11111111111111111111111111111111");
    stats = *AnswerGetJobStats(of_job, node.registry);
    v1::ListWindowsRequest of_windows;
    of_windows.set_job("job-4");
    windows = *AnswerListWindows(of_windows, tokens, node.registry);
    nodes = NodeItself(node.registry.ListJobs(), "0.1", node.clock.Now());
    v1::DiagnoseRequest of_evidence;
    of_evidence.set_job(of_job.job());
    evidence = *AnswerEvidence(of_evidence, "", nullptr, node.registry);
    v1::PolicyStatus& status = *policy.mutable_status();
    *status.mutable_job() = stats.job();
    for (const v1::RankStats& rank : stats.ranks()) status.add_ranks()->set_rank(rank.rank());
    status.mutable_proposed()->set_version(3);
    status.mutable_ranks(0)->set_state(v1::STATE_RUNNING);
    status.mutable_ranks(0)->set_staged_version(3);
    status.set_store("memory");
  }

  v1::ListJobsResponse jobs;
  v1::GetJobStatsResponse stats;
  v1::ListWindowsResponse windows;
  v1::ListNodesResponse nodes;
  v1::DiagnoseResponse evidence;
  v1::GetPolicyResponse policy;
};

class Asker {
 public:
  explicit Asker(const Good& good) : good_(good) {}

  void Run(Input& in) {
    checked_ = in.Coin();
    width_ = in.Below(3) * 40;
    switch (static_cast<Kind>(in.Below(kKindCount))) {
      case kJobs:
        return Jobs(in);
      case kStats:
        return Stats(in);
      case kWindows:
        return Windows(in);
      case kNodes:
        return Nodes(in);
      case kPolicy:
        return Policy(in);
      case kEvidence:
        return Evidence(in);
      case kPlan:
        return Plan(in);
      case kWatch:
        return Watch(in);
      case kText:
        return Text(in);
      case kKindCount:
        return;
    }
  }

 private:
  // A good answer, or none of it, with what the bytes say put over it.
  template <typename Response>
  static Response Changed(const Response& good, Input& in) {
    Response response;
    if (in.Coin()) response = good;
    const std::string bytes = in.Text();
    Response change;
    if (change.ParsePartialFromString(bytes)) {
      if (in.Coin()) {
        response.MergeFrom(change);
      } else {
        Overlay(change, &response);
      }
    }
    return response;
  }

  // Puts the first entry of each list of `change` over the first there, instead of behind all.
  static void Overlay(const google::protobuf::Message& change, google::protobuf::Message* response) {
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    change.GetReflection()->ListFields(change, &fields);
    for (const auto* field : fields) {
      const bool is_message = field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE;
      if (!is_message) continue;
      const auto& of_change = *change.GetReflection();
      const auto& of_response = *response->GetReflection();
      if (!field->is_repeated()) {
        Overlay(of_change.GetMessage(change, field), of_response.MutableMessage(response, field));
      } else if (of_response.FieldSize(*response, field) > 0) {
        const auto& first = of_change.GetRepeatedMessage(change, field, 0);
        of_response.MutableRepeatedMessage(response, field, 0)->MergeFrom(first);
      }
    }
  }

  // Those that pass `check`, of the nodes that gave them; the others did not answer.
  template <typename Response, typename Check>
  Parts<Response> Gather(const Response& good, Check check, Input& in) {
    Parts<Response> parts;
    const size_t count = in.Below(kMaxParts) + 1;
    for (size_t i = 0; i < count; ++i) {
      Response response = Changed(good, in);
      v1::NodeAnswer& node = parts.nodes.emplace_back();
      node.set_node_name("node-" + std::to_string(i));
      node.set_answered(true);
      const absl::Status status = check(response);
      if (status.ok()) {
        parts.parts.push_back({i, std::move(response)});
      } else {
        FUZZ_CHECK(IsPrintableUtf8(status.message()), std::string(status.message()));
        node.set_answered(false);
        node.set_error(std::string(status.message()));
      }
    }
    return parts;
  }

  // As a question about one job leaves them: of one job, or none.
  template <typename Response, typename Job>
  static void KeepOneJob(Job job, Parts<Response>& parts) {
    std::vector<JobClaim> claims;
    for (const auto& part : parts.parts) claims.push_back({part.node, job(part.answer)});
    if (claims.empty()) return;
    const auto choice = ChooseJob(claims.front().job.job_name(), claims);
    if (!choice.ok()) {
      CheckShown(std::string(choice.status().message()));
      parts.parts.clear();
      return;
    }
    for (const auto& [node, note] : choice->strays) AddNote(note, parts.nodes[node]);
    std::vector<Part<Response>> kept;
    for (auto& part : parts.parts) {
      if (SameJob(choice->job, job(part.answer))) kept.push_back(std::move(part));
    }
    parts.parts = std::move(kept);
    FUZZ_CHECK(!parts.parts.empty(), "a job was chosen that nobody has");
  }

  // What people and programs are shown. Messages that cannot be told as JSON are an error, no more.
  template <typename View>
  void Show(const google::protobuf::Message& answer, View view) {
    CheckShown(view(absl::FromUnixSeconds(1'800'000'000)));
    (void)cli::ToJson(answer, cli::JsonStyle::kOneLine);
  }

  static void CheckNodes(const google::protobuf::RepeatedPtrField<v1::NodeAnswer>& nodes, size_t count) {
    FUZZ_CHECK(static_cast<size_t>(nodes.size()) == count, std::to_string(nodes.size()) + " nodes of " + std::to_string(count));
    for (const v1::NodeAnswer& node : nodes) {
      FUZZ_CHECK(IsPrintableUtf8(node.note()) && IsPrintableUtf8(node.error()), node.ShortDebugString());
    }
  }

  void Jobs(Input& in) {
    const auto view = [this](const auto& answer) {
      return [this, &answer](absl::Time now) { return cli::JobsView(answer, now, width_); };
    };
    if (!checked_) {
      const auto answer = Changed(good_.jobs, in);
      return Show(answer, view(answer));
    }
    v1::ListJobsRequest request;
    request.set_page_size(static_cast<int32_t>(in.Below(5)));
    const auto parts = Gather(good_.jobs, CheckJobList, in);
    size_t asked = 0;
    std::set<std::string> seen;
    do {  // all pages: each job once
      const auto merged = MergeJobLists(parts, request, tokens_);
      FUZZ_CHECK(merged.ok(), merged.status().ToString());
      if (request.page_size() > 0) FUZZ_CHECK(merged->jobs_size() <= request.page_size(), merged->ShortDebugString());
      for (const v1::Job& job : merged->jobs()) {
        const std::string key =
            job.job_name() + "\n" + job.run_id() + "\n" + std::to_string(job.user_id()) + "\n" + std::to_string(job.attempt());
        FUZZ_CHECK(seen.insert(key).second, "on two pages: " + key);
      }
      CheckNodes(merged->nodes(), parts.nodes.size());
      Show(*merged, view(*merged));
      request.set_page_token(merged->next_page_token());
    } while (!request.page_token().empty() && ++asked < 8);
  }

  void Stats(Input& in) {
    const auto view = [this](const auto& answer) {
      return [this, &answer](absl::Time now) { return cli::StatusView(answer, now, width_); };
    };
    if (!checked_) {
      const auto answer = Changed(good_.stats, in);
      return Show(answer, view(answer));
    }
    auto parts = Gather(good_.stats, CheckJobStats, in);
    KeepOneJob([](const auto& answer) { return answer.job(); }, parts);
    if (parts.parts.empty()) return;
    const size_t nodes = parts.nodes.size();
    const v1::GetJobStatsResponse merged = MergeJobStats(std::move(parts));
    int last = -1;
    for (const v1::RankStats& rank : merged.ranks()) {
      FUZZ_CHECK(rank.rank() > last, "ranks twice, or out of order: " + merged.ShortDebugString());
      last = rank.rank();
    }
    CheckMessage(merged.totals(), true);
    for (const auto& sum : merged.collectives()) FUZZ_CHECK(sum.total_duration().seconds() >= 0, sum.ShortDebugString());
    CheckNodes(merged.nodes(), nodes);
    Show(merged, view(merged));
  }

  void Windows(Input& in) {
    const auto view = [this](const auto& answer) {
      return [this, &answer](absl::Time) { return cli::WindowsView(answer, width_); };
    };
    if (!checked_) {
      const auto answer = Changed(good_.windows, in);
      return Show(answer, view(answer));
    }
    v1::ListWindowsRequest request;
    request.set_job("job-4");
    request.set_page_size(static_cast<int32_t>(in.Below(5)));
    request.set_newest_first(in.Coin());
    if (in.Coin()) request.set_from_window_index(in.Byte());
    const auto asked = PartOfWindowsPage(request, tokens_);
    FUZZ_CHECK(asked.ok(), asked.status().ToString());
    auto parts = Gather(
        good_.windows, [&](const auto& part) { return CheckWindows(part, *asked); }, in);
    KeepOneJob([](const auto& answer) { return answer.job(); }, parts);
    if (parts.parts.empty()) return;
    const size_t nodes = parts.nodes.size();
    const auto merged = MergeWindows(std::move(parts), request, tokens_);
    FUZZ_CHECK(merged.ok(), merged.status().ToString());
    CheckOrder(*merged, request.newest_first());
    if (request.page_size() > 0) FUZZ_CHECK(merged->windows_size() <= request.page_size(), merged->ShortDebugString());
    CheckNodes(merged->nodes(), nodes);
    Show(*merged, view(*merged));
    if (merged->next_page_token().empty()) return;
    request.set_page_token(merged->next_page_token());
    FUZZ_CHECK(PartOfWindowsPage(request, tokens_).ok(), "a token that is not taken back");
  }

  static void CheckOrder(const v1::ListWindowsResponse& answer, bool newest_first) {
    for (int i = 1; i < answer.windows_size(); ++i) {
      const int64_t before = answer.windows(i - 1).window_index(), after = answer.windows(i).window_index();
      FUZZ_CHECK(newest_first ? before > after : before < after, "windows out of order");
    }
    for (const v1::Window& window : answer.windows()) {
      int last = -1;
      for (const v1::RankWindow& rank : window.ranks()) {
        FUZZ_CHECK(rank.rank() > last, "ranks twice, or out of order");
        last = rank.rank();
      }
    }
  }

  void Nodes(Input& in) {
    const auto view = [this](const auto& answer) {
      return [this, &answer](absl::Time now) { return cli::NodesView(answer, now, width_); };
    };
    if (!checked_) {
      const auto answer = Changed(good_.nodes, in);
      return Show(answer, view(answer));
    }
    const auto parts = Gather(good_.nodes, CheckNode, in);
    const v1::ListNodesResponse merged = MergeNodes(parts, {});
    FUZZ_CHECK(static_cast<size_t>(merged.nodes_size()) == parts.nodes.size(), merged.ShortDebugString());
    for (int i = 0; i < merged.nodes_size(); ++i) {
      const std::string& name = parts.nodes[static_cast<size_t>(i)].node_name();
      FUZZ_CHECK(merged.nodes(i).answer().node_name() == name, "somebody answers for " + name);
    }
    Show(merged, view(merged));
  }

  void Policy(Input& in) {
    const auto view = [this](const auto& answer) {
      return [this, &answer](absl::Time now) {
        return cli::PolicyView(answer.status(), now, width_) + cli::PolicyLine(answer.status());
      };
    };
    if (!checked_) {
      const auto answer = Changed(good_.policy, in);
      return Show(answer, view(answer));
    }
    auto parts = Gather(good_.policy, CheckPolicyPart, in);
    KeepOneJob([](const auto& answer) { return answer.status().job(); }, parts);
    if (parts.parts.empty()) return;
    const size_t nodes = parts.nodes.size();
    const auto merged = MergePolicyParts(std::move(parts));
    FUZZ_CHECK(merged.ok(), merged.status().ToString());
    const v1::PolicyStatus& status = merged->status();
    FUZZ_CHECK(CheckPolicy(status.proposed().policy()).ok(), status.ShortDebugString());
    FUZZ_CHECK(IsPrintableUtf8(status.detail()), status.detail());
    int last = -1;
    for (const v1::RankPolicy& rank : status.ranks()) {
      FUZZ_CHECK(rank.rank() > last, "ranks twice, or out of order: " + status.ShortDebugString());
      FUZZ_CHECK(IsPrintableUtf8(rank.node_name()), rank.node_name());
      last = rank.rank();
    }
    CheckNodes(status.nodes(), nodes);
    Show(*merged, view(*merged));
  }

  void Evidence(Input& in) {
    const auto view = [this](const auto& answer) {
      return [this, &answer](absl::Time now) { return cli::DoctorView(answer, now, width_ + 20); };
    };
    if (!checked_) {
      const auto answer = Changed(good_.evidence, in);
      return Show(answer, view(answer));
    }
    auto parts = Gather(good_.evidence, CheckEvidence, in);
    KeepOneJob([](const auto& answer) { return answer.job(); }, parts);
    if (parts.parts.empty()) return;
    const size_t nodes = parts.nodes.size();
    const v1::DiagnoseResponse merged = Judge(std::move(parts), in.Coin(), in.Coin());
    FUZZ_CHECK(merged.verdicts_size() > 0, "no verdict");
    for (const v1::Verdict& verdict : merged.verdicts()) CheckMessage(verdict, true);
    CheckNodes(merged.nodes(), nodes);
    Show(merged, view(merged));
  }

  void Plan(Input& in) {
    const auto view = [this](const auto& answer) {
      return [this, &answer](absl::Time) { return cli::PlanView(answer, width_); };
    };
    if (!checked_) {
      const auto answer = Changed(v1::PlanSyncResponse(), in);
      return Show(answer, view(answer));
    }
    v1::PlanSyncRequest request = Changed(v1::PlanSyncRequest(), in);
    request.set_job("job");
    auto parts = Gather(good_.stats, CheckJobStats, in);
    KeepOneJob([](const auto& answer) { return answer.job(); }, parts);
    if (parts.parts.empty()) return;
    const v1::GetJobStatsResponse stats = MergeJobStats(std::move(parts));
    v1::ListWindowsRequest asked;
    const auto windows = Gather(
        good_.windows, [&](const auto& part) { return CheckWindows(part, asked); }, in);
    std::vector<v1::Window> latest;
    for (const auto& part : windows.parts)
      latest.insert(latest.end(), part.answer.windows().begin(), part.answer.windows().end());
    const auto plan = planner::PlanJob(request, stats, latest);
    if (!plan.ok()) {
      FUZZ_CHECK(absl::IsInvalidArgument(plan.status()) || absl::IsFailedPrecondition(plan.status()), plan.status().ToString());
      return;
    }
    CheckMessage(plan->plan(), true);
    Show(*plan, view(*plan));
  }

  // A watch over all nodes, as its answers come.
  void Watch(Input& in) {
    const auto first = in.Coin() ? std::optional<int64_t>(in.Byte()) : std::nullopt;
    cli::WatchView view(width_);
    if (!checked_) {
      CheckShown(view.Header());
      for (int i = 0; i < kMaxWatched && !in.empty(); ++i) {
        const auto message = Changed(v1::WatchWindowsResponse(), in);
        Show(message, [&](absl::Time now) { return view.Next(message, now); });
      }
      return;
    }
    WatchedJob watched("job-4", first);
    absl::Time now = absl::FromUnixSeconds(1'800'000'000);
    for (int i = 0; i < kMaxWatched && !in.empty(); ++i) {
      const v1::ListWindowsRequest question = watched.Question();
      const auto asked = PartOfWindowsPage(question, tokens_);
      FUZZ_CHECK(asked.ok(), asked.status().ToString());
      now += absl::Seconds(in.Below(40));
      auto parts = Gather(
          good_.windows, [&](const auto& part) { return CheckWindows(part, *asked); }, in);
      KeepOneJob([](const auto& answer) { return answer.job(); }, parts);
      absl::StatusOr<v1::ListWindowsResponse> answer = absl::NotFoundError("no such job");
      if (!parts.parts.empty()) answer = MergeWindows(std::move(parts), question, tokens_);
      const WatchedJob::News news = watched.Take(std::move(answer), now);
      for (const auto& message : news.messages) {
        Show(message, [&](absl::Time shown) { return view.Next(message, shown); });
      }
      if (news.end) return;
    }
  }

  static void Text(Input& in) {
    const std::string text = in.Rest();
    const std::string shown = Presentable(text);
    FUZZ_CHECK(IsPrintableUtf8(shown) && shown.size() <= 300, shown);
    if (text.size() <= 300 && IsPrintableUtf8(text)) FUZZ_CHECK(shown == text, text);
  }

  const Good& good_;
  const PageTokens tokens_{7};
  bool checked_ = false;
  size_t width_ = 0;
};

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const Good good;
  const auto part = [](const google::protobuf::Message& change, bool whole) {
    return std::string(SeedBuilder().Byte(1).Text(change.SerializeAsString().substr(0, 255)).Byte(whole ? 1 : 0));
  };
  v1::GetJobStatsResponse rank;
  rank.add_ranks()->set_rank(5);
  rank.mutable_ranks(0)->set_state(v1::STATE_RUNNING);
  rank.mutable_ranks(0)->mutable_totals()->set_item_count(INT64_MAX);
  v1::ListWindowsResponse window;
  window.add_windows()->set_window_index(77);
  window.mutable_windows(0)->add_ranks()->set_rank(3);
  window.set_next_page_token("more");
  v1::DiagnoseResponse evidence;
  auto& of_rank = *evidence.add_evidence()->add_ranks();
  evidence.mutable_evidence(0)->set_store_error("no store");
  of_rank.set_process_state("T");
  of_rank.mutable_progress()->set_in_flight_count(1);
  of_rank.mutable_progress()->mutable_idle()->set_seconds(100);
  of_rank.add_windows()->set_window_index(3);
  v1::GetPolicyResponse policy;
  policy.mutable_status()->mutable_proposed()->set_version(9);
  policy.mutable_status()->add_ranks()->set_rejected_version(9);
  policy.mutable_status()->mutable_ranks(0)->set_rejection(v1::POLICY_REJECTION_HOOK_HELD);
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = good.jobs.jobs(0);
  jobs.mutable_jobs(0)->set_job_name("other");
  v1::ListNodesResponse node;
  node.add_nodes()->set_version("7");
  for (unsigned checked = 0; checked < 2; ++checked) {
    for (const bool whole : {false, true}) {
      const auto head = [&](Kind kind) { return SeedBuilder().Byte(checked).Byte(whole ? 2 : 0).Byte(kind); };
      const std::string page = checked != 0 ? std::string(1, '\3') : "", two = checked != 0 ? std::string(1, '\1') : "";
      const std::string order = checked != 0 ? std::string("\3\0\0", 3) : "";
      seeds.push_back(head(kJobs).Raw(page + two + part(jobs, whole) + part(jobs, !whole)));
      seeds.push_back(head(kStats).Raw(two + part(rank, whole) + part(rank, !whole)));
      seeds.push_back(head(kWindows).Raw(order + two + part(window, true) + part(window, whole)));
      seeds.push_back(head(kNodes).Raw(two + part(node, false) + part(node, whole)));
      seeds.push_back(head(kPolicy).Raw(two + part(policy, false) + part(policy, whole)));
      seeds.push_back(head(kEvidence).Raw(two + part(evidence, false) + part(evidence, whole)).Byte(1).Byte(1));
      seeds.push_back(head(kPlan).Raw(part(v1::PlanSyncRequest(), true) + two + part(rank, whole) + part(rank, false) + two +
                                      part(window, true) + part(window, true)));
      const std::string answer = std::string(1, '\1') + two + part(window, true) + part(window, whole);
      seeds.push_back(head(kWatch).Byte(whole).Raw(answer + answer + answer));
    }
  }
  seeds.push_back(SeedBuilder().Byte(1).Byte(0).Byte(kText).Raw(std::string(299, 'x') + "\xc3\xa9 and more"));
  return seeds;
}

}  // namespace gradgate::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const good = new gradgate::fuzz::Good;
  gradgate::fuzz::Input in(data, size);
  gradgate::fuzz::Asker(*good).Run(in);
  return 0;
}
