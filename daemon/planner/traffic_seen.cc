#include "daemon/planner/traffic_seen.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace gradgate::planner {
namespace {

double Seconds(const google::protobuf::Duration& d) { return static_cast<double>(d.seconds()) + 1e-9 * d.nanos(); }

// Over all ranks.
struct Sum {
  double gradient = 0, issued = 0, completed = 0, bytes = 0, seconds = 0;

  void Add(const v1::CollectiveStats& c) {
    gradient += c.gradient_issued_count();
    issued += c.gradient_issued_count() + c.other_issued_count();
    completed += c.completed_count();
    bytes += c.gradient_bytes();
    seconds += Seconds(c.total_duration());
  }
  std::optional<double> mean_seconds() const {
    if (completed == 0) return std::nullopt;
    return seconds / completed;
  }
};

using Sums = std::map<std::pair<v1::GroupRole, v1::CollectiveOp>, Sum>;

PassSeen Pass(const Sum& sum, double reductions) {
  PassSeen pass;
  if (reductions <= 0 || sum.gradient == 0) return pass;
  pass.collectives = sum.gradient / reductions;
  pass.bytes = sum.bytes / reductions;
  if (const auto mean = sum.mean_seconds()) pass.seconds = *mean * pass.collectives;
  return pass;
}

}  // namespace

std::optional<double> TrafficSeen::Shards(double ranks) const {
  if (!sharded) return 1;
  if (!replicated) return ranks;
  if (replica_sync.bytes <= 0 || shard_sync.bytes <= 0) return std::nullopt;
  const double shards = std::round(shard_sync.bytes / replica_sync.bytes);
  if (shards < 2 || shards >= ranks || std::fmod(ranks, shards) != 0) return std::nullopt;
  return shards;
}

bool TrafficSeen::Kept(double micro_steps) const {
  constexpr double kBetween = 1.5;  // once a window, where it would be at least twice
  return sharded && micro_steps >= 2 && shard_sync.collectives > 0 && gathers_per_window > 0 &&
         gathers_per_window < kBetween * shard_sync.collectives;
}

TrafficSeen TrafficSeenIn(const v1::GetJobStatsResponse& stats) {
  Sums sums;
  std::map<v1::GroupRole, double> reductions;
  double windows = 0, micro_steps = 0;
  for (const v1::RankStats& rank : stats.ranks()) {
    for (const v1::CollectiveStats& c : rank.collectives()) sums[{c.group(), c.op()}].Add(c);
    for (const v1::RoleTotals& role : rank.roles()) reductions[role.group()] += role.issued_count();
    windows += rank.totals().window_full_count() + rank.totals().window_partial_count();
    micro_steps += rank.totals().micro_step_count();
  }
  const auto sum = [&](v1::GroupRole role, v1::CollectiveOp op) { return sums[{role, op}]; };
  TrafficSeen seen;
  seen.sharded = reductions.count(v1::GROUP_ROLE_SHARD) > 0;
  seen.replicated = reductions.count(v1::GROUP_ROLE_REPLICATE) > 0;
  const v1::GroupRole across = seen.replicated ? v1::GROUP_ROLE_REPLICATE : v1::GROUP_ROLE_DP;
  seen.replicated |= !seen.sharded;
  seen.replica_sync = Pass(sum(across, v1::COLLECTIVE_OP_ALL_REDUCE), reductions[across]);
  seen.shard_sync = Pass(sum(v1::GROUP_ROLE_SHARD, v1::COLLECTIVE_OP_REDUCE_SCATTER), reductions[v1::GROUP_ROLE_SHARD]);
  const Sum gathers = sum(v1::GROUP_ROLE_SHARD, v1::COLLECTIVE_OP_ALL_GATHER);
  if (windows > 0) seen.gathers_per_window = gathers.issued / windows;
  if (const auto mean = gathers.mean_seconds(); mean && micro_steps > 0) {
    seen.gather_seconds_per_micro_step = *mean * gathers.issued / micro_steps;
  }
  return seen;
}

std::optional<double> NodesSeenIn(const v1::GetJobStatsResponse& stats) {
  std::map<std::string, int> ranks;
  for (const v1::RankStats& rank : stats.ranks()) ++ranks[rank.host_name()];
  if (stats.ranks_size() != stats.job().world_size() || ranks.empty()) return std::nullopt;
  for (const auto& [host, count] : ranks) {
    if (count != ranks.begin()->second) return std::nullopt;
  }
  return static_cast<double>(ranks.size());
}

}  // namespace gradgate::planner
