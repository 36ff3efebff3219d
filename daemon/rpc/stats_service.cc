#include "daemon/rpc/stats_service.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/rpc/convert.h"

namespace gradgate {
namespace {

constexpr uint64_t kJobsList = 0;

// A list of windows: which job, and in which direction. Job ids begin at 1.
uint64_t WindowsList(uint64_t job_id, bool newest_first) { return job_id << 1 | (newest_first ? 1 : 0); }

template <typename Response>
grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, absl::StatusOr<Response> answer, Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status status = answer.status();
  if (status.ok()) *response = *std::move(answer);
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// A stream that ends before it began.
class RefusedWatch final : public grpc::ServerWriteReactor<v1::WatchWindowsResponse> {
 public:
  explicit RefusedWatch(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

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
  absl::StatusOr<uint64_t> job_id = registry.FindJob(request.job());
  if (!job_id.ok()) return job_id.status();
  const uint64_t list = WindowsList(*job_id, request.newest_first());
  std::optional<uint64_t> from_index;
  if (!request.page_token().empty()) {
    absl::StatusOr<PageStart> start = tokens.Parse(request.page_token(), list);
    if (!start.ok()) return start.status();
    from_index = start->second;
  }
  // One more than asked for tells whether there is a next page, and where it begins.
  absl::StatusOr<std::vector<WindowView>> windows =
      registry.ListWindows(*job_id, from_index, request.newest_first(), *size + 1);
  if (!windows.ok()) return windows.status();
  v1::ListWindowsResponse response;
  if (windows->size() > *size) {
    response.set_next_page_token(tokens.Make(PageStart{list, 0, windows->back().window_index}));
    windows->pop_back();
  }
  for (const WindowView& window : *windows) *response.add_windows() = ToMessage(window);
  return response;
}

grpc::ServerUnaryReactor* StatsService::ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                                 v1::ListJobsResponse* response) {
  return Finish(context, AnswerListJobs(*request, tokens_, *registry_), response);
}

grpc::ServerUnaryReactor* StatsService::GetJobStats(grpc::CallbackServerContext* context, const v1::GetJobStatsRequest* request,
                                                    v1::GetJobStatsResponse* response) {
  return Finish(context, AnswerGetJobStats(*request, *registry_), response);
}

grpc::ServerUnaryReactor* StatsService::ListWindows(grpc::CallbackServerContext* context, const v1::ListWindowsRequest* request,
                                                    v1::ListWindowsResponse* response) {
  return Finish(context, AnswerListWindows(*request, tokens_, *registry_), response);
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
