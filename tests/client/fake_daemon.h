// A SyncStatsService in this process, on a Unix socket in a directory of its own, that answers what a test tells it to.
//
// Set the public fields before the first call; they are read by the server's threads. Behaviours that change while calls run
// are methods. Whatever a handler waits for, it waits no longer than kLongestWait.

#ifndef GRADGATE_TESTS_CLIENT_FAKE_DAEMON_H_
#define GRADGATE_TESTS_CLIENT_FAKE_DAEMON_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/server.h"

namespace gradgate::testing {

inline constexpr absl::Duration kLongestWait = absl::Seconds(30);

// A directory that is removed with its contents.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class FakeDaemon final : public v1::SyncStatsService::Service {
 public:
  enum class AfterScript { kEnd, kHold };

  FakeDaemon();
  ~FakeDaemon() override;

  const std::string& directory() const { return directory_.path(); }
  std::string socket_path() const { return directory() + "/api.sock"; }
  std::string target() const { return "unix:" + socket_path(); }

  // Ends all calls and frees the socket.
  void Stop();

  // From now on no handler answers until it is cancelled, the daemon stopped, or Unhang.
  void Hang() { hang_ = true; }
  void Unhang() { hang_ = false; }

  // Lets watches in AfterScript::kHold go on to send `after_hold` and end.
  void Release() { release_.Notify(); }

  v1::ListNodesResponse nodes;
  std::map<std::string, v1::GetJobStatsResponse> stats;  // by the name that is asked for
  std::vector<v1::Job> jobs;
  std::vector<v1::Window> windows;         // of every job; oldest first
  std::vector<v1::NodeAnswer> page_nodes;  // of the first page, the second page…: who was asked
  int max_page_size = 1000;                // gives at most so many, whatever is asked
  bool repeat_page_token = false;          // breaks the protocol: each page is its own successor
  std::vector<v1::WatchWindowsResponse> watch_script;
  AfterScript after_script = AfterScript::kEnd;
  std::vector<v1::WatchWindowsResponse> after_hold;
  grpc::Status fail;  // every handler's answer, unless OK

  std::atomic<int> last_scope = -1;  // of the latest request that has one
  std::atomic<int> list_jobs_calls = 0;
  std::atomic<int> list_windows_calls = 0;
  std::atomic<int> watch_calls_ended_by_client = 0;
  std::atomic<int64_t> watch_first_index = -1;  // of the latest request; -1: unset

  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*, v1::ListJobsResponse*) override;
  grpc::Status GetJobStats(grpc::ServerContext*, const v1::GetJobStatsRequest*, v1::GetJobStatsResponse*) override;
  grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*, v1::ListNodesResponse*) override;
  grpc::Status ListWindows(grpc::ServerContext*, const v1::ListWindowsRequest*, v1::ListWindowsResponse*) override;
  grpc::Status WatchWindows(grpc::ServerContext*, const v1::WatchWindowsRequest*,
                            grpc::ServerWriter<v1::WatchWindowsResponse>*) override;

 private:
  grpc::Status Begin(grpc::ServerContext* context, const std::string* job);

  TempDirectory directory_;
  std::atomic<bool> hang_ = false;
  std::atomic<bool> stopping_ = false;
  absl::Notification release_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gradgate::testing

#endif  // GRADGATE_TESTS_CLIENT_FAKE_DAEMON_H_
