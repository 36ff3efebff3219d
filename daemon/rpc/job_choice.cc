#include "daemon/rpc/job_choice.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/node/job_selector.h"

namespace gradgate {
namespace {

using Start = std::pair<int64_t, int32_t>;

Start StartOf(const v1::Job& job) { return {job.start_time().seconds(), job.start_time().nanos()}; }

int64_t RankCount(const v1::Job& job) {
  return int64_t{job.running_rank_count()} + job.finished_rank_count() + job.lost_rank_count() + job.failed_rank_count();
}

// Of users who claim one run: the one here first, else who has most ranks of it, else the lowest uid.
int64_t ChooseUser(const std::vector<const JobClaim*>& claims) {
  std::map<int64_t, int64_t> ranks;  // by uid
  for (const JobClaim* claim : claims) {
    if (claim->node == 0) return claim->job.user_id();
    ranks[claim->job.user_id()] += RankCount(claim->job);
  }
  return std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
}

}  // namespace

bool SameJob(const v1::Job& a, const v1::Job& b) {
  return a.user_id() == b.user_id() && a.job_name() == b.job_name() && a.run_id() == b.run_id() && a.attempt() == b.attempt();
}

absl::StatusOr<JobChoice> ChooseJob(absl::string_view text, const std::vector<JobClaim>& claims) {
  const JobSelector selector = ParseJobSelector(text);
  std::vector<const JobClaim*> pool, others;
  for (const JobClaim& claim : claims) {
    if (selector.IsOf(claim.job.user_id())) (claim.job.job_name() == selector.job ? pool : others).push_back(&claim);
  }
  const bool named = !pool.empty();
  if (!named) pool = std::move(others);
  if (pool.empty()) return absl::NotFoundError(absl::StrCat("no job \"", text, "\""));
  std::set<int64_t> users;
  std::set<std::string> runs;
  std::set<std::pair<int64_t, std::string>> users_runs;
  for (const JobClaim* claim : pool) {
    users.insert(claim->job.user_id());
    runs.insert(claim->job.run_id());
    users_runs.emplace(claim->job.user_id(), claim->job.run_id());
  }
  if (named && users.size() > 1) return SeveralUsers("are called", selector.job, users_runs);
  if (!named && runs.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("several runs begin with \"", selector.job, "\"; give more digits"));
  }
  const int64_t user = ChooseUser(pool);

  using Key = std::tuple<std::string, std::string, int32_t>;  // run, name, attempt
  const auto key = [](const v1::Job& job) { return Key(job.run_id(), job.job_name(), job.attempt()); };
  std::map<Key, Start> starts;  // of the first rank on any node
  for (const JobClaim* claim : pool) {
    if (claim->job.user_id() != user) continue;
    const auto [at, fresh] = starts.emplace(key(claim->job), StartOf(claim->job));
    if (!fresh) at->second = std::min(at->second, StartOf(claim->job));
  }
  const auto last =
      std::max_element(starts.begin(), starts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  JobChoice choice;
  for (const JobClaim* claim : pool) {
    if (claim->job.user_id() == user && key(claim->job) == last->first) choice.job = claim->job;
  }
  for (const JobClaim& claim : claims) {
    if (claim.job.run_id() != choice.job.run_id()) choice.ask_again.push_back(claim.node);
    std::string note = StrayNote(choice.job, claim.job);
    if (!note.empty()) choice.strays.emplace_back(claim.node, std::move(note));
  }
  return choice;
}

std::string StrayNote(const v1::Job& chosen, const v1::Job& other) {
  if (other.run_id() != chosen.run_id() || other.user_id() == chosen.user_id()) return "";
  return absl::StrCat("has ranks of this run of uid ", other.user_id(), ", which is another user's job and is left out");
}

absl::Status NoSuchJob(absl::string_view selector, const std::vector<v1::NodeAnswer>& nodes) {
  std::vector<std::string> silent;
  for (const v1::NodeAnswer& node : nodes) {
    if (!node.answered()) silent.push_back(absl::StrCat(node.node_name(), " (", node.error(), ")"));
  }
  constexpr size_t kShown = 8;
  const size_t more = silent.size() - std::min(silent.size(), kShown);
  silent.resize(silent.size() - more);
  const size_t answered = nodes.size() - silent.size() - more;
  std::string text = absl::StrCat("no job \"", selector, "\" on ");
  absl::StrAppend(&text, answered == 1 ? "this node" : absl::StrCat("the ", answered, " nodes that answered"));
  if (!silent.empty()) absl::StrAppend(&text, "; no answer from ", absl::StrJoin(silent, ", "));
  if (more > 0) absl::StrAppend(&text, " and ", more, " more");
  return absl::NotFoundError(absl::StrCat(text, "; ListJobs tells those that are"));
}

bool IsWholeRunId(absl::string_view text) {
  const std::string selector = ParseJobSelector(text).job;
  return selector.size() == 32 &&
         std::all_of(selector.begin(), selector.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

}  // namespace gradgate
