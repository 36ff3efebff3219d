#include "proto/shm/stats_page.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/proto/golden.h"

namespace gradgate::page {
namespace {

std::string Size(const char* type, size_t bytes) { return std::string(type) + " bytes " + std::to_string(bytes) + "\n"; }

std::string Header() {
  std::string out = "version " + std::to_string(kMajor) + "." + std::to_string(kMinor) + "\n";
  out += "magic " + std::to_string(kMagic) + "\n";
  out += "layout_hash " + std::to_string(kLayoutHash) + "\n";
  out += Size("PageHeader", sizeof(PageHeader));
  out += GG_FIELD(PageHeader, magic);
  out += GG_FIELD(PageHeader, major);
  out += GG_FIELD(PageHeader, minor);
  out += GG_FIELD(PageHeader, header_bytes);
  out += GG_FIELD(PageHeader, page_bytes);
  out += GG_FIELD(PageHeader, layout_hash);
  out += GG_FIELD(PageHeader, window_slot_bytes);
  out += GG_FIELD(PageHeader, window_slot_count);
  out += GG_FIELD(PageHeader, event_slot_bytes);
  out += GG_FIELD(PageHeader, event_slot_count);
  out += GG_FIELD(PageHeader, reserved);
  out += Size("PageIdentity", sizeof(PageIdentity));
  out += GG_FIELD(PageIdentity, job_name);
  out += GG_FIELD(PageIdentity, run_id);
  out += GG_FIELD(PageIdentity, shim_version);
  out += GG_FIELD(PageIdentity, host_name);
  out += GG_FIELD(PageIdentity, attempt);
  out += GG_FIELD(PageIdentity, rank);
  out += GG_FIELD(PageIdentity, world_size);
  out += GG_FIELD(PageIdentity, local_rank);
  out += GG_FIELD(PageIdentity, process_id);
  out += GG_FIELD(PageIdentity, wall_time_ns);
  out += GG_FIELD(PageIdentity, monotonic_ns);
  out += GG_FIELD(PageIdentity, accumulate);
  out += GG_FIELD(PageIdentity, sync_mode);
  out += GG_FIELD(PageIdentity, enforcement);
  out += GG_FIELD(PageIdentity, reserved0);
  out += GG_FIELD(PageIdentity, config_hash);
  out += GG_FIELD(PageIdentity, launch_id);
  out += GG_FIELD(PageIdentity, reserved);
  return out;
}

std::string Counters() {
  std::string out;
  out += Size("PageTotals", sizeof(PageTotals));
  out += GG_FIELD(PageTotals, window_index);
  out += GG_FIELD(PageTotals, micro_step);
  out += GG_FIELD(PageTotals, micro_step_count);
  out += GG_FIELD(PageTotals, step_count);
  out += GG_FIELD(PageTotals, last_event_ns);
  out += GG_FIELD(PageTotals, sync_mode);
  out += GG_FIELD(PageTotals, policy_version);
  out += GG_FIELD(PageTotals, closed);
  out += GG_FIELD(PageTotals, window_full_count);
  out += GG_FIELD(PageTotals, window_partial_count);
  out += GG_FIELD(PageTotals, window_empty_count);
  out += GG_FIELD(PageTotals, window_late_count);
  out += GG_FIELD(PageTotals, window_unstepped_count);
  out += GG_FIELD(PageTotals, window_mismatched_count);
  out += GG_FIELD(PageTotals, window_disagreed_count);
  out += GG_FIELD(PageTotals, ballot_count);
  out += GG_FIELD(PageTotals, refused_count);
  out += GG_FIELD(PageTotals, warning_count);
  out += GG_FIELD(PageTotals, event_dropped_count);
  out += GG_FIELD(PageTotals, reconnect_count);
  out += GG_FIELD(PageTotals, item_count);
  out += GG_FIELD(PageTotals, override_count);
  out += GG_FIELD(PageTotals, window_discarded_count);
  out += GG_FIELD(PageTotals, micro_step_skipped_count);
  out += GG_FIELD(PageTotals, exposed_ns);
  out += GG_FIELD(PageTotals, wait_ns);
  out += GG_FIELD(PageTotals, micro_step_ns);
  out += GG_FIELD(PageTotals, window_ns);
  out += GG_FIELD(PageTotals, policy_staged_version);
  out += GG_FIELD(PageTotals, policy_adopted_window);
  out += GG_FIELD(PageTotals, policy_rejected_version);
  out += GG_FIELD(PageTotals, policy_rejection);
  out += Size("RoleTotals", sizeof(RoleTotals));
  out += GG_FIELD(RoleTotals, intended_count);
  out += GG_FIELD(RoleTotals, issued_count);
  out += GG_FIELD(RoleTotals, suppressed_count);
  out += GG_FIELD(RoleTotals, late_count);
  out += GG_FIELD(RoleTotals, declared_extra_count);
  out += GG_FIELD(RoleTotals, reserved);
  out += Size("CollectiveCell", sizeof(CollectiveCell));
  out += GG_FIELD(CollectiveCell, intended_count);
  out += GG_FIELD(CollectiveCell, issued_count);
  out += GG_FIELD(CollectiveCell, bytes);
  out += GG_FIELD(CollectiveCell, tensor_count);
  out += GG_FIELD(CollectiveCell, completed_count);
  out += GG_FIELD(CollectiveCell, failed_count);
  out += GG_FIELD(CollectiveCell, unknown_count);
  out += GG_FIELD(CollectiveCell, gradient_completed_count);
  out += GG_FIELD(CollectiveCell, duration_ns);
  out += GG_FIELD(CollectiveCell, last_issue_ns);
  out += GG_FIELD(CollectiveCell, last_complete_ns);
  out += GG_FIELD(CollectiveCell, reserved);
  out += Size("RingControl", sizeof(RingControl));
  out += GG_FIELD(RingControl, event_next);
  out += GG_FIELD(RingControl, window_next);
  out += GG_FIELD(RingControl, reserved);
  return out;
}

std::string Records() {
  std::string out;
  out += Size("WindowRecord", sizeof(WindowRecord));
  out += GG_FIELD(WindowRecord, window_index);
  out += GG_FIELD(WindowRecord, kind);
  out += GG_FIELD(WindowRecord, mode);
  out += GG_FIELD(WindowRecord, reserved0);
  out += GG_FIELD(WindowRecord, flags);
  out += GG_FIELD(WindowRecord, micro_steps);
  out += GG_FIELD(WindowRecord, planned_micro_steps);
  out += GG_FIELD(WindowRecord, min_micro_steps);
  out += GG_FIELD(WindowRecord, max_micro_steps);
  out += GG_FIELD(WindowRecord, last_reduction_at);
  out += GG_FIELD(WindowRecord, intended_reductions);
  out += GG_FIELD(WindowRecord, issued_reductions);
  out += GG_FIELD(WindowRecord, suppressed_reductions);
  out += GG_FIELD(WindowRecord, late_reductions);
  out += GG_FIELD(WindowRecord, intended_collectives);
  out += GG_FIELD(WindowRecord, issued_collectives);
  out += GG_FIELD(WindowRecord, completed_collectives);
  out += GG_FIELD(WindowRecord, failed_collectives);
  out += GG_FIELD(WindowRecord, reserved1);
  out += GG_FIELD(WindowRecord, gradient_bytes);
  out += GG_FIELD(WindowRecord, item_count);
  out += GG_FIELD(WindowRecord, begin_ns);
  out += GG_FIELD(WindowRecord, end_ns);
  out += GG_FIELD(WindowRecord, boundary_ns);
  out += GG_FIELD(WindowRecord, suppressed_median_ns);
  out += GG_FIELD(WindowRecord, exposed_ns);
  out += GG_FIELD(WindowRecord, wait_ns);
  out += GG_FIELD(WindowRecord, policy_version);
  out += GG_FIELD(WindowRecord, reserved2);
  out += Size("WindowSlot", sizeof(WindowSlot));
  out += GG_FIELD(WindowSlot, sequence);
  out += GG_FIELD(WindowSlot, words);
  out += Size("EventSlot", sizeof(EventSlot));
  out += GG_FIELD(EventSlot, sequence);
  out += GG_FIELD(EventSlot, time_ns);
  out += GG_FIELD(EventSlot, what);
  out += GG_FIELD(EventSlot, value);
  out += Size("StatsPage", sizeof(StatsPage));
  out += GG_FIELD(StatsPage, header);
  out += GG_FIELD(StatsPage, identity);
  out += GG_FIELD(StatsPage, totals);
  out += GG_FIELD(StatsPage, roles);
  out += GG_FIELD(StatsPage, cells);
  out += GG_FIELD(StatsPage, ring);
  out += GG_FIELD(StatsPage, windows);
  out += GG_FIELD(StatsPage, events);
  return out;
}

TEST(StatsPage, LayoutIsTheGoldenOne) { test::ExpectGolden(Header() + Counters() + Records(), "stats_page.golden"); }

// Numbers cross the page: a value that is renumbered is read as another.
TEST(StatsPage, EnumeratorsKeepTheirWireValues) {
  EXPECT_EQ(Name(static_cast<GroupRole>(0)), "dp");
  EXPECT_EQ(Name(static_cast<GroupRole>(2)), "replicate");
  EXPECT_EQ(Name(static_cast<CollectiveOp>(0)), "all_reduce");
  EXPECT_EQ(Name(static_cast<CollectiveOp>(10)), "recv");
  EXPECT_EQ(Name(static_cast<SyncMode>(3)), "window_replica");
  EXPECT_EQ(Name(static_cast<Enforcement>(2)), "audit");
  EXPECT_EQ(Name(static_cast<WindowKind>(2)), "partial");
  EXPECT_EQ(static_cast<int>(EventKind::kWindowClosed), 6);
  EXPECT_EQ(static_cast<int>(TrafficClass::kOther), 2);
}

TEST(StatsPage, NamesOfInvalidValuesAreNotReadOutOfBounds) {
  EXPECT_EQ(Name(static_cast<GroupRole>(4)), "invalid");
  EXPECT_EQ(Name(static_cast<CollectiveOp>(255)), "invalid");
  EXPECT_EQ(Name(static_cast<SyncMode>(255)), "unspecified");
}

TEST(StatsPage, WhatIsPackedAsSpecified) {
  EXPECT_EQ(
      PackWhat(EventKind::kCollectiveFailed, GroupRole::kReplicate, CollectiveOp::kRecv, TrafficClass::kOther, 0x89abcdef),
      0x89abcdef0002a205u);
}

}  // namespace
}  // namespace gradgate::page
