#include "daemon/metrics/families.h"

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "daemon/metrics/store_families.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"

namespace gradgate {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

NodeView MakeNode() {
  NodeView node;
  node.client_count = 1;
  node.job_count = 1;
  RankView rank;
  rank.slot = 3;
  rank.identity.job_name = "job";
  rank.identity.run_id = std::string(32, 'a');
  rank.identity.rank = 5;
  rank.identity.local_rank = 1;
  rank.identity.world_size = 8;
  rank.identity.wall_time_ns = 1'700'000'000'000'000'000;
  rank.counters.totals.last_event_ns = 2'000'000'000;
  rank.counters.totals.micro_step_count = 40;
  rank.counters.totals.window_full_count = 9;
  rank.counters.totals.window_partial_count = 1;
  rank.counters.totals.exposed_ns = 1'500'000'000;
  rank.counters.roles[0].intended_count = 10;
  rank.counters.roles[0].issued_count = 10;
  rank.counters.roles[0].suppressed_count = 30;
  CellValues& cell = rank.counters.cells[0][0];
  cell.intended_count = 20;
  cell.issued_count[0] = 20;
  cell.issued_count[1] = 10;
  cell.bytes[0] = 4096;
  cell.completed_count = 30;
  rank.event_missed_count = 2;
  node.ranks.push_back(rank);
  node.histograms.collective_duration[0][0].Observe(2 * kMs, kCollectiveBoundsNs);
  node.histograms.collective_duration[0][0].Observe(60 * kSecond, kCollectiveBoundsNs);
  node.histograms.window_duration.Observe(1 * kMs, kWindowBoundsNs);
  return node;
}

std::string Serialize(const NodeView& node, const RejectionCounts& rejections) {
  return prometheus::TextSerializer().Serialize(BuildFamilies(node, rejections, "1.2.3"));
}

TEST(Families, SeriesOfARank) {
  RejectionCounts rejections;
  rejections.Add(Rejection::kPageUnsealed);
  const std::string text = Serialize(MakeNode(), rejections);
  const char* const lines[] = {
      "gradgate_build_info{version=\"1.2.3\"} 1\n",
      "gradgate_clients 1\n",
      "gradgate_clients_lost_total 0\n",
      "gradgate_collective_bytes_total{slot=\"3\",group=\"dp\",op=\"all_reduce\",traffic=\"gradient\"} 4096\n",
      "gradgate_collectives_completed_total{slot=\"3\",group=\"dp\",op=\"all_reduce\"} 30\n",
      "gradgate_collectives_issued_total{slot=\"3\",group=\"dp\",op=\"all_reduce\",traffic=\"gradient\"} 20\n",
      "gradgate_collectives_issued_total{slot=\"3\",group=\"dp\",op=\"all_reduce\",traffic=\"ours\"} 10\n",
      "gradgate_events_missed_total{slot=\"3\"} 2\n",
      "gradgate_exposed_seconds_total{slot=\"3\"} 1.5\n",
      "gradgate_last_event_timestamp_seconds{slot=\"3\"} 1700000002\n",
      "gradgate_micro_steps_total{slot=\"3\"} 40\n",
      "gradgate_rank_info{slot=\"3\",job_name=\"job\",run_id=\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",rank=\"5\",",
      "rank=\"5\",local_rank=\"1\",world_size=\"8\"} 1\n",
      "gradgate_rank_up{slot=\"3\"} 1\n",
      "gradgate_reductions_intended_total{slot=\"3\",group=\"dp\"} 10\n",
      "gradgate_reductions_suppressed_total{slot=\"3\",group=\"dp\"} 30\n",
      "gradgate_rejections_total{reason=\"page_unsealed\"} 1\n",
      "gradgate_windows_mismatched_total{slot=\"3\"} 0\n",
      "gradgate_windows_total{slot=\"3\",kind=\"full\"} 9\n",
      "gradgate_windows_total{slot=\"3\",kind=\"empty\"} 0\n",
      "gradgate_collective_duration_seconds_count{group=\"dp\",op=\"all_reduce\"} 2\n",
      "gradgate_collective_duration_seconds_bucket{group=\"dp\",op=\"all_reduce\",le=\"0.003\"} 1\n",
      "gradgate_collective_duration_seconds_bucket{group=\"dp\",op=\"all_reduce\",le=\"+Inf\"} 2\n",
      "gradgate_window_duration_seconds_bucket{le=\"0.001\"} 1\n",
  };
  for (const char* line : lines) EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("group=\"shard\""))) << "roles that were never used have no series";
}

TEST(Families, EndedRankIsDown) {
  NodeView node = MakeNode();
  node.ranks[0].state = RankState::kLost;
  const std::string text = Serialize(node, RejectionCounts());
  EXPECT_THAT(text, HasSubstr("gradgate_rank_up{slot=\"3\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("gradgate_rank_lost{slot=\"3\"} 1\n"));
}

TEST(Families, NamesAndLabelsKeepTheRules) {
  const std::set<std::string> allowed = {"slot",   "group", "op",      "traffic",    "kind",     "reason",
                                         "run_id", "rank",  "version", "local_rank", "job_name", "world_size"};
  std::set<std::string> names;
  auto families = BuildFamilies(MakeNode(), RejectionCounts(), "1");
  AppendStoreFamilies(StoreHealth(), families);
  for (const auto& family : families) {
    EXPECT_EQ(family.name.rfind("gradgate_", 0), 0u) << family.name;
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " twice";
    EXPECT_FALSE(family.help.empty()) << family.name;
    const bool total = family.name.size() > 6 && family.name.substr(family.name.size() - 6) == "_total";
    EXPECT_EQ(total, family.type == prometheus::MetricType::Counter) << family.name;
    for (const auto& metric : family.metric) {
      for (const auto& label : metric.label) EXPECT_EQ(allowed.count(label.name), 1u) << family.name << " " << label.name;
    }
  }
}

TEST(Families, BucketsAreTenToFourteen) {
  EXPECT_GE(kCollectiveBoundsNs.size(), 10u);
  EXPECT_LE(kCollectiveBoundsNs.size(), 14u);
  EXPECT_GE(kWindowBoundsNs.size(), 10u);
  EXPECT_LE(kWindowBoundsNs.size(), 14u);
}

// The budget of a scrape: 16 ranks, each with three busy cells, in 200 KB.
TEST(Families, SixteenRanksStayWithinTheBudget) {
  NodeView node = MakeNode();
  RankView rank = node.ranks[0];
  for (auto op : {CollectiveOp::kReduceScatter, CollectiveOp::kAllGather, CollectiveOp::kBroadcast}) {
    rank.counters.cells[1][static_cast<size_t>(op)] = rank.counters.cells[0][0];
  }
  node.ranks.clear();
  for (uint32_t slot = 0; slot < 16; ++slot) {
    rank.slot = slot;
    node.ranks.push_back(rank);
  }
  EXPECT_LT(Serialize(node, RejectionCounts()).size(), 200'000u);
}

TEST(Families, SeriesOfTheStore) {
  StoreHealth health;
  health.reachable = false;
  health.key_count = 3;
  health.change_count = 4;
  health.error_count = 5;
  health.dropped_count = 6;
  std::vector<prometheus::MetricFamily> families;
  AppendStoreFamilies(health, families);
  const std::string text = prometheus::TextSerializer().Serialize(families);
  for (const char* line : {"gradgate_store_reachable 0\n", "gradgate_store_keys 3\n", "gradgate_store_changes_total 4\n",
                           "gradgate_store_errors_total 5\n", "gradgate_store_dropped_total 6\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace gradgate
