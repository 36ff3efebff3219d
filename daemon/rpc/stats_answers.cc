#include "daemon/rpc/stats_answers.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/fields.h"
#include "daemon/rpc/merge_windows.h"

namespace gradgate {
namespace {

constexpr uint64_t kJobsList = 0;

// A list of windows: which job, and in which direction. Job ids begin at 1.
uint64_t WindowsList(uint64_t job_id, bool newest_first) { return job_id << 1 | (newest_first ? 1 : 0); }

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
  response.set_closed_below_index(Signed(job->closed_by_all));
  response.set_closed_by_running_index(Signed(job->closed_by_running));
  if (windows->size() > *size) {
    response.set_next_page_token(tokens.Make(PageStart{list, 0, windows->back().window_index}));
    windows->pop_back();
  }
  for (const WindowView& window : *windows) *response.add_windows() = ToMessage(window);
  return response;
}

}  // namespace gradgate
