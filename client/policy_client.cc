#include "client/policy_client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/watch_stream.h"

namespace gradgate::client {
namespace {

using Stub = v1::PolicyService::Stub;
using Stream = WatchStream<v1::WatchPolicyResponse>;

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

absl::Status Cancelled(absl::string_view job) {
  return absl::CancelledError(absl::StrCat("watch of job \"", job, "\" was cancelled"));
}

}  // namespace

PolicyClient::PolicyClient(std::shared_ptr<const Connection> connection)
    : connection_(std::move(connection)), stub_(v1::PolicyService::NewStub(connection_->channel())) {}

absl::StatusOr<v1::GetPolicyResponse> PolicyClient::Get(const v1::GetPolicyRequest& request, Cancellation* cancel) const {
  return connection_->CallForJob(*stub_, &Stub::GetPolicy, request, cancel);
}

absl::StatusOr<v1::SetPolicyResponse> PolicyClient::Set(const v1::SetPolicyRequest& request) const {
  return connection_->CallForJob(*stub_, &Stub::SetPolicy, request);
}

absl::Status PolicyClient::Follow(absl::string_view job, absl::Duration limit, Cancellation* cancel,
                                  absl::FunctionRef<bool(const v1::PolicyStatus&)> on_status) const {
  const absl::Time end = absl::Now() + limit;
  v1::GetPolicyRequest request;
  request.set_job(std::string(job));
  Cancellation never;
  Cancellation& cancellation = cancel != nullptr ? *cancel : never;
  for (absl::Duration pause = kFirstPause;; pause = std::min(pause * 1.5, kLongestPause)) {
    const absl::StatusOr<v1::GetPolicyResponse> answer = Get(request, &cancellation);
    if (cancellation.cancelled()) return Cancelled(job);
    if (!answer.ok()) return answer.status();
    if (!on_status(answer->status()) || answer->status().job().state() != v1::STATE_RUNNING) return absl::OkStatus();
    if (cancellation.Await(std::min(pause, end - absl::Now()))) return Cancelled(job);
    if (absl::Now() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("the policy of job \"", job, "\" was followed for its limit of ", absl::FormatDuration(limit)));
    }
  }
}

absl::Status PolicyClient::Watch(absl::string_view job, Cancellation* cancel,
                                 absl::FunctionRef<bool(const v1::PolicyStatus&)> on_status) const {
  if (absl::Status status = Connection::CheckJob(job); !status.ok()) return status;
  v1::WatchPolicyRequest request;
  request.set_job(std::string(job));
  Stream stream([&](auto* context, auto* queue) { return stub_->PrepareAsyncWatchPolicy(context, request, queue); },
                absl::InfiniteFuture());
  const Cancellation::Scope scope(cancel, &stream.context());
  const auto failed = [&](absl::Status status) -> absl::Status {
    return cancel != nullptr && cancel->cancelled() ? Cancelled(job) : status;
  };
  v1::WatchPolicyResponse message;
  for (;;) {
    switch (stream.Next(connection_->Deadline(), &message)) {
      case Stream::Event::kMessage:
        if (!on_status(message.status())) return absl::OkStatus();
        break;
      case Stream::Event::kIdle: {
        // Nothing has to change for long; that the daemon lives is asked instead.
        v1::GetPolicyRequest probe;
        probe.set_job(request.job());
        probe.set_scope(v1::SCOPE_NODE);
        v1::GetPolicyResponse ignored;
        const grpc::Status alive = Connection::Call(*stub_, &Stub::GetPolicy, probe, connection_->Deadline(), &ignored, cancel);
        if (!alive.ok() && alive.error_code() != grpc::StatusCode::NOT_FOUND) return failed(connection_->Explained(alive));
        break;
      }
      case Stream::Event::kEnd:
        if (!stream.status().ok()) return failed(connection_->ExplainedForJob(stream.status(), job));
        return absl::OkStatus();
    }
  }
}

}  // namespace gradgate::client
