// The jobs, ranks and windows of this node, as pages and sockets tell them.
//
// A job is (user id, job name, run id, attempt). A rank of it is RUNNING from Register() to End(); its page is read one last
// time before its state changes. Ended jobs are kept for a bounded time and in a bounded number; the slot of an ended rank, and
// so its exported series, lingers for a shorter time, and is given to nobody else meanwhile.
//
// Jobs, ranks and windows are bounded over all users. Where a bound is reached, ended jobs go, then new ranks are refused (of
// windows: the oldest go). Whose: the user's who has most of what is scarce, and of that user's jobs the one that ended first,
// so that one user cannot drive out another's.
//
// Every query first reads all live pages, so that its answer is current.
//
// Thread class: any thread; one lock, a leaf: nothing is called back while it is held, and no other lock is taken under it.

#ifndef GRADGATE_DAEMON_NODE_REGISTRY_H_
#define GRADGATE_DAEMON_NODE_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "daemon/node/clock.h"
#include "daemon/node/job_entry.h"
#include "daemon/node/mutex.h"
#include "daemon/node/page_mapping.h"
#include "daemon/node/slots.h"
#include "daemon/node/views.h"

namespace gradgate {

struct RegistryOptions {
  size_t window_history = 1024;  // windows kept per job
  size_t max_ended_jobs = 64;    // ended jobs kept
  absl::Duration keep_ended = absl::Hours(1);
  absl::Duration series_linger = absl::Minutes(5);  // for ended ranks; no longer than keep_ended has an effect
  size_t max_ranks_per_job = 256;                   // on this node
  size_t max_ranks = 1024;                          // of all jobs, running or ended
  size_t max_window_records = 262'144;              // windows of single ranks kept, of all jobs; some 60 MiB
};

enum class Ending {
  kGoodbye,        // FINISHED
  kGoodbyeFailed,  // FAILED
  kDisconnected,   // LOST, unless the page says that it was closed
};

// What a trainer's connection stands for.
struct Registration {
  uint64_t connection;  // never reused
  uint32_t slot;        // told to the trainer; reused
  JobKey job;
  std::string launch_id;  // empty: not known
};

// A watcher's place: the next window it has not seen.
struct WatchPosition {
  uint64_t job_id;
  uint64_t next_index;
};

// One step of a watcher. Neither field set: nothing new yet.
struct WatchStep {
  std::optional<WindowView> window;
  uint64_t skipped_count = 0;        // windows lost between the one before and this one
  std::optional<JobView> ended_job;  // the job has ended, and all of its windows were seen
};

class Registry {
 public:
  Registry(const RegistryOptions& options, const Clock* clock) : options_(options), clock_(clock) {}
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Checks header and identity of the page and makes it a RUNNING rank, new or again. `process_id` is the kernel's word; 0:
  // none. Errors: Rejection::kPage…, kRankDuplicate, kRankLimit.
  absl::StatusOr<Registration> Register(uint32_t user_id, std::unique_ptr<PageMapping> mapping, int32_t process_id = 0);

  // Ends the rank behind a connection. A connection that has ended already is ignored. Returns the rank's view after it, if it
  // ended now.
  std::optional<RankView> End(uint64_t connection, Ending ending);

  // To be called some ten times a second: reads live pages and forgets what is too old.
  void Tick();

  // Grows whenever there may be something new for a watcher.
  uint64_t generation() const;

  // All jobs, the last started first.
  std::vector<JobView> ListJobs();

  // `selector` is a job name, a run id, or at least 6 first digits of one, of anybody or of one user: see job_selector.h.
  // Errors: INVALID_ARGUMENT (empty, digits that fit several runs, or jobs of several users), NOT_FOUND.
  absl::StatusOr<JobStatsView> GetJobStats(absl::string_view selector);

  // As GetJobStats, with what the doctor looks at.
  absl::StatusOr<JobEvidenceView> GetEvidence(absl::string_view selector);

  // The same of all jobs that run.
  std::vector<JobEvidenceView> GetRunningEvidence();

  // The job that `selector` means. Errors as GetJobStats.
  absl::StatusOr<uint64_t> FindJob(absl::string_view selector);
  absl::StatusOr<JobView> ViewJob(absl::string_view selector);

  // Up to `limit` windows of a job, from `from_index` on (or from it downwards); none given: from the oldest (newest).
  // NOT_FOUND: the job is no longer kept.
  absl::StatusOr<std::vector<WindowView>> ListWindows(uint64_t job_id, std::optional<uint64_t> from_index, bool newest_first,
                                                      size_t limit);

  // A place at `first_index`, or at the oldest window kept if that is later; without it, at the next window to close.
  // Errors as GetJobStats.
  absl::StatusOr<WatchPosition> StartWatch(absl::string_view selector, std::optional<uint64_t> first_index);

  // The next window that all running ranks have closed, in order; moves the position behind it. NOT_FOUND: no longer kept.
  absl::StatusOr<WatchStep> NextForWatch(WatchPosition& position);

  // Of the jobs that have a policy in force, and are of a known launch; as their pages were last read.
  std::vector<PolicyInForce> ListPoliciesInForce() const;

  // Everything that metrics are made of.
  NodeView GetNode();

 private:
  JobEvidenceView EvidenceOf(const JobEntry& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RankSinks SinksOf(JobEntry& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RefreshAll(Pass pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether this rank may register, once room is made for it. Errors as Register.
  absl::Status CheckRank(const JobKey& key, uint32_t rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes room for one more rank of this user. Errors: Rejection::kRankLimit.
  absl::Status MakeRoom(uint32_t user_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops ended jobs until no more than `limit` is left of what `size_of` measures, or no ended job. `ended_only`: running jobs
  // do not count. Returns what is left.
  size_t EvictEnded(size_t (*size_of)(const JobEntry&), size_t limit, bool ended_only) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TrimWindows() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<JobEntry*> Find(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<JobEntry*> FindById(uint64_t job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropJob(uint64_t job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Live {
    uint64_t job_id;
    uint32_t rank;
  };

  const RegistryOptions options_;
  const Clock* const clock_;

  mutable Mutex mutex_;
  std::map<uint64_t, std::unique_ptr<JobEntry>> jobs_ ABSL_GUARDED_BY(mutex_);  // by id
  std::map<JobKey, uint64_t> job_ids_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Live> live_ ABSL_GUARDED_BY(mutex_);  // by connection
  SlotPool slots_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_job_id_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_connection_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t lost_count_ ABSL_GUARDED_BY(mutex_) = 0;
  PageErrors page_errors_ ABSL_GUARDED_BY(mutex_);
  NodeHistograms histograms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_NODE_REGISTRY_H_
