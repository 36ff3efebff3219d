#include "daemon/rpc/stats_service.h"

#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/job_call.h"
#include "daemon/rpc/job_watch.h"
#include "daemon/rpc/merge_jobs.h"
#include "daemon/rpc/merge_nodes.h"
#include "daemon/rpc/refused_stream.h"
#include "daemon/rpc/stats_answers.h"
#include "daemon/rpc/stats_questions.h"

namespace gradgate {
namespace {

std::string Method(absl::string_view name) { return absl::StrCat("/", v1::SyncStatsService::service_full_name(), "/", name); }

using RefusedWatch = RefusedStream<v1::WatchWindowsResponse>;

}  // namespace

// All nodes' jobs are put in order here, so each node gives its first page, and this one all it has.
grpc::ServerUnaryReactor* StatsService::ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                                 v1::ListJobsResponse* response) {
  JobQuestion<v1::ListJobsRequest, v1::ListJobsResponse> question;
  question.method = Method("ListJobs");
  v1::ListJobsRequest part = *request;
  if (request->scope() == v1::SCOPE_NODE) {
    question.own = [this](const auto& asked) { return AnswerListJobs(asked, tokens_, *registry_); };
    question.merge = OwnPart<v1::ListJobsResponse>;
  } else {
    part.set_page_size(kMaxPageSize);
    part.clear_page_token();
    question.own = [this, whole = *request](const auto&) -> absl::StatusOr<v1::ListJobsResponse> {
      if (const auto size = CheckPageSize(whole.page_size()); !size.ok()) return size.status();
      v1::ListJobsResponse own;
      for (const JobView& job : registry_->ListJobs()) *own.add_jobs() = ToMessage(job);
      return own;
    };
    question.check = CheckJobList;
    question.merge = [this, whole = *request](auto parts) { return MergeJobLists(std::move(parts), whole, tokens_); };
  }
  return AnswerForJob(context, part, response, peers_, std::move(question));
}

grpc::ServerUnaryReactor* StatsService::GetJobStats(grpc::CallbackServerContext* context, const v1::GetJobStatsRequest* request,
                                                    v1::GetJobStatsResponse* response) {
  return AnswerForJob(context, *request, response, peers_, StatsQuestion(registry_));
}

grpc::ServerUnaryReactor* StatsService::ListWindows(grpc::CallbackServerContext* context, const v1::ListWindowsRequest* request,
                                                    v1::ListWindowsResponse* response) {
  absl::StatusOr<WindowsQuestion> asked = QuestionOfWindows(*request, &tokens_, registry_);
  if (asked.ok()) return AnswerForJob(context, asked->part, response, peers_, std::move(asked->question));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(asked.status()));
  return reactor;
}

grpc::ServerUnaryReactor* StatsService::ListNodes(grpc::CallbackServerContext* context, const v1::ListNodesRequest* request,
                                                  v1::ListNodesResponse* response) {
  JobQuestion<v1::ListNodesRequest, v1::ListNodesResponse> question;
  question.method = Method("ListNodes");
  question.own = [this](const auto&) -> absl::StatusOr<v1::ListNodesResponse> {
    return NodeItself(registry_->ListJobs(), facts_.version, facts_.start_time);
  };
  question.check = CheckNode;
  question.merge = [this](auto parts) -> absl::StatusOr<v1::ListNodesResponse> {
    v1::ListNodesResponse merged = MergeNodes(std::move(parts), peers_->Known());
    SetStore(store_, &merged);
    return merged;
  };
  return AnswerForJob(context, *request, response, peers_, std::move(question));
}

grpc::ServerWriteReactor<v1::WatchWindowsResponse>* StatsService::WatchWindows(grpc::CallbackServerContext*,
                                                                               const v1::WatchWindowsRequest* request) {
  std::optional<uint64_t> first;
  if (request->has_first_window_index()) {
    if (request->first_window_index() < 0) {
      return new RefusedWatch(absl::InvalidArgumentError(
          absl::StrCat("first_window_index is ", request->first_window_index(), ", must not be negative")));
    }
    first = static_cast<uint64_t>(request->first_window_index());
  }
  const bool whole = request->scope() != v1::SCOPE_NODE;
  if (whole && store_ != nullptr && store_->Health().shared) {
    const auto index = first ? std::optional(static_cast<int64_t>(*first)) : std::nullopt;
    return Watched(std::make_shared<JobWatch>(hub_, registry_, peers_, &tokens_, WatchedJob(request->job(), index)));
  }
  absl::StatusOr<WatchPosition> position = registry_->StartWatch(request->job(), first);
  if (!position.ok()) return new RefusedWatch(position.status());
  WindowWatch::Nodes nodes;
  if (whole) TellOfMissingRanks(request->job(), &nodes);
  return Watched(std::make_shared<WindowWatch>(hub_, registry_, *position, std::move(nodes)));
}

// Its own node is all that this daemon can answer for.
void StatsService::TellOfMissingRanks(const std::string& job, WindowWatch::Nodes* nodes) {
  const absl::StatusOr<JobView> view = registry_->ViewJob(job);
  if (!view.ok() || peers_ == nullptr) return;
  const auto& counts = view->rank_counts;
  if (std::accumulate(counts.begin(), counts.end(), uint64_t{0}) < view->world_size) *nodes->Add() = peers_->Self();
}

template <typename Watch>
grpc::ServerWriteReactor<v1::WatchWindowsResponse>* StatsService::Watched(std::shared_ptr<Watch> watch) {
  if (absl::Status status = hub_->Add(watch); !status.ok()) return new RefusedWatch(status);
  watch->Begin();
  return watch.get();
}

}  // namespace gradgate
