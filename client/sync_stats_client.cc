#include "client/sync_stats_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/channel.h"
#include "client/errors.h"
#include "client/target.h"
#include "client/watch_stream.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/client_context.h"

namespace gradgate::client {
namespace {

constexpr int64_t kMaxPageSize = 1000;  // what the service allows
constexpr size_t kMaxNamesInError = 10;

int32_t PageSize(int64_t limit, int64_t have) {
  return static_cast<int32_t>(limit == 0 ? kMaxPageSize : std::min(kMaxPageSize, limit - have));
}

absl::Status CheckLimit(int64_t limit) {
  if (limit >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("limit ", limit, " is negative; 0 means all"));
}

absl::Status CheckJob(absl::string_view job) {
  if (!job.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("job name is empty; give a job name, a run id, or its first 6 digits");
}

}  // namespace

class SyncStatsClient::Impl {
 public:
  Impl(Target target, absl::Duration timeout, const std::shared_ptr<grpc::Channel>& channel)
      : target_(std::move(target)), timeout_(timeout), stub_(v1::SyncStatsService::NewStub(channel)) {}

  absl::Time Deadline() const { return absl::Now() + timeout_; }
  absl::Duration timeout() const { return timeout_; }
  const Target& target() const { return target_; }
  v1::SyncStatsService::Stub& stub() const { return *stub_; }

  absl::Status Explained(const grpc::Status& status) const { return Explain(status, target_, timeout_); }

  // One unary call, by pointer to the stub's method.
  template <typename Method, typename Request, typename Response>
  grpc::Status Call(Method method, const Request& request, absl::Time deadline, Response* response,
                    Cancellation* cancel = nullptr) const {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    const Cancellation::Scope scope(cancel, &context);
    return (stub_.get()->*method)(&context, request, response);
  }

  // Asks page after page until there are no more, or `limit` items are there. `items` gives the repeated field of a page.
  template <typename Response, typename Method, typename Request, typename Items>
  grpc::Status AllPages(Method method, Request request, int64_t limit, Items items, Response* all) const {
    const absl::Time deadline = Deadline();
    do {
      request.set_page_size(PageSize(limit, items(*all)->size()));
      Response page;
      if (grpc::Status status = Call(method, request, deadline, &page); !status.ok()) return status;
      if (!page.next_page_token().empty() && page.next_page_token() == request.page_token()) {
        return grpc::Status(grpc::StatusCode::INTERNAL, "answered a page that is its own successor");
      }
      request.set_page_token(page.next_page_token());
      items(*all)->MergeFrom(*items(page));
    } while (!request.page_token().empty() && (limit == 0 || items(*all)->size() < limit));
    if (limit > 0 && items(*all)->size() > limit) {  // a daemon that gave more than was asked for
      items(*all)->DeleteSubrange(static_cast<int>(limit), static_cast<int>(items(*all)->size() - limit));
    }
    all->set_next_page_token(request.page_token());
    return grpc::Status::OK;
  }

  // As Explained; where the job is not there, says which are.
  absl::Status ExplainedForJob(const grpc::Status& status, absl::string_view job) const {
    if (status.error_code() != grpc::StatusCode::NOT_FOUND) return Explained(status);
    return absl::NotFoundError(absl::StrCat("no job \"", job, "\" at ", target_.address, "; ", KnownJobs()));
  }

  // A question that a living daemon answers at once.
  absl::Status Probe(Cancellation* cancel) const {
    v1::ListJobsRequest request;
    request.set_page_size(1);
    v1::ListJobsResponse response;
    return Explained(Call(&v1::SyncStatsService::Stub::ListJobs, request, Deadline(), &response, cancel));
  }

 private:
  std::string KnownJobs() const {
    v1::ListJobsResponse response;
    const grpc::Status status = Call(&v1::SyncStatsService::Stub::ListJobs, v1::ListJobsRequest(), Deadline(), &response);
    if (!status.ok()) return absl::StrCat("which jobs there are could not be asked: ", status.error_message());
    std::vector<std::string> names;
    for (const v1::Job& job : response.jobs()) {
      if (std::find(names.begin(), names.end(), job.job_name()) == names.end()) names.push_back(job.job_name());
    }
    if (names.empty()) return "it knows no job yet";
    const bool more = names.size() > kMaxNamesInError || !response.next_page_token().empty();
    names.resize(std::min(names.size(), kMaxNamesInError));
    return absl::StrCat("known jobs: ", absl::StrJoin(names, ", "), more ? " and more" : "");
  }

  const Target target_;
  const absl::Duration timeout_;
  const std::unique_ptr<v1::SyncStatsService::Stub> stub_;
};

absl::StatusOr<std::unique_ptr<SyncStatsClient>> SyncStatsClient::Create(const ClientOptions& options) {
  if (options.timeout <= absl::ZeroDuration() || options.timeout == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("timeout ", absl::FormatDuration(options.timeout),
                                                   " is not positive and finite; every call has a deadline"));
  }
  auto target = options.target.empty() ? DefaultTarget() : ParseTarget(options.target);
  if (!target.ok()) return target.status();
  const auto channel = OpenChannel(*target, options.tls);
  if (!channel.ok()) return channel.status();
  return std::unique_ptr<SyncStatsClient>(
      new SyncStatsClient(std::make_unique<const Impl>(*std::move(target), options.timeout, *channel)));
}

SyncStatsClient::SyncStatsClient(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
SyncStatsClient::~SyncStatsClient() = default;

const std::string& SyncStatsClient::address() const { return impl_->target().address; }

absl::StatusOr<v1::ListJobsResponse> SyncStatsClient::ListJobs(int64_t limit) const {
  if (absl::Status status = CheckLimit(limit); !status.ok()) return status;
  v1::ListJobsResponse all;
  const grpc::Status status = impl_->AllPages(
      &v1::SyncStatsService::Stub::ListJobs, v1::ListJobsRequest(), limit,
      [](v1::ListJobsResponse& page) { return page.mutable_jobs(); }, &all);
  if (!status.ok()) return impl_->Explained(status);
  return all;
}

absl::StatusOr<v1::GetJobStatsResponse> SyncStatsClient::GetJobStats(absl::string_view job) const {
  if (absl::Status status = CheckJob(job); !status.ok()) return status;
  v1::GetJobStatsRequest request;
  request.set_job(std::string(job));
  v1::GetJobStatsResponse response;
  const grpc::Status status = impl_->Call(&v1::SyncStatsService::Stub::GetJobStats, request, impl_->Deadline(), &response);
  if (!status.ok()) return impl_->ExplainedForJob(status, job);
  return response;
}

absl::StatusOr<v1::ListWindowsResponse> SyncStatsClient::ListWindows(absl::string_view job,
                                                                     const ListWindowsOptions& options) const {
  if (absl::Status status = CheckJob(job); !status.ok()) return status;
  if (absl::Status status = CheckLimit(options.limit); !status.ok()) return status;
  v1::ListWindowsRequest request;
  request.set_job(std::string(job));
  request.set_newest_first(options.newest_first);
  v1::ListWindowsResponse all;
  const grpc::Status status = impl_->AllPages(
      &v1::SyncStatsService::Stub::ListWindows, request, options.limit,
      [](v1::ListWindowsResponse& page) { return page.mutable_windows(); }, &all);
  if (!status.ok()) return impl_->ExplainedForJob(status, job);
  return all;
}

absl::Status SyncStatsClient::WatchWindows(absl::string_view job, const WatchOptions& options,
                                           absl::FunctionRef<bool(const v1::WatchWindowsResponse&)> on_message) const {
  if (absl::Status status = CheckJob(job); !status.ok()) return status;
  v1::WatchWindowsRequest request;
  request.set_job(std::string(job));
  if (options.first_window_index.has_value()) request.set_first_window_index(*options.first_window_index);

  const absl::Time end = absl::Now() + options.limit;
  WatchStream stream(impl_->stub(), request, end);
  const Cancellation::Scope scope(options.cancel, &stream.context());
  const auto failed = [&](absl::Status status, bool limit_reached) {
    if (options.cancel != nullptr && options.cancel->cancelled()) {
      return absl::CancelledError(absl::StrCat("watch of job \"", job, "\" was cancelled"));
    }
    if (!limit_reached) return status;
    return absl::DeadlineExceededError(
        absl::StrCat("watch of job \"", job, "\" reached its limit of ", absl::FormatDuration(options.limit)));
  };
  v1::WatchWindowsResponse message;
  for (;;) {
    switch (stream.Next(impl_->Deadline(), &message)) {
      case WatchStream::Event::kMessage:
        if (!on_message(message) || message.has_ended_job()) return absl::OkStatus();
        break;
      case WatchStream::Event::kIdle:
        // Windows may be minutes apart; that the daemon lives is asked instead.
        if (absl::Status status = impl_->Probe(options.cancel); !status.ok()) {
          return failed(status, absl::Now() >= end);
        }
        break;
      case WatchStream::Event::kEnd:
        if (!stream.status().ok()) {
          // Only the limit is this call's deadline.
          const bool limit_reached = stream.status().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
          return failed(impl_->ExplainedForJob(stream.status(), job), limit_reached);
        }
        return absl::UnavailableError(absl::StrCat("gradgated at ", address(), " ended the watch of job \"", job,
                                                   "\" before the job ended; it is being stopped"));
    }
  }
}

}  // namespace gradgate::client
