// Asks a daemon round after round on a thread of its own, so that keys are answered while a daemon is not.
//
// Any thread but the constructor's and destructor's, which are the owner's.

#ifndef GRADGATE_CLIENT_CLI_TOP_SOURCE_H_
#define GRADGATE_CLIENT_CLI_TOP_SOURCE_H_

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/cli/top_model.h"
#include "client/connection.h"

namespace gradgate::cli {

struct TopQuestion {
  std::string job;  // that alone; empty: all jobs
  v1::Scope scope = v1::SCOPE_JOB;
};

// One round, on this thread: the jobs, the counts of the selected one and of those that run, kMostTopJobs at most, and where
// `diagnose`, what the doctor says of the selected one. Each call has the connection's deadline; the first that fails ends the
// round, but that of the doctor. `selected`: a TopKey, or empty. `cancel` ends it.
inline constexpr size_t kMostTopJobs = 16;
TopRound AskTopRound(const std::shared_ptr<const client::Connection>& connection, const TopQuestion& question,
                     const std::string& selected, bool diagnose, client::Cancellation* cancel);

class TopSource {
 public:
  // Writes to the eventfd `ready_fd`, which stays the caller's, whenever there is something to Take().
  TopSource(std::shared_ptr<const client::Connection> connection, TopQuestion question, absl::Duration interval, int ready_fd);

  // Ends the call under way.
  ~TopSource();

  TopSource(const TopSource&) = delete;
  TopSource& operator=(const TopSource&) = delete;

  // That job from now on; `at_once`: a person wants to see another.
  void Select(const std::string& key, bool at_once) ABSL_LOCKS_EXCLUDED(mutex_);

  // The last round that nobody has taken.
  std::optional<TopRound> Take() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run();
  bool AwaitNext(absl::Time at) ABSL_LOCKS_EXCLUDED(mutex_);  // false: it is over

  const std::shared_ptr<const client::Connection> connection_;
  const TopQuestion question_;
  const absl::Duration interval_;
  const int ready_fd_;
  client::Cancellation cancellation_;

  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool hurry_ ABSL_GUARDED_BY(mutex_) = false;
  std::string selected_ ABSL_GUARDED_BY(mutex_);
  std::optional<TopRound> round_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_SOURCE_H_
