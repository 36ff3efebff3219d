// A PolicyService in this process, on a Unix socket in a directory of its own, that answers what a test tells it to.
//
// Set the public fields before the first call, but for `hold`; they are read by the server's threads.

#ifndef GRADGATE_TESTS_CLIENT_FAKE_POLICY_DAEMON_H_
#define GRADGATE_TESTS_CLIENT_FAKE_POLICY_DAEMON_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gradgate/v1/policy.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "tests/client/fake_daemon.h"

namespace gradgate::testing {

class FakePolicyDaemon final : public v1::PolicyService::Service {
 public:
  FakePolicyDaemon() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + directory() + "/api.sock", grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) std::abort();
  }
  ~FakePolicyDaemon() override { Stop(); }

  const std::string& directory() const { return directory_.path(); }

  // Ends all calls.
  void Stop() {
    stopping_ = true;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  v1::PolicyStatus status;                 // what Get and Set answer
  std::vector<v1::PolicyStatus> followed;  // what Get answers after a Set, one after the other, the last again and again
  std::vector<v1::PolicyStatus> script;    // what a watch sends
  std::atomic<bool> hold = false;          // and sends no more while this is set
  std::vector<v1::PolicyStatus> after_hold;
  grpc::Status fail;  // Get's and Set's, unless OK
  grpc::Status watch_end;

  grpc::Status follow_fail;  // Get's, after all of `followed`, unless OK

  std::atomic<int> watch_calls = 0;
  std::atomic<int> probes = 0;
  v1::SetPolicyRequest set_request;  // the last
  std::string followed_job;          // the last asked for after a Set

  grpc::Status GetPolicy(grpc::ServerContext*, const v1::GetPolicyRequest* request, v1::GetPolicyResponse* response) override {
    if (request->scope() == v1::SCOPE_NODE) ++probes;
    *response->mutable_status() = status;
    if (set_request.job().empty() || followed.empty()) return fail;
    followed_job = request->job();
    const size_t at = follow_calls++;
    if (at >= followed.size() && !follow_fail.ok()) return follow_fail;
    *response->mutable_status() = followed[std::min(at, followed.size() - 1)];
    return grpc::Status::OK;
  }
  grpc::Status SetPolicy(grpc::ServerContext*, const v1::SetPolicyRequest* request, v1::SetPolicyResponse* response) override {
    set_request = *request;
    follow_calls = 0;
    *response->mutable_status() = status;
    return fail;
  }
  grpc::Status WatchPolicy(grpc::ServerContext* context, const v1::WatchPolicyRequest*,
                           grpc::ServerWriter<v1::WatchPolicyResponse>* writer) override {
    ++watch_calls;
    Send(script, writer);
    const absl::Time end = absl::Now() + kLongestWait;
    while (hold && !stopping_ && !context->IsCancelled() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(2));
    Send(after_hold, writer);
    return stopping_ ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it stops") : watch_end;
  }

 private:
  static void Send(const std::vector<v1::PolicyStatus>& all, grpc::ServerWriter<v1::WatchPolicyResponse>* writer) {
    for (const v1::PolicyStatus& one : all) {
      v1::WatchPolicyResponse message;
      *message.mutable_status() = one;
      writer->Write(message);
    }
  }

  std::atomic<size_t> follow_calls = 0;
  TempDirectory directory_;
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_CLIENT_FAKE_POLICY_DAEMON_H_
