#include "daemon/policy/policy_desk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/node/text_check.h"
#include "daemon/policy/policy_content.h"
#include "google/protobuf/util/message_differencer.h"
#include "google/protobuf/util/time_util.h"

namespace gradgate {
namespace {

using google::protobuf::util::MessageDifferencer;
using google::protobuf::util::TimeUtil;

constexpr size_t kMaxNameBytes = 128;
constexpr size_t kReplacedKept = 64;

// Job names are anything printable; hexadecimal digits are safe in any store.
std::string KeyOf(const JobKey& job) {
  return absl::StrCat(kPoliciesPrefix, job.user_id, "/", absl::BytesToHexString(job.job_name), "/", job.run_id, "/",
                      job.attempt);
}

std::string LaunchKeyOf(uint32_t user_id, const std::string& job_name, const std::string& launch_id) {
  return absl::StrCat(kLaunchesPrefix, user_id, "/", absl::BytesToHexString(job_name), "/", launch_id);
}

// Of the years 1 to 9999, which JSON can tell.
bool IsTime(const google::protobuf::Timestamp& time) {
  return time.seconds() >= TimeUtil::kTimestampMinSeconds && time.seconds() <= TimeUtil::kTimestampMaxSeconds &&
         time.nanos() >= 0 && time.nanos() < 1'000'000'000;
}

bool Shown(const std::string& name) { return name.size() <= kMaxNameBytes && IsPrintableUtf8(name); }

// What others wrote: values that ranks would have to refuse, or that no client could show, are left alone.
bool Sound(const store::v1::StoredPolicy& stored) {
  return CheckPolicy(stored.policy()).ok() && CheckPolicy(stored.former_policy()).ok() && stored.user_id() >= 0 &&
         stored.user_id() <= UINT32_MAX && stored.attempt() >= 0 && stored.job_name().size() <= kMaxNameBytes &&
         Shown(stored.actor()) && Shown(stored.node_name()) && IsTime(stored.propose_time());
}

JobKey JobOf(const store::v1::StoredPolicy& stored) {
  return {static_cast<uint32_t>(stored.user_id()), stored.job_name(), stored.run_id(), static_cast<uint32_t>(stored.attempt())};
}

v1::ProposedPolicy ToProposed(int64_t version, const store::v1::StoredPolicy& stored) {
  v1::ProposedPolicy out;
  out.set_version(version);
  out.set_content_hash(FormatHash(ToFrame(stored.policy(), version)));
  *out.mutable_policy() = stored.policy();
  out.set_actor(stored.actor());
  out.set_node_name(stored.node_name());
  *out.mutable_propose_time() = stored.propose_time();
  *out.mutable_former_policy() = stored.former_policy();
  return out;
}

}  // namespace

PolicyDesk::PolicyDesk(Store* store, const Clock* clock, std::string node_name)
    : store_(store), clock_(clock), node_name_(std::move(node_name)) {}

void PolicyDesk::Refresh() {
  Policies policies;
  Revisions revisions;
  for (const StoredValue& value : store_->List(kPoliciesPrefix)) {
    revisions.emplace(value.key, value.revision);
    store::v1::StoredPolicy stored;
    if (!stored.ParseFromString(value.value) || !Sound(stored) || value.revision <= 0) continue;
    const JobKey job = JobOf(stored);
    if (KeyOf(job) != value.key) continue;  // somebody else's value
    policies.emplace(job, Held{value.revision, std::move(stored)});
  }
  Launches kept = ListKept(&revisions);
  const auto alike = [](const Policies::value_type& a, const Policies::value_type& b) {
    return a.first == b.first && a.second.version == b.second.version &&
           MessageDifferencer::Equals(a.second.stored, b.second.stored);
  };
  MutexLock lock(&mutex_);
  for (auto at = written_.begin(); at != written_.end();) {
    const auto copied = policies.find(at->first);
    if (copied != policies.end() && copied->second.version >= at->second.version) {
      at = written_.erase(at);
    } else {
      policies.insert_or_assign(at->first, at->second);
      ++at;
    }
  }
  revisions_.swap(revisions);
  const auto left_alike = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.version == b.second.version;
  };
  const bool same_kept = std::equal(kept.begin(), kept.end(), kept_.begin(), kept_.end(), left_alike);
  kept_.swap(kept);
  if (same_kept && std::equal(policies.begin(), policies.end(), policies_.begin(), policies_.end(), alike)) return;
  policies_.swap(policies);
  for (auto& [job, held] : policies) {
    const auto newer = policies_.find(job);
    if (newer != policies_.end() && newer->second.version > held.version) replaced_.emplace_back(job, std::move(held));
    if (replaced_.size() > kReplacedKept) replaced_.pop_front();
  }
  generation_.fetch_add(1, std::memory_order_release);
}

const PolicyDesk::Held* PolicyDesk::Find(const JobKey& job) const {
  const auto own = policies_.find(job);
  return own == policies_.end() ? nullptr : &own->second;
}

int64_t PolicyDesk::RevisionOf(const std::string& key) const {
  const auto revision = revisions_.find(key);
  return revision == revisions_.end() ? 0 : revision->second;
}

PolicyDesk::Launches PolicyDesk::ListKept(Revisions* revisions) const {
  Launches all;
  for (const StoredValue& value : store_->List(kLaunchesPrefix)) {
    revisions->emplace(value.key, value.revision);
    store::v1::LaunchPolicy left;
    if (!left.ParseFromString(value.value) || left.version() <= 0 || left.launch_id().empty() || !Sound(left.stored()))
      continue;
    const JobKey job = JobOf(left.stored());
    if (LaunchKeyOf(job.user_id, job.job_name, left.launch_id()) != value.key) continue;  // somebody else's value
    all.emplace(LaunchKey{job.user_id, job.job_name, left.launch_id()},
                Held{left.version(), std::move(*left.mutable_stored())});
  }
  return all;
}

const PolicyDesk::Held* PolicyDesk::FindInherited(const JobKey& job, const std::string& launch_id) const {
  if (launch_id.empty() || Find(job) != nullptr) return nullptr;
  const auto kept = kept_.find({job.user_id, job.job_name, launch_id});
  if (kept == kept_.end() || JobOf(kept->second.stored).attempt >= job.attempt) return nullptr;
  return &kept->second;
}

const PolicyDesk::Held* PolicyDesk::FindVersion(const JobKey& job, int64_t version) const {
  const Held* latest = Find(job);
  if (latest != nullptr && latest->version == version) return latest;
  for (const auto& [of, held] : replaced_) {
    if (of == job && held.version == version) return &held;
  }
  return nullptr;
}

link::PolicyFrame PolicyDesk::FrameFor(const JobKey& job, const std::string& launch_id) const {
  MutexLock lock(&mutex_);
  const Held* held = Find(job);
  if (held == nullptr) held = FindInherited(job, launch_id);
  return held == nullptr ? link::PolicyFrame{} : ToFrame(held->stored.policy(), held->version);
}

v1::ProposedPolicy PolicyDesk::Latest(const JobKey& job, const std::string& launch_id) const {
  MutexLock lock(&mutex_);
  if (const Held* held = Find(job); held != nullptr) return ToProposed(held->version, held->stored);
  const Held* inherited = FindInherited(job, launch_id);
  if (inherited == nullptr) return v1::ProposedPolicy();
  v1::ProposedPolicy out = ToProposed(inherited->version, inherited->stored);
  out.set_inherited_from_attempt(inherited->stored.attempt());
  return out;
}

absl::Status PolicyDesk::Keep(const PolicyInForce& in_force, absl::Time deadline) {
  const JobKey& job = in_force.job;
  const auto version = static_cast<int64_t>(in_force.version);
  store::v1::LaunchPolicy left;
  const std::string key = LaunchKeyOf(job.user_id, job.job_name, in_force.launch_id);
  int64_t revision = 0;
  {
    MutexLock lock(&mutex_);
    const Held* held = FindVersion(job, version);
    if (held == nullptr) return absl::OkStatus();
    const auto kept = kept_.find({job.user_id, job.job_name, in_force.launch_id});
    const bool later = kept != kept_.end() && JobOf(kept->second.stored).attempt > job.attempt;
    if (later || (kept != kept_.end() && kept->second.version >= version)) return absl::OkStatus();
    revision = RevisionOf(key);
    *left.mutable_stored() = held->stored;
  }
  left.mutable_stored()->clear_former_policy();  // a new attempt starts with what its trainers are given
  left.set_version(version);
  left.set_launch_id(in_force.launch_id);
  return store_->Put(key, left.SerializeAsString(), revision, deadline).status();
}

absl::StatusOr<v1::ProposedPolicy> PolicyDesk::Propose(const Proposal& proposal, absl::Time deadline) {
  const JobKey& job = proposal.job;
  store::v1::StoredPolicy stored;
  stored.set_user_id(job.user_id);
  stored.set_job_name(job.job_name);
  stored.set_run_id(job.run_id);
  stored.set_attempt(static_cast<int32_t>(job.attempt));
  *stored.mutable_policy() = proposal.policy;
  *stored.mutable_former_policy() = proposal.former;
  stored.set_actor(proposal.actor);
  stored.set_node_name(node_name_);
  const timespec now = absl::ToTimespec(clock_->Now());
  stored.mutable_propose_time()->set_seconds(now.tv_sec);
  stored.mutable_propose_time()->set_nanos(static_cast<int32_t>(now.tv_nsec));

  int64_t own_version = 0;
  {
    MutexLock lock(&mutex_);
    const Held* held = Find(job);
    const Held* inherited = FindInherited(job, proposal.launch_id);
    const int64_t present = held != nullptr ? held->version : inherited != nullptr ? inherited->version : 0;
    if (proposal.expected != present) {
      return absl::AbortedError(
          absl::StrCat("the present version is ", present, ", not ", proposal.expected, "; look at it and set again"));
    }
    // One that is not sound, or that this version cannot read, has a revision, too, and is replaced.
    own_version = held != nullptr ? held->version : RevisionOf(KeyOf(job));
  }
  absl::StatusOr<int64_t> version = store_->Put(KeyOf(job), stored.SerializeAsString(), own_version, deadline);
  if (!version.ok()) return version.status();
  if (*version <= proposal.above) {
    (void)store_->Delete(KeyOf(job), deadline);
    return absl::FailedPreconditionError(
        absl::StrCat("the store (", store_->Health().name, ") gave it version ", *version,
                     ", but ranks of this job hold version ", proposal.above,
                     ": the store was emptied since. Ranks take no version below the one they hold; restart the job, "
                     "or restore the store"));
  }
  {
    MutexLock lock(&mutex_);
    written_.insert_or_assign(job, Held{*version, stored});
  }
  Refresh();
  return ToProposed(*version, stored);
}

}  // namespace gradgate
