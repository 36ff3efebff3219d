#include "client/planner/parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gradgate::planner {
namespace {

constexpr double kAssumedModules = 32;
constexpr double kContradiction = 0.01;

// Exposed seconds as they were given; not set: in compute.
struct Given {
  Numbers::Value gather_forward, gather_backward, shard_sync, replica_sync;
};

bool AnyGiven(const Numbers& n) {
  return n.sync_seconds || n.shard_sync_seconds || n.replica_sync_seconds || n.gather_forward_seconds ||
         n.gather_backward_seconds;
}

absl::Status Contradiction(absl::string_view what, double given, double parts) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", given, ", but its parts are ", parts, " s; leave one of them out"));
}

// Splits a reduction's seconds between the shard group and the replicas.
absl::Status SplitHybrid(const Numbers& n, Given* given, Notes* notes) {
  const Numbers::Value &sync = n.sync_seconds, &shard = n.shard_sync_seconds, &replica = n.replica_sync_seconds;
  given->shard_sync = shard;
  given->replica_sync = replica;
  if (sync && shard && replica) {
    const double sum = *shard + *replica;
    return std::abs(sum - *sync) > kContradiction * *sync ? Contradiction("sync-s", *sync, sum) : absl::OkStatus();
  }
  if (sync && (shard || replica)) {
    const double part = shard ? *shard : *replica;
    if (part > *sync) return Contradiction("sync-s", *sync, part);
    (shard ? given->replica_sync : given->shard_sync) = *sync - part;
    return absl::OkStatus();
  }
  if (sync) given->replica_sync = sync;
  if (!given->replica_sync)
    return absl::FailedPreconditionError("replica-sync-s, or sync-s, is not known; give what was measured");
  if (!given->shard_sync) {
    AddNote("the reduce-scatter among shards is taken to be part of compute: shard-sync-s is not known", notes);
  }
  return absl::OkStatus();
}

absl::StatusOr<Given> GivenOf(const Numbers& n, Notes* notes) {
  const Sharding sharding = ShardingOf(n);
  Given given{n.gather_forward_seconds, n.gather_backward_seconds, {}, {}};
  if (sharding == Sharding::kNone) {
    if (n.shard_sync_seconds || n.gather_forward_seconds || n.gather_backward_seconds) {
      return absl::InvalidArgumentError(
          "shard-sync-s, gather-forward-s and gather-backward-s are of sharded parameters; give shards, the ranks that share "
          "them");
    }
    given.replica_sync = n.sync_seconds ? n.sync_seconds : n.replica_sync_seconds;
    return given;
  }
  if (!given.gather_forward || !given.gather_backward) {
    AddNote(
        "all-gathers whose seconds are not known are taken to be part of compute, so what keeping parameters saves is not in "
        "its time",
        notes);
  }
  if (sharding == Sharding::kHybrid) {
    if (const absl::Status s = SplitHybrid(n, &given, notes); !s.ok()) return s;
    return given;
  }
  if (n.replica_sync_seconds.value_or(0) > 0) {
    return absl::InvalidArgumentError(absl::StrCat("replica-sync-s is ", *n.replica_sync_seconds,
                                                   ", but parameters are sharded over all ranks; give it as shard-sync-s"));
  }
  given.shard_sync = n.shard_sync_seconds ? n.shard_sync_seconds : n.sync_seconds;
  return given;
}

Parts Taken(const Numbers& n, const Given& given) {
  Parts parts;
  parts.compute = n.compute_seconds.value_or(0);
  parts.gather_forward = given.gather_forward.value_or(0);
  parts.gather_backward = given.gather_backward.value_or(0);
  parts.shard_sync = parts.kept_shard_sync = given.shard_sync.value_or(0);
  parts.replica_sync = parts.kept_replica_sync = given.replica_sync.value_or(0);
  return parts;
}

// What hides collectives in one micro-step.
struct Cover {
  double forward, backward, overlap, collectives;

  double Exposed(double total) const { return ExposedSeconds(total, backward, overlap, collectives); }
  double Total(double exposed) const { return TotalSeconds(exposed, backward, overlap, collectives); }
};

Cover CoverOf(const Numbers& n) {
  const double compute = n.compute_seconds.value_or(0), share = n.backward_share.value_or(0);
  return {compute * (1 - share), compute * share, n.overlap_share.value_or(1), CollectiveCount(n)};
}

// The same collectives unhidden, in the order in which they get what hides them.
struct Totals {
  double gather_forward = 0, gather_backward = 0, shard_sync = 0, replica_sync = 0;
};

Parts Hidden(const Totals& t, const Cover& cover) {
  const auto exposed = [&](double total) { return cover.Exposed(total); };
  Parts parts;
  parts.gather_forward = ExposedSeconds(t.gather_forward, cover.forward, cover.overlap, cover.collectives);
  parts.gather_backward = exposed(t.gather_backward);
  parts.shard_sync = exposed(t.gather_backward + t.shard_sync) - parts.gather_backward;
  parts.replica_sync = exposed(t.gather_backward + t.shard_sync + t.replica_sync) - parts.gather_backward - parts.shard_sync;
  parts.kept_shard_sync = exposed(t.shard_sync);
  parts.kept_replica_sync = exposed(t.shard_sync + t.replica_sync) - parts.kept_shard_sync;
  return parts;
}

// FAILED_PRECONDITION where the links that carry something are not known.
absl::Status CheckLinks(const Numbers& n, Notes* notes) {
  const double nodes = *n.node_count, ranks = *n.rank_count;
  if (!n.parameter_count) {
    return absl::FailedPreconditionError(
        "sync-s is not known; give it as it was measured, or params and link-gbit, from which it can be derived");
  }
  if (nodes > 1 && !n.link_bytes_per_second) {
    return absl::FailedPreconditionError(
        "link-gbit, the speed of a node's link, is not known; give it, or sync-s as it was measured");
  }
  if (ranks > nodes && !n.intra_bytes_per_second) {
    if (nodes == 1) {
      return absl::FailedPreconditionError(
          "intra-gbit, the speed of a rank's link inside its node, is not known; give it, or sync-s as it was measured");
    }
    AddNote("links inside nodes are taken to be no limit: intra-gbit is not known", notes);
  }
  return absl::OkStatus();
}

bool ChangesTraffic(const Numbers& c) {
  return c.rank_count || c.node_count || c.shard_count || c.parameter_count || c.parameter_element_bytes ||
         c.gradient_element_bytes || c.wire_element_bytes || c.link_bytes_per_second || c.link_latency_seconds ||
         c.intra_bytes_per_second || c.intra_latency_seconds || c.bucket_bytes || c.collective_count;
}

// FAILED_PRECONDITION where the ratio of two costs depends on a link that is not known.
absl::Status CheckComparable(const Numbers& base, const Numbers& changes, const Numbers& numbers, Notes* notes) {
  const bool links_known = (*base.node_count == 1 || base.link_bytes_per_second) &&
                           (*base.rank_count == *base.node_count || base.intra_bytes_per_second || *base.node_count > 1);
  const bool same_links = !changes.link_bytes_per_second && !changes.link_latency_seconds && !changes.intra_bytes_per_second &&
                          !changes.intra_latency_seconds;
  if (links_known && base.parameter_count) return CheckLinks(numbers, notes);
  if (!same_links || changes.bucket_bytes || changes.collective_count ||
      (*base.node_count == 1) != (*numbers.node_count == 1)) {
    return absl::FailedPreconditionError(
        absl::StrCat("what \"", Label(changes),
                     "\" would give can be told only from the present params and link-gbit (inside one "
                     "node: intra-gbit); give them too"));
  }
  AddNote(
      "what-ifs change reductions in proportion to the bytes that they send, no latency counted: params or link-gbit is not "
      "known",
      notes);
  return absl::OkStatus();
}

bool ChangesCover(const Numbers& c) { return c.compute_seconds || c.backward_share || c.overlap_share; }

// Seconds, nothing hidden, of collectives that took `total` before, as the model says that they change. One of which nothing
// showed tells nothing of its length, so that it is the model's, where there is one.
double After(double total, const Numbers::Value& given, const Cost& now, const Cost& then, bool has_model) {
  if (total == 0 && given && has_model) return then.seconds;
  return now.seconds > 0 ? total * then.seconds / now.seconds : total;
}

Totals TotalsAfter(const Numbers& base, const Given& given, const Numbers& numbers) {
  const Parts before = Taken(base, given);
  const Traffic now = TrafficOf(base), then = TrafficOf(numbers);
  const Cover cover = CoverOf(base);
  const bool has_model = base.parameter_count && base.link_bytes_per_second;
  const double forward = TotalSeconds(before.gather_forward, cover.forward, cover.overlap, cover.collectives);
  const double backward = cover.Total(before.gather_backward);
  const double with_shards = cover.Total(before.gather_backward + before.shard_sync);
  const double all = cover.Total(before.gather_backward + before.shard_sync + before.replica_sync);
  return {After(forward, given.gather_forward, now.gather, then.gather, has_model),
          After(backward, given.gather_backward, now.gather, then.gather, has_model),
          After(with_shards - backward, given.shard_sync, now.shard_sync, then.shard_sync, has_model),
          After(all - with_shards, given.replica_sync, now.replica_sync, then.replica_sync, has_model)};
}

}  // namespace

void AddNote(std::string note, Notes* notes) {
  if (std::find(notes->begin(), notes->end(), note) == notes->end()) notes->push_back(std::move(note));
}

Sharding ShardingOf(const Numbers& n) {
  const double shards = n.shard_count.value_or(1);
  if (shards == 1) return Sharding::kNone;
  return shards == n.rank_count.value_or(0) ? Sharding::kFull : Sharding::kHybrid;
}

double CollectiveCount(const Numbers& n) { return n.collective_count.value_or(kAssumedModules); }

double ExposedSeconds(double total, double beside, double overlap, double collectives) {
  if (total <= 0) return 0;
  return std::max(total / collectives, total - overlap * beside * (collectives - 1) / collectives);
}

double TotalSeconds(double exposed, double beside, double overlap, double collectives) {
  if (exposed <= 0) return 0;
  return std::min(exposed * collectives, exposed + overlap * beside * (collectives - 1) / collectives);
}

Traffic TrafficOf(const Numbers& n) {
  constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  const double nodes = *n.node_count, shards = *n.shard_count;
  const bool one_node = nodes == 1;
  const Links links{n.intra_bytes_per_second.value_or(one_node ? 1 : kUnlimited), *n.intra_latency_seconds,
                    n.link_bytes_per_second.value_or(1), *n.link_latency_seconds};
  const double parameters = n.parameter_count.value_or(1), collectives = CollectiveCount(n);
  const double gathered = parameters * *n.parameter_element_bytes / collectives;
  const double reduced = parameters * *n.wire_element_bytes / collectives;
  const Groups groups = GroupsOf(*n.rank_count, nodes, shards);
  Traffic traffic;
  if (ShardingOf(n) == Sharding::kNone) {
    traffic.replica_sync = AllReduce(groups.all, reduced, links) * collectives;
    return traffic;
  }
  traffic.gather = AllGather(groups.shard, gathered, links) * collectives;
  traffic.shard_sync = ReduceScatter(groups.shard, reduced, links) * collectives;
  traffic.replica_sync = AllReduce(groups.replica, reduced / shards, links) * collectives;
  return traffic;
}

absl::StatusOr<Parts> PartsOf(const Numbers& n, Notes* notes) {
  if (!n.compute_seconds)
    return absl::FailedPreconditionError("compute-s, the seconds of a micro-step's computing, is not known; give it");
  if (*n.rank_count == 1) {
    Parts alone;
    alone.compute = *n.compute_seconds;
    return alone;
  }
  if (AnyGiven(n)) {
    const absl::StatusOr<Given> given = GivenOf(n, notes);
    if (!given.ok()) return given.status();
    return Taken(n, *given);
  }
  if (const absl::Status s = CheckLinks(n, notes); !s.ok()) return s;
  if (!n.collective_count)
    AddNote(absl::StrCat(kAssumedModules, " wrapped modules are assumed: collectives is not known"), notes);
  const Traffic traffic = TrafficOf(n);
  const double gather = traffic.gather.seconds;
  Parts parts = Hidden({gather, gather, traffic.shard_sync.seconds, traffic.replica_sync.seconds}, CoverOf(n));
  parts.compute = *n.compute_seconds;
  return parts;
}

absl::StatusOr<Parts> PartsAfter(const Numbers& base, const Numbers& changes, const Numbers& numbers, Notes* notes) {
  const bool alone = *numbers.rank_count == 1 || *base.rank_count == 1;
  if (!AnyGiven(base) || AnyGiven(changes) || alone || !(ChangesTraffic(changes) || ChangesCover(changes))) {
    return PartsOf(numbers, notes);
  }
  if (ShardingOf(base) != ShardingOf(numbers)) {
    return absl::FailedPreconditionError(
        absl::StrCat("\"", Label(changes),
                     "\" shards parameters another way than those whose seconds are known; give that plan "
                     "its own sync-s, or none, so that all is derived"));
  }
  if (ChangesTraffic(changes)) {
    if (const absl::Status s = CheckComparable(base, changes, numbers, notes); !s.ok()) return s;
  }
  Notes ignored;  // those of the base were made already
  const absl::StatusOr<Given> given = GivenOf(base, &ignored);
  if (!given.ok()) return given.status();
  Parts after = Hidden(TotalsAfter(base, *given, numbers), CoverOf(numbers));
  after.compute = numbers.compute_seconds.value_or(0);
  after.kept_shard_sync = after.shard_sync;  // as where they were measured
  after.kept_replica_sync = after.replica_sync;
  return after;
}

}  // namespace gradgate::planner
