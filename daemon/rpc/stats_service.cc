#include "daemon/rpc/stats_service.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/job_call.h"
#include "daemon/rpc/merge_jobs.h"
#include "daemon/rpc/merge_nodes.h"
#include "daemon/rpc/merge_windows.h"
#include "daemon/rpc/refused_stream.h"

namespace gradgate {
namespace {

constexpr uint64_t kJobsList = 0;

// A list of windows: which job, and in which direction. Job ids begin at 1.
uint64_t WindowsList(uint64_t job_id, bool newest_first) { return job_id << 1 | (newest_first ? 1 : 0); }

std::string Method(absl::string_view name) { return absl::StrCat("/", v1::SyncStatsService::service_full_name(), "/", name); }

// The answer of one node as it is, with whose it is.
template <typename Response>
absl::StatusOr<Response> OwnPart(Parts<Response> parts) {
  Response response = std::move(parts.parts.front().answer);
  for (v1::NodeAnswer& node : parts.nodes) *response.add_nodes() = std::move(node);
  return response;
}

using RefusedWatch = RefusedStream<v1::WatchWindowsResponse>;

}  // namespace

absl::StatusOr<v1::ListJobsResponse> AnswerListJobs(const v1::ListJobsRequest& request, const PageTokens& tokens,
                                                    Registry& registry) {
  absl::StatusOr<size_t> size = CheckPageSize(request.page_size());
  if (!size.ok()) return size.status();
  std::vector<JobView> jobs = registry.ListJobs();
  auto at = jobs.begin();
  if (!request.page_token().empty()) {
    absl::StatusOr<PageStart> start = tokens.Parse(request.page_token(), kJobsList);
    if (!start.ok()) return start.status();
    // Behind the last job of the page before, whether or not that one is still there.
    JobView last;
    last.start_time = absl::FromUnixNanos(start->first);
    last.id = start->second;
    at = std::find_if(jobs.begin(), jobs.end(), [&](const JobView& job) { return StartedAfter(last, job); });
  }
  v1::ListJobsResponse response;
  for (; at != jobs.end() && static_cast<size_t>(response.jobs_size()) < *size; ++at) *response.add_jobs() = ToMessage(*at);
  if (at != jobs.end()) {
    const JobView& last = *std::prev(at);
    response.set_next_page_token(tokens.Make(PageStart{kJobsList, absl::ToUnixNanos(last.start_time), last.id}));
  }
  return response;
}

absl::StatusOr<v1::GetJobStatsResponse> AnswerGetJobStats(const v1::GetJobStatsRequest& request, Registry& registry) {
  absl::StatusOr<JobStatsView> stats = registry.GetJobStats(request.job());
  if (!stats.ok()) return stats.status();
  return ToMessage(*stats);
}

absl::StatusOr<v1::ListWindowsResponse> AnswerListWindows(const v1::ListWindowsRequest& request, const PageTokens& tokens,
                                                          Registry& registry) {
  absl::StatusOr<size_t> size = CheckPageSize(request.page_size());
  if (!size.ok()) return size.status();
  absl::StatusOr<JobView> job = registry.ViewJob(request.job());
  if (!job.ok()) return job.status();
  *size = WindowsPerPage(*size, job->world_size);
  const uint64_t list = WindowsList(job->id, request.newest_first());
  std::optional<uint64_t> from_index;
  if (request.has_from_window_index()) {
    if (request.from_window_index() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("from_window_index is ", request.from_window_index(), ", must not be negative"));
    }
    from_index = static_cast<uint64_t>(request.from_window_index());
  }
  if (!request.page_token().empty()) {
    absl::StatusOr<PageStart> start = tokens.Parse(request.page_token(), list);
    if (!start.ok()) return start.status();
    from_index = start->second;
  }
  // One more than asked for tells whether there is a next page, and where it begins.
  absl::StatusOr<std::vector<WindowView>> windows =
      registry.ListWindows(job->id, from_index, request.newest_first(), *size + 1);
  if (!windows.ok()) return windows.status();
  v1::ListWindowsResponse response;
  *response.mutable_job() = ToMessage(*job);
  response.set_closed_below_index(static_cast<int64_t>(std::min<uint64_t>(job->closed_by_all, INT64_MAX)));
  if (windows->size() > *size) {
    response.set_next_page_token(tokens.Make(PageStart{list, 0, windows->back().window_index}));
    windows->pop_back();
  }
  for (const WindowView& window : *windows) *response.add_windows() = ToMessage(window);
  return response;
}

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
  JobQuestion<v1::GetJobStatsRequest, v1::GetJobStatsResponse> question;
  question.method = Method("GetJobStats");
  question.own = [this](const auto& asked) { return AnswerGetJobStats(asked, *registry_); };
  question.job = [](const auto& part) -> const v1::Job& { return part.job(); };
  question.check = CheckJobStats;
  question.merge = MergeJobStats;
  return AnswerForJob(context, *request, response, peers_, std::move(question));
}

grpc::ServerUnaryReactor* StatsService::ListWindows(grpc::CallbackServerContext* context, const v1::ListWindowsRequest* request,
                                                    v1::ListWindowsResponse* response) {
  JobQuestion<v1::ListWindowsRequest, v1::ListWindowsResponse> question;
  question.method = Method("ListWindows");
  question.own = [this](const auto& asked) { return AnswerListWindows(asked, tokens_, *registry_); };
  question.job = [](const auto& part) -> const v1::Job& { return part.job(); };
  if (request->scope() == v1::SCOPE_NODE) {
    question.merge = OwnPart<v1::ListWindowsResponse>;
    return AnswerForJob(context, *request, response, peers_, std::move(question));
  }
  absl::StatusOr<v1::ListWindowsRequest> part = PartOfWindowsPage(*request, tokens_);
  if (!part.ok()) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(part.status()));
    return reactor;
  }
  question.check = [asked = *part](const auto& answer) { return CheckWindows(answer, asked); };
  question.merge = [this, whole = *request](auto parts) { return MergeWindows(std::move(parts), whole, tokens_); };
  return AnswerForJob(context, *part, response, peers_, std::move(question));
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
  absl::StatusOr<WatchPosition> position = registry_->StartWatch(request->job(), first);
  if (!position.ok()) return new RefusedWatch(position.status());
  absl::StatusOr<std::shared_ptr<WindowWatch>> watch = hub_->Add(*position);
  if (!watch.ok()) return new RefusedWatch(watch.status());
  (*watch)->Wake();
  return watch->get();
}

}  // namespace gradgate
