// Asks a gradgated what trainers have done, on all nodes that its store knows: gradgate.v1.SyncStatsService with deadlines and
// errors that say what to do.
//
// A client is made once and may be used from any number of threads. It connects at the first call, and again by itself after
// the daemon was away. Every method blocks; none longer than ClientOptions::timeout, but for WatchWindows and where said.
//
// Errors of every call:
//   UNAVAILABLE        no daemon there, or it went away; the message has the path and the reason
//   DEADLINE_EXCEEDED  it did not answer in time
//   PERMISSION_DENIED  the socket is there, this user may not open it
//   UNIMPLEMENTED      what listens there is no gradgated of this version
//   INTERNAL           an answer that breaks the protocol
// Any other code is the daemon's own, with its message.

#ifndef GRADGATE_CLIENT_SYNC_STATS_CLIENT_H_
#define GRADGATE_CLIENT_SYNC_STATS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/client_options.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::client {

class Connection;

struct ListWindowsOptions {
  int64_t limit = 0;          // windows at most; 0: all that the daemon keeps
  bool newest_first = false;  // else oldest first
  v1::Scope scope = v1::SCOPE_JOB;
};

struct WatchOptions {
  // Windows from here on, those still kept included; unset: only those that close from now on.
  std::optional<int64_t> first_window_index;
  absl::Duration limit = absl::InfiniteDuration();  // of the whole watch
  Cancellation* cancel = nullptr;                   // not owned; may be null
  v1::Scope scope = v1::SCOPE_JOB;
};

class SyncStatsClient {
 public:
  // Reads the TLS files and, for an empty target, the environment; does not connect.
  // INVALID_ARGUMENT: timeout, target or TLS files, see client/target.h and client/channel.h. UNAVAILABLE: no target was given
  // and there is no directory where a daemon could be.
  static absl::StatusOr<std::unique_ptr<SyncStatsClient>> Create(const ClientOptions& options);

  // Over a connection that other clients may share.
  static std::unique_ptr<SyncStatsClient> Over(std::shared_ptr<const Connection> connection);

  ~SyncStatsClient();
  SyncStatsClient(const SyncStatsClient&) = delete;
  SyncStatsClient& operator=(const SyncStatsClient&) = delete;

  // All pages in one answer, the most recently started job first; `limit` jobs at most, 0: all. next_page_token is empty unless
  // the limit left some out. INVALID_ARGUMENT: negative limit.
  // `nodes` has each node once; one that left out any page has not answered.
  // `cancel`, which may be null, ends it: an error of any code.
  absl::StatusOr<v1::ListJobsResponse> ListJobs(int64_t limit = 0, v1::Scope scope = v1::SCOPE_JOB,
                                                Cancellation* cancel = nullptr) const;

  // `job`: a job name, run id, or at least 6 first digits of a run id; of several runs with one name the last started is meant.
  // NOT_FOUND: no such job; the message lists the known ones, for which a second call is made. INVALID_ARGUMENT: empty name.
  // `cancel` as in ListJobs.
  absl::StatusOr<v1::GetJobStatsResponse> GetJobStats(absl::string_view job, v1::Scope scope = v1::SCOPE_JOB,
                                                      Cancellation* cancel = nullptr) const;

  // All pages in one answer, `nodes` as in ListJobs. Errors as GetJobStats and ListJobs.
  absl::StatusOr<v1::ListWindowsResponse> ListWindows(absl::string_view job, const ListWindowsOptions& options = {}) const;

  // The daemon that is asked, and those of its store.
  absl::StatusOr<v1::ListNodesResponse> ListNodes(v1::Scope scope = v1::SCOPE_JOB) const;

  // Of all nodes, or that of the daemon that is asked. Calls `on_message` on this thread for each message as it comes, until it
  // returns false (OK), the job has ended (OK, its last message has ended_job), or: CANCELLED by `options.cancel`;
  // DEADLINE_EXCEEDED at `options.limit`, or because the daemon was silent and did not answer a question either; UNAVAILABLE
  // when the daemon went away before the job ended. Other errors as GetJobStats.
  absl::Status WatchWindows(absl::string_view job, const WatchOptions& options,
                            absl::FunctionRef<bool(const v1::WatchWindowsResponse&)> on_message) const;

  // What it talks to, for messages: a socket path or host:port.
  const std::string& address() const;

 private:
  class Impl;
  explicit SyncStatsClient(std::unique_ptr<const Impl> impl);

  const std::unique_ptr<const Impl> impl_;
};

}  // namespace gradgate::client

#endif  // GRADGATE_CLIENT_SYNC_STATS_CLIENT_H_
