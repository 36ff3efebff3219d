#include "tests/client/fake_daemon.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace gradgate::testing {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(2);  // gRPC's synchronous handlers are not told of a cancellation

// The page of `all` that starts where `token` says.
template <typename T>
grpc::Status Page(const std::vector<T>& all, const std::string& token, size_t page_size,
                  google::protobuf::RepeatedPtrField<T>* page, std::string* next_token) {
  size_t from = 0;
  if (!token.empty() && (!absl::SimpleAtoi(token, &from) || from > all.size())) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, absl::StrCat("page_token ", token));
  }
  const size_t to = std::min(all.size(), from + page_size);
  for (size_t i = from; i < to; ++i) *page->Add() = all[i];
  if (to < all.size()) *next_token = absl::StrCat(to);
  return grpc::Status::OK;
}

}  // namespace

TempDirectory::TempDirectory() {
  path_ = std::filesystem::temp_directory_path() / "gradgate-client-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) std::abort();
}

TempDirectory::~TempDirectory() { std::filesystem::remove_all(path_); }

FakeDaemon::FakeDaemon() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(target(), grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) std::abort();
}

FakeDaemon::~FakeDaemon() { Stop(); }

void FakeDaemon::Stop() {
  stopping_ = true;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

grpc::Status FakeDaemon::Begin(grpc::ServerContext* context, const std::string* job) {
  const absl::Time deadline = absl::Now() + kLongestWait;
  while (hang_ && !stopping_ && !context->IsCancelled() && absl::Now() < deadline) absl::SleepFor(kPoll);
  if (!fail.ok()) return fail;
  if (job == nullptr || stats.count(*job) > 0) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job");
}

grpc::Status FakeDaemon::ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                                  v1::ListJobsResponse* response) {
  ++list_jobs_calls;
  last_scope = request->scope();
  if (grpc::Status status = Begin(context, nullptr); !status.ok()) return status;
  const int size = std::min(request->page_size() == 0 ? 100 : request->page_size(), max_page_size);
  return Page(jobs, request->page_token(), size, response->mutable_jobs(), response->mutable_next_page_token());
}

grpc::Status FakeDaemon::GetJobStats(grpc::ServerContext* context, const v1::GetJobStatsRequest* request,
                                     v1::GetJobStatsResponse* response) {
  last_scope = request->scope();
  if (grpc::Status status = Begin(context, &request->job()); !status.ok()) return status;
  *response = stats.at(request->job());
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ListWindows(grpc::ServerContext* context, const v1::ListWindowsRequest* request,
                                     v1::ListWindowsResponse* response) {
  last_scope = request->scope();
  const auto page = static_cast<size_t>(list_windows_calls++);
  if (page < page_nodes.size()) *response->add_nodes() = page_nodes[page];
  if (grpc::Status status = Begin(context, &request->job()); !status.ok()) return status;
  std::vector<v1::Window> ordered = windows;
  if (request->newest_first()) std::reverse(ordered.begin(), ordered.end());
  const int size = std::min(request->page_size() == 0 ? 100 : request->page_size(), max_page_size);
  const grpc::Status status = Page(ordered, repeat_page_token ? "" : request->page_token(), size, response->mutable_windows(),
                                   response->mutable_next_page_token());
  return status;
}

grpc::Status FakeDaemon::ListNodes(grpc::ServerContext* context, const v1::ListNodesRequest* request,
                                   v1::ListNodesResponse* response) {
  last_scope = request->scope();
  if (grpc::Status status = Begin(context, nullptr); !status.ok()) return status;
  *response = nodes;
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::WatchWindows(grpc::ServerContext* context, const v1::WatchWindowsRequest* request,
                                      grpc::ServerWriter<v1::WatchWindowsResponse>* writer) {
  last_scope = request->scope();
  watch_first_index = request->has_first_window_index() ? request->first_window_index() : -1;
  if (grpc::Status status = Begin(context, &request->job()); !status.ok()) return status;
  for (const auto& message : watch_script) writer->Write(message);
  if (after_script == AfterScript::kHold) {
    const absl::Time deadline = absl::Now() + kLongestWait;
    while (!stopping_ && absl::Now() < deadline && !release_.WaitForNotificationWithTimeout(kPoll)) {
      if (!context->IsCancelled()) continue;
      ++watch_calls_ended_by_client;
      return grpc::Status::CANCELLED;
    }
    for (const auto& message : after_hold) writer->Write(message);
  }
  return grpc::Status::OK;
}

}  // namespace gradgate::testing
