#include "client/connection.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/channel.h"
#include "client/errors.h"
#include "gradgate/v1/stats.grpc.pb.h"

namespace gradgate::client {
namespace {

constexpr size_t kMaxNamesInError = 10;

}  // namespace

Connection::Connection(Target target, const ClientOptions& options, std::shared_ptr<grpc::Channel> channel)
    : target_(std::move(target)), tls_(options.tls), timeout_(options.timeout), channel_(std::move(channel)) {}

absl::StatusOr<std::shared_ptr<const Connection>> Connection::Create(const ClientOptions& options) {
  if (options.timeout <= absl::ZeroDuration() || options.timeout == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("timeout ", absl::FormatDuration(options.timeout),
                                                   " is not positive and finite; every call has a deadline"));
  }
  auto target = options.target.empty() ? DefaultTarget() : ParseTarget(options.target);
  if (!target.ok()) return target.status();
  auto channel = OpenChannel(*target, options.tls);
  if (!channel.ok()) return channel.status();
  return std::shared_ptr<const Connection>(new Connection(*std::move(target), options, *std::move(channel)));
}

absl::Status Connection::Explained(const grpc::Status& status) const { return Explain(status, target_, tls_, timeout_); }

absl::Status Connection::ExplainedForJob(const grpc::Status& status, absl::string_view job) const {
  if (status.error_code() != grpc::StatusCode::NOT_FOUND) return Explained(status);
  return absl::NotFoundError(absl::StrCat("no job \"", job, "\" at ", target_.address, "; ", KnownJobs()));
}

absl::Status Connection::CheckJob(absl::string_view job) {
  if (!job.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("job name is empty; give a job name, a run id, or its first 6 digits");
}

std::string Connection::KnownJobs() const {
  const auto stub = v1::SyncStatsService::NewStub(channel_);
  v1::ListJobsResponse response;
  const grpc::Status status = Call(*stub, &v1::SyncStatsService::Stub::ListJobs, v1::ListJobsRequest(), Deadline(), &response);
  if (!status.ok()) return absl::StrCat("which jobs there are could not be asked: ", status.error_message());
  std::vector<std::string> names;
  for (const v1::Job& job : response.jobs()) {
    if (std::find(names.begin(), names.end(), job.job_name()) == names.end()) names.push_back(job.job_name());
  }
  std::string silent;
  for (const v1::NodeAnswer& node : response.nodes()) {
    if (!node.answered()) absl::StrAppend(&silent, silent.empty() ? "; no answer from " : ", ", node.node_name());
  }
  if (names.empty()) return absl::StrCat("it knows no job yet", silent);
  const bool more = names.size() > kMaxNamesInError || !response.next_page_token().empty();
  names.resize(std::min(names.size(), kMaxNamesInError));
  return absl::StrCat("known jobs: ", absl::StrJoin(names, ", "), more ? " and more" : "", silent);
}

}  // namespace gradgate::client
