// The policies of jobs, as the common store has them: proposes new ones, and knows what each job's ranks are to be offered.
//
// A policy belongs to one run of a job, which is one attempt of a launch; names are not unique. What a launch has in force is
// kept for its later attempts, and offered to those until they are given one of their own. Jobs whose pages tell no launch have
// none.
//
// Whatever the store says is only ever offered: a rank takes nothing that is not newer than what it holds, and a job only what
// all of its ranks hold. So a store that is old, empty or torn in two changes nothing.
//
// Thread class: any thread. Propose blocks until its deadline, nothing else does. One lock, a leaf.

#ifndef GRADGATE_DAEMON_POLICY_POLICY_DESK_H_
#define GRADGATE_DAEMON_POLICY_POLICY_DESK_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/node/clock.h"
#include "daemon/node/job_entry.h"
#include "daemon/node/mutex.h"
#include "daemon/node/policy_source.h"
#include "daemon/store/store.h"
#include "gradgate/store/v1/policy.pb.h"
#include "gradgate/v1/policy.pb.h"

namespace gradgate {

struct Proposal {
  JobKey job;
  std::string launch_id;  // empty: not known
  v1::Policy policy;
  v1::Policy former;  // what it was made from
  std::string actor;
  int64_t expected = 0;  // the present version when it was made; 0: none
  int64_t above = 0;     // the highest version that a rank of the job is known to hold, or to have rejected
};

class PolicyDesk final : public PolicySource {
 public:
  // Neither pointer is owned; both outlive this. It knows nothing before the first Refresh.
  PolicyDesk(Store* store, const Clock* clock, std::string node_name);

  // Takes what the store knows; whenever its copy has changed. The generation grows where that has changed a policy.
  void Refresh();

  uint64_t generation() const override { return generation_.load(std::memory_order_acquire); }
  link::PolicyFrame FrameFor(const JobKey& job, const std::string& launch_id) const override;

  // The latest; version 0: none.
  v1::ProposedPolicy Latest(const JobKey& job, const std::string& launch_id) const;

  // Writes to the store and returns what it is then. ABORTED: another version than expected is the present one.
  // FAILED_PRECONDITION: the store gives no version above what ranks hold, as one that was emptied does. Others as Store::Put.
  absl::StatusOr<v1::ProposedPolicy> Propose(const Proposal& proposal, absl::Time deadline);

  // Writes to the store what a job has in force, for later attempts of its launch. OK also where there is nothing to write: it
  // is kept already, or its content is not known here. Errors as Store::Put; ABORTED: another daemon was first, most likely.
  // Blocks as Propose.
  absl::Status Keep(const PolicyInForce& in_force, absl::Time deadline);

  StoreHealth Health() const { return store_->Health(); }

 private:
  struct Held {
    int64_t version;
    store::v1::StoredPolicy stored;
  };
  using Policies = std::map<JobKey, Held>;
  using LaunchKey = std::tuple<uint32_t, std::string, std::string>;  // uid, job name, launch id
  using Launches = std::map<LaunchKey, Held>;
  using Revisions = std::map<std::string, int64_t>;  // by key

  const Held* Find(const JobKey& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What an earlier attempt left; null: nothing, or the job has a policy of its own.
  const Held* FindInherited(const JobKey& job, const std::string& launch_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Held* FindVersion(const JobKey& job, int64_t version) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Launches ListKept(Revisions* revisions) const;
  int64_t RevisionOf(const std::string& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store* const store_;
  const Clock* const clock_;
  const std::string node_name_;
  std::atomic<uint64_t> generation_{1};

  mutable Mutex mutex_;
  Policies policies_ ABSL_GUARDED_BY(mutex_);
  Launches kept_ ABSL_GUARDED_BY(mutex_);
  std::deque<Policies::value_type> replaced_ ABSL_GUARDED_BY(mutex_);  // by newer ones, which ranks may not have taken up
  Revisions revisions_ ABSL_GUARDED_BY(mutex_);                        // of all that the store has, sound or not
  Policies written_ ABSL_GUARDED_BY(mutex_);                           // by this daemon, and not in the store's copy yet
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_POLICY_POLICY_DESK_H_
