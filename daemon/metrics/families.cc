#include "daemon/metrics/families.h"

#include <string_view>

#include "daemon/metrics/family_builder.h"

namespace gradgate {
namespace {

using prometheus::MetricType;
using Families = std::vector<prometheus::MetricFamily>;

constexpr double kNsPerSecond = 1e9;
constexpr std::string_view kTrafficNames[kTrafficClassCount] = {"gradient", "ours", "other"};

std::string Text(std::string_view text) { return std::string(text); }
std::string SlotOf(const RankView& rank) { return std::to_string(rank.slot); }
const char* RoleName(size_t role) { return Name(static_cast<GroupRole>(role)).data(); }
const char* OpName(size_t op) { return Name(static_cast<CollectiveOp>(op)).data(); }

// One number of each rank.
struct RankMetric {
  const char* name;
  const char* help;
  MetricType metric_type;
  double (*value)(const RankView&);
};

const RankMetric kRankMetrics[] = {
    {"gradgate_rank_up", "1 while the trainer process is connected, 0 after it ended.", MetricType::Gauge,
     [](const RankView& r) { return r.state == RankState::kRunning ? 1.0 : 0.0; }},
    {"gradgate_rank_lost", "1 if the connection ended without a goodbye.", MetricType::Gauge,
     [](const RankView& r) { return r.state == RankState::kLost ? 1.0 : 0.0; }},
    {"gradgate_rank_failed", "1 if the trainer said goodbye with an error.", MetricType::Gauge,
     [](const RankView& r) { return r.state == RankState::kFailed ? 1.0 : 0.0; }},
    {"gradgate_last_event_timestamp_seconds", "Last call of the training loop into the shim.", MetricType::Gauge,
     [](const RankView& r) {
       const uint64_t at_ns = r.counters.totals.last_event_ns;
       return at_ns == 0 ? 0.0 : absl::ToDoubleSeconds(r.identity.WallTime(at_ns) - absl::UnixEpoch());
     }},
    {"gradgate_window_index", "The window that is open, or the next one, from 0.", MetricType::Gauge,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.window_index); }},
    {"gradgate_micro_steps_total", "Micro-steps begun.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.micro_step_count); }},
    {"gradgate_steps_total", "Optimizer steps announced and allowed.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.step_count); }},
    {"gradgate_windows_late_total", "Windows closed by a late reduction.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.window_late_count); }},
    {"gradgate_windows_unstepped_total", "Windows reduced, then not stepped.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.window_unstepped_count); }},
    {"gradgate_windows_mismatched_total", "Windows whose issued reductions were not the intended ones.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.window_mismatched_count); }},
    {"gradgate_windows_disagreed_total", "Windows in which the ballot showed ranks that differ.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.window_disagreed_count); }},
    {"gradgate_windows_missed_total", "Window records overwritten before the daemon read them.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.window_missed_count); }},
    {"gradgate_ballots_total", "Ballots taken.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.ballot_count); }},
    {"gradgate_steps_refused_total", "Optimizer steps refused with an error.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.refused_count); }},
    {"gradgate_warnings_total", "Warnings given in the trainer.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.warning_count); }},
    {"gradgate_items_total", "Items brought, where the loop tells them.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.item_count); }},
    {"gradgate_exposed_seconds_total", "Time that gradient synchronisation added to windows.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.exposed_ns) / kNsPerSecond; }},
    {"gradgate_wait_seconds_total", "Time blocked for reductions.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.wait_ns) / kNsPerSecond; }},
    {"gradgate_micro_step_seconds_total", "Time in micro-steps.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.micro_step_ns) / kNsPerSecond; }},
    {"gradgate_window_seconds_total", "Time in windows, first micro-step to step.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.window_ns) / kNsPerSecond; }},
    {"gradgate_events_read_total", "Events of the ring that the daemon read.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.event_read_count); }},
    {"gradgate_events_missed_total", "Events overwritten or dropped before the daemon read them.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.event_missed_count); }},
    {"gradgate_reconnects_total", "Times the trainer connected anew.", MetricType::Counter,
     [](const RankView& r) { return static_cast<double>(r.counters.totals.reconnect_count); }},
};

void AddRankMetrics(const NodeView& node, Families& out) {
  for (const RankMetric& metric : kRankMetrics) {
    FamilyBuilder family(metric.name, metric.help, metric.metric_type);
    for (const RankView& rank : node.ranks) family.Add({{"slot", SlotOf(rank)}}, metric.value(rank));
    family.MoveTo(out);
  }
  FamilyBuilder windows("gradgate_windows_total", "Windows closed, by the number of micro-steps brought.", MetricType::Counter);
  FamilyBuilder info("gradgate_rank_info", "Who a slot is, to join with.", MetricType::Gauge);
  for (const RankView& rank : node.ranks) {
    const TotalsValues& totals = rank.counters.totals;
    windows.Add({{"slot", SlotOf(rank)}, {"kind", "full"}}, static_cast<double>(totals.window_full_count));
    windows.Add({{"slot", SlotOf(rank)}, {"kind", "partial"}}, static_cast<double>(totals.window_partial_count));
    windows.Add({{"slot", SlotOf(rank)}, {"kind", "empty"}}, static_cast<double>(totals.window_empty_count));
    info.Add({{"slot", SlotOf(rank)},
              {"job_name", rank.identity.job_name},
              {"run_id", rank.identity.run_id},
              {"rank", std::to_string(rank.identity.rank)},
              {"local_rank", std::to_string(rank.identity.local_rank)},
              {"world_size", std::to_string(rank.identity.world_size)}},
             1);
  }
  windows.MoveTo(out);
  info.MoveTo(out);
}

// Reductions per role: series of the roles that a rank has used.
void AddReductions(const NodeView& node, Families& out) {
  struct Metric {
    const char* name;
    const char* help;
    uint64_t RoleValues::*value;
  };
  const Metric kMetrics[] = {
      {"gradgate_reductions_intended_total", "Reductions the policy wanted.", &RoleValues::intended_count},
      {"gradgate_reductions_issued_total", "Reductions issued, late ones included.", &RoleValues::issued_count},
      {"gradgate_reductions_suppressed_total", "Reductions the policy kept from happening.", &RoleValues::suppressed_count},
      {"gradgate_reductions_late_total", "Reductions issued at the step.", &RoleValues::late_count},
      {"gradgate_reductions_declared_extra_total", "Reductions forced by the framework.", &RoleValues::declared_extra_count},
  };
  for (const Metric& metric : kMetrics) {
    FamilyBuilder family(metric.name, metric.help, MetricType::Counter);
    for (const RankView& rank : node.ranks) {
      for (size_t role = 0; role < kGroupRoleCount; ++role) {
        const RoleValues& values = rank.counters.roles[role];
        if ((values.intended_count | values.issued_count | values.suppressed_count | values.late_count |
             values.declared_extra_count) == 0) {
          continue;
        }
        family.Add({{"slot", SlotOf(rank)}, {"group", RoleName(role)}}, static_cast<double>(values.*metric.value));
      }
    }
    family.MoveTo(out);
  }
}

// Collectives per role and operation: series of the cells that a rank has used.
void AddCollectives(const NodeView& node, Families& out) {
  FamilyBuilder intended("gradgate_collectives_intended_total", "Gradient collectives the policy wanted.", MetricType::Counter);
  FamilyBuilder issued("gradgate_collectives_issued_total", "Collectives issued, by what they were for.", MetricType::Counter);
  FamilyBuilder bytes("gradgate_collective_bytes_total", "Payload handed to collectives by this rank.", MetricType::Counter);
  FamilyBuilder tensors("gradgate_collective_tensors_total", "Tensors in collectives.", MetricType::Counter);
  FamilyBuilder completed("gradgate_collectives_completed_total", "Collectives completed.", MetricType::Counter);
  FamilyBuilder failed("gradgate_collectives_failed_total", "Collectives that ended in an error.", MetricType::Counter);
  FamilyBuilder unknown("gradgate_collectives_unknown_total", "Collectives whose end cannot be seen.", MetricType::Counter);
  for (const RankView& rank : node.ranks) {
    for (size_t role = 0; role < kGroupRoleCount; ++role) {
      for (size_t op = 0; op < kCollectiveOpCount; ++op) {
        const CellValues& cell = rank.counters.cells[role][op];
        if (!cell.any()) continue;
        const Labels labels = {{"slot", SlotOf(rank)}, {"group", RoleName(role)}, {"op", OpName(op)}};
        intended.Add(labels, static_cast<double>(cell.intended_count));
        for (size_t traffic = 0; traffic < kTrafficClassCount; ++traffic) {
          if (cell.issued_count[traffic] == 0) continue;
          Labels with_traffic = labels;
          with_traffic.push_back({"traffic", Text(kTrafficNames[traffic])});
          issued.Add(with_traffic, static_cast<double>(cell.issued_count[traffic]));
          bytes.Add(with_traffic, static_cast<double>(cell.bytes[traffic]));
        }
        tensors.Add(labels, static_cast<double>(cell.tensor_count));
        completed.Add(labels, static_cast<double>(cell.completed_count));
        failed.Add(labels, static_cast<double>(cell.failed_count));
        unknown.Add(labels, static_cast<double>(cell.unknown_count));
      }
    }
  }
  for (FamilyBuilder* family : {&intended, &issued, &bytes, &tensors, &completed, &failed, &unknown}) family->MoveTo(out);
}

void AddHistograms(const NodeHistograms& histograms, Families& out) {
  FamilyBuilder collectives("gradgate_collective_duration_seconds",
                            "Issue to completion of collectives, all ranks of the node.", MetricType::Histogram);
  for (size_t role = 0; role < kGroupRoleCount; ++role) {
    for (size_t op = 0; op < kCollectiveOpCount; ++op) {
      const CollectiveHistogram& histogram = histograms.collective_duration[role][op];
      if (histogram.count == 0) continue;
      collectives.Add({{"group", RoleName(role)}, {"op", OpName(op)}}, histogram, kCollectiveBoundsNs);
    }
  }
  collectives.MoveTo(out);
  FamilyBuilder windows("gradgate_window_duration_seconds", "First micro-step to step, all ranks of the node.",
                        MetricType::Histogram);
  windows.Add({}, histograms.window_duration, kWindowBoundsNs);
  windows.MoveTo(out);
  FamilyBuilder exposed("gradgate_window_exposed_seconds", "Time that gradient synchronisation added to a window, all ranks.",
                        MetricType::Histogram);
  exposed.Add({}, histograms.window_exposed, kWindowBoundsNs);
  exposed.MoveTo(out);
}

void AddNode(const NodeView& node, const RejectionCounts& rejections, const std::string& version, Families& out) {
  const auto add = [&out](const char* name, const char* help, MetricType metric_type, uint64_t value) {
    FamilyBuilder family(name, help, metric_type);
    family.Add({}, static_cast<double>(value));
    family.MoveTo(out);
  };
  add("gradgate_clients", "Trainers connected.", MetricType::Gauge, node.client_count);
  add("gradgate_clients_lost_total", "Trainers whose connection ended without a goodbye.", MetricType::Counter,
      node.lost_count);
  add("gradgate_jobs", "Jobs kept, running or ended.", MetricType::Gauge, node.job_count);
  FamilyBuilder rejected("gradgate_rejections_total", "Clients turned away, by reason.", MetricType::Counter);
  for (size_t i = 0; i < kRejectionCount; ++i) {
    const auto reason = static_cast<Rejection>(i);
    const absl::string_view name = Name(reason);
    rejected.Add({{"reason", std::string(name)}}, static_cast<double>(rejections.Get(reason)));
  }
  rejected.MoveTo(out);
  FamilyBuilder errors("gradgate_page_errors_total", "What was wrong inside accepted stats pages, by kind.",
                       MetricType::Counter);
  errors.Add({{"kind", "window_torn"}}, static_cast<double>(node.page_errors.window_torn_count));
  errors.Add({{"kind", "window_invalid"}}, static_cast<double>(node.page_errors.window_invalid_count));
  errors.Add({{"kind", "event_invalid"}}, static_cast<double>(node.page_errors.event_invalid_count));
  errors.Add({{"kind", "counters_backwards"}}, static_cast<double>(node.page_errors.counters_backwards_count));
  errors.Add({{"kind", "counters_invalid"}}, static_cast<double>(node.page_errors.counters_invalid_count));
  errors.MoveTo(out);
  FamilyBuilder build("gradgate_build_info", "Version of the daemon.", MetricType::Gauge);
  build.Add({{"version", version}}, 1);
  build.MoveTo(out);
}

}  // namespace

std::vector<prometheus::MetricFamily> BuildFamilies(const NodeView& node, const RejectionCounts& rejections,
                                                    const std::string& version) {
  Families out;
  AddNode(node, rejections, version, out);
  AddRankMetrics(node, out);
  AddReductions(node, out);
  AddCollectives(node, out);
  AddHistograms(node.histograms, out);
  return out;
}

}  // namespace gradgate
