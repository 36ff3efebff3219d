#include "client/sync_stats_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/connection.h"
#include "client/watch_stream.h"
#include "gradgate/v1/stats.grpc.pb.h"

namespace gradgate::client {
namespace {

using Stream = WatchStream<v1::WatchWindowsResponse>;

constexpr int64_t kMaxPageSize = 1000;  // what the service allows

int32_t PageSize(int64_t limit, int64_t have) {
  return static_cast<int32_t>(limit == 0 ? kMaxPageSize : std::min(kMaxPageSize, limit - have));
}

absl::Status CheckLimit(int64_t limit) {
  if (limit >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("limit ", limit, " is negative; 0 means all"));
}

// Adds what the nodes did for one page to what they did for those before.
template <typename Nodes>
void AddNodes(const Nodes& page, Nodes* all) {
  for (const v1::NodeAnswer& node : page) {
    const auto same = std::find_if(all->begin(), all->end(), [&](const v1::NodeAnswer& other) {
      return other.node_name() == node.node_name() && other.address() == node.address();
    });
    if (same == all->end()) {
      *all->Add() = node;
    } else if (same->answered()) {
      *same = node;
    }
  }
}

// What a page says beside its items.
void AddRest(const v1::ListJobsResponse& page, v1::ListJobsResponse* all) { AddNodes(page.nodes(), all->mutable_nodes()); }
void AddRest(const v1::ListWindowsResponse& page, v1::ListWindowsResponse* all) {
  AddNodes(page.nodes(), all->mutable_nodes());
  if (page.has_job()) *all->mutable_job() = page.job();
  all->set_closed_below_index(page.closed_below_index());
}

}  // namespace

class SyncStatsClient::Impl {
 public:
  explicit Impl(std::shared_ptr<const Connection> connection)
      : connection_(std::move(connection)), stub_(v1::SyncStatsService::NewStub(connection_->channel())) {}

  const Connection& connection() const { return *connection_; }
  absl::Time Deadline() const { return connection_->Deadline(); }
  v1::SyncStatsService::Stub& stub() const { return *stub_; }

  // Asks page after page until there are no more, or `limit` items are there. `items` gives the repeated field of a page.
  template <typename Response, typename Method, typename Request, typename Items>
  grpc::Status AllPages(Method method, Request request, int64_t limit, Items items, Response* all,
                        Cancellation* cancel = nullptr) const {
    const absl::Time deadline = Deadline();
    do {
      request.set_page_size(PageSize(limit, items(*all)->size()));
      Response page;
      if (grpc::Status status = Connection::Call(*stub_, method, request, deadline, &page, cancel); !status.ok()) {
        return status;
      }
      if (!page.next_page_token().empty() && page.next_page_token() == request.page_token()) {
        return grpc::Status(grpc::StatusCode::INTERNAL, "answered a page that is its own successor");
      }
      request.set_page_token(page.next_page_token());
      items(*all)->MergeFrom(*items(page));
      AddRest(page, all);
    } while (!request.page_token().empty() && (limit == 0 || items(*all)->size() < limit));
    if (limit > 0 && items(*all)->size() > limit) {  // a daemon that gave more than was asked for
      items(*all)->DeleteSubrange(static_cast<int>(limit), static_cast<int>(items(*all)->size() - limit));
    }
    all->set_next_page_token(request.page_token());
    return grpc::Status::OK;
  }

  // A question that a living daemon answers at once.
  absl::Status Probe(Cancellation* cancel) const {
    v1::ListJobsRequest request;
    request.set_page_size(1);
    request.set_scope(v1::SCOPE_NODE);
    v1::ListJobsResponse response;
    return connection_->Explained(
        Connection::Call(*stub_, &v1::SyncStatsService::Stub::ListJobs, request, Deadline(), &response, cancel));
  }

 private:
  const std::shared_ptr<const Connection> connection_;
  const std::unique_ptr<v1::SyncStatsService::Stub> stub_;
};

absl::StatusOr<std::unique_ptr<SyncStatsClient>> SyncStatsClient::Create(const ClientOptions& options) {
  auto connection = Connection::Create(options);
  if (!connection.ok()) return connection.status();
  return Over(*std::move(connection));
}

std::unique_ptr<SyncStatsClient> SyncStatsClient::Over(std::shared_ptr<const Connection> connection) {
  return std::unique_ptr<SyncStatsClient>(new SyncStatsClient(std::make_unique<const Impl>(std::move(connection))));
}

SyncStatsClient::SyncStatsClient(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
SyncStatsClient::~SyncStatsClient() = default;

const std::string& SyncStatsClient::address() const { return impl_->connection().target().address; }

absl::StatusOr<v1::ListJobsResponse> SyncStatsClient::ListJobs(int64_t limit, v1::Scope scope, Cancellation* cancel) const {
  if (absl::Status status = CheckLimit(limit); !status.ok()) return status;
  v1::ListJobsRequest request;
  request.set_scope(scope);
  v1::ListJobsResponse all;
  const grpc::Status status = impl_->AllPages(
      &v1::SyncStatsService::Stub::ListJobs, request, limit, [](v1::ListJobsResponse& page) { return page.mutable_jobs(); },
      &all, cancel);
  if (!status.ok()) return impl_->connection().Explained(status);
  return all;
}

absl::StatusOr<v1::GetJobStatsResponse> SyncStatsClient::GetJobStats(absl::string_view job, v1::Scope scope,
                                                                     Cancellation* cancel) const {
  v1::GetJobStatsRequest request;
  request.set_scope(scope);
  request.set_job(std::string(job));
  return impl_->connection().CallForJob(impl_->stub(), &v1::SyncStatsService::Stub::GetJobStats, request, cancel);
}

absl::StatusOr<v1::ListWindowsResponse> SyncStatsClient::ListWindows(absl::string_view job,
                                                                     const ListWindowsOptions& options) const {
  if (absl::Status status = Connection::CheckJob(job); !status.ok()) return status;
  if (absl::Status status = CheckLimit(options.limit); !status.ok()) return status;
  v1::ListWindowsRequest request;
  request.set_job(std::string(job));
  request.set_newest_first(options.newest_first);
  request.set_scope(options.scope);
  v1::ListWindowsResponse all;
  const grpc::Status status = impl_->AllPages(
      &v1::SyncStatsService::Stub::ListWindows, request, options.limit,
      [](v1::ListWindowsResponse& page) { return page.mutable_windows(); }, &all);
  if (!status.ok()) return impl_->connection().ExplainedForJob(status, job);
  return all;
}

absl::StatusOr<v1::ListNodesResponse> SyncStatsClient::ListNodes(v1::Scope scope) const {
  v1::ListNodesRequest request;
  request.set_scope(scope);
  v1::ListNodesResponse response;
  const grpc::Status status =
      Connection::Call(impl_->stub(), &v1::SyncStatsService::Stub::ListNodes, request, impl_->Deadline(), &response);
  if (!status.ok()) return impl_->connection().Explained(status);
  return response;
}

absl::Status SyncStatsClient::WatchWindows(absl::string_view job, const WatchOptions& options,
                                           absl::FunctionRef<bool(const v1::WatchWindowsResponse&)> on_message) const {
  if (absl::Status status = Connection::CheckJob(job); !status.ok()) return status;
  v1::WatchWindowsRequest request;
  request.set_job(std::string(job));
  request.set_scope(options.scope);
  if (options.first_window_index.has_value()) request.set_first_window_index(*options.first_window_index);

  const absl::Time end = absl::Now() + options.limit;
  Stream stream([&](auto* context, auto* queue) { return impl_->stub().PrepareAsyncWatchWindows(context, request, queue); },
                end);
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
      case Stream::Event::kMessage:
        if (!on_message(message) || message.has_ended_job()) return absl::OkStatus();
        break;
      case Stream::Event::kIdle:
        // Windows may be minutes apart; that the daemon lives is asked instead.
        if (absl::Status status = impl_->Probe(options.cancel); !status.ok()) {
          return failed(status, absl::Now() >= end);
        }
        break;
      case Stream::Event::kEnd:
        if (!stream.status().ok()) {
          // Only the limit is this call's deadline.
          const bool limit_reached = stream.status().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
          return failed(impl_->connection().ExplainedForJob(stream.status(), job), limit_reached);
        }
        return absl::UnavailableError(absl::StrCat("gradgated at ", address(), " ended the watch of job \"", job,
                                                   "\" before the job ended; it is being stopped"));
    }
  }
}

}  // namespace gradgate::client
