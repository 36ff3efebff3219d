#include "shim/capi/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shim/capi/ledger_job.h"

namespace gradgate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr GroupRole kDp = GroupRole::kDp, kShard = GroupRole::kShard, kReplicate = GroupRole::kReplicate;

void Hsdp(SyncMode mode, LedgerOptions& o) {
  o.roles = kHsdpRoles;
  o.mode = mode;
}

TEST(Ledger, WindowReducesEachRoleOnceAtTheBoundary) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    for (int window = 0; window < 3; ++window) {
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(MicroStep(ledger));
      EXPECT_TRUE(MicroStep(ledger, {kDp}));
      const ClosedWindow closed = CloseWindow(ledger, Stepped(4));
      EXPECT_EQ(closed.kind, WindowKind::kFull);
      EXPECT_EQ(closed.window_index, static_cast<uint64_t>(window));
      EXPECT_FALSE(closed.late);
    }
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{3, 3, 9, 0, 0}));
    const page::PageTotals& totals = ledger.page().totals;
    EXPECT_EQ(Count(totals.window_mismatched_count), 0u);
    EXPECT_EQ(Count(totals.window_full_count), 3u);
    EXPECT_EQ(Count(totals.step_count), 3u);
    EXPECT_EQ(Count(totals.micro_step_count), 12u);
    EXPECT_EQ(Count(totals.warning_count), 0u);
    const page::WindowRecord record = LastRecord(ledger);
    EXPECT_EQ(record.last_reduction_at, 4u);
    EXPECT_EQ(record.intended_collectives, 2u);
    EXPECT_EQ(record.issued_collectives, 2u);
    EXPECT_EQ(record.completed_collectives, 2u);
    EXPECT_EQ(record.gradient_bytes, 200u);
    EXPECT_EQ(record.suppressed_reductions, 3u);
    EXPECT_EQ(record.flags, 0u);
  });
}

TEST(Ledger, WindowReplicaReducesShardsInEachMicroStepAndReplicasOnce) {
  LedgerJob job(4);
  job.Run([](uint32_t, LedgerOptions& o) { Hsdp(SyncMode::kWindowReplica, o); },
          [&](uint32_t, Ledger& ledger) {
            for (int i = 0; i < 3; ++i) MicroStep(ledger, {kShard});
            MicroStep(ledger, {kShard, kReplicate});
            CloseWindow(ledger, Stepped(4));
            EXPECT_EQ(Role(ledger, kShard), (RoleCounts{4, 4, 0, 0, 0}));
            EXPECT_EQ(Role(ledger, kReplicate), (RoleCounts{1, 1, 3, 0, 0}));
            const page::WindowRecord record = LastRecord(ledger);
            EXPECT_EQ(record.mode, static_cast<uint8_t>(SyncMode::kWindowReplica));
            EXPECT_EQ(record.intended_reductions, 5u);
            EXPECT_EQ(record.issued_reductions, 5u);
            EXPECT_EQ(record.last_reduction_at, 4u);
            EXPECT_EQ(record.intended_collectives, record.issued_collectives);
            EXPECT_EQ(record.flags, 0u);
          });
  EXPECT_THAT(job.log(0), IsEmpty());
}

TEST(Ledger, WindowDefersBothRolesOfHsdp) {
  LedgerJob job(4);
  job.Run([](uint32_t, LedgerOptions& o) { Hsdp(SyncMode::kWindow, o); },
          [&](uint32_t, Ledger& ledger) {
            for (int i = 0; i < 3; ++i) MicroStep(ledger);
            MicroStep(ledger, {kShard, kReplicate});
            CloseWindow(ledger, Stepped(4));
            EXPECT_EQ(Role(ledger, kShard), (RoleCounts{1, 1, 3, 0, 0}));
            EXPECT_EQ(Role(ledger, kReplicate), (RoleCounts{1, 1, 3, 0, 0}));
          });
}

TEST(Ledger, EveryMicroStepIntendsOnePerMicroStep) {
  LedgerJob job(2);
  job.Run([](uint32_t, LedgerOptions& o) { o.mode = SyncMode::kEveryMicroStep; },
          [&](uint32_t, Ledger& ledger) {
            for (int i = 0; i < 4; ++i) EXPECT_EQ(MicroStep(ledger, {kDp}), i == 3);
            CloseWindow(ledger, Stepped(4));
            EXPECT_EQ(Role(ledger, kDp), (RoleCounts{4, 4, 0, 0, 0}));
            EXPECT_EQ(Count(ledger.page().totals.window_mismatched_count), 0u);
          });
}

TEST(Ledger, PartialWindowIsReducedLate) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    MicroStep(ledger);
    MicroStep(ledger);
    ASSERT_TRUE(ledger.LateBegin().ok());
    EXPECT_EQ(ledger.counts().gradient_collectives(kDp), 0u);
    Issue(ledger, kDp, 3);
    EXPECT_EQ(ledger.counts().gradient_collectives(kDp), 3u);
    const ClosedWindow closed = CloseWindow(ledger, Stepped(2));
    EXPECT_EQ(closed.kind, WindowKind::kPartial);
    EXPECT_TRUE(closed.late);
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{1, 1, 2, 1, 0}));
    EXPECT_EQ(LastRecord(ledger).flags, page::kWindowLate);
    EXPECT_EQ(LastRecord(ledger).last_reduction_at, 2u);
    EXPECT_EQ(LastRecord(ledger).intended_collectives, 3u);
    MicroStep(ledger);
    EXPECT_EQ(ledger.engine().counts().micro_steps, 1u);
  });
  EXPECT_THAT(job.log(0), IsEmpty());
}

// A boundary that was skipped, or whose backward never ran, leaves the window as one that can be reduced late.
TEST(Ledger, ClosingMicroStepWithoutABackwardStaysOpen) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    for (int i = 0; i < 3; ++i) MicroStep(ledger);
    EXPECT_TRUE(MicroStep(ledger));
    EXPECT_EQ(ledger.engine().state(), WindowEngine::State::kOpen);
    ASSERT_TRUE(ledger.LateBegin().ok());
    Issue(ledger, kDp);
    LedgerWindowEnd end = Stepped(4);
    end.skipped = 1;
    EXPECT_TRUE(CloseWindow(ledger, end).late);
    EXPECT_EQ(LastRecord(ledger).last_reduction_at, 4u);
    EXPECT_EQ(Count(ledger.page().totals.micro_step_skipped_count), 1u);
    EXPECT_EQ(Count(ledger.page().totals.window_mismatched_count), 0u);
  });
}

TEST(Ledger, HalfReducedBoundaryStaysOpen) {
  LedgerJob job(2);
  job.Run([](uint32_t, LedgerOptions& o) { Hsdp(SyncMode::kWindow, o); },
          [&](uint32_t, Ledger& ledger) {
            for (int i = 0; i < 3; ++i) MicroStep(ledger);
            MicroStep(ledger, {kShard});
            EXPECT_EQ(ledger.engine().state(), WindowEngine::State::kOpen);
            CloseWindow(ledger, Stepped(4));
            EXPECT_EQ(LastRecord(ledger).flags, page::kWindowMismatched);
          });
}

TEST(Ledger, AbandonedMicroStepLeavesTheWindowAsItWas) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    for (int i = 0; i < 3; ++i) MicroStep(ledger);
    bool closes = false;
    ASSERT_TRUE(ledger.BeginMicroStep(Last::kByCount, &closes).ok());
    ASSERT_TRUE(ledger.AbandonMicroStep().ok());
    EXPECT_TRUE(closes);
    EXPECT_EQ(ledger.engine().counts().micro_steps, 3u);
    EXPECT_TRUE(MicroStep(ledger, {kDp}));
    CloseWindow(ledger, Stepped(4));
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{1, 1, 3, 0, 0}));
    EXPECT_EQ(ledger.AbandonMicroStep().code(), Code::kFailedPrecondition);
  });
}

TEST(Ledger, OverrideIsCountedAndToldOnce) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    MicroStep(ledger, {kDp});
    MicroStep(ledger, {kDp});
    MicroStep(ledger);
    MicroStep(ledger, {kDp});
    CloseWindow(ledger, Stepped(4));
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{1, 3, 1, 0, 0}));
    EXPECT_EQ(Count(ledger.page().totals.override_count), 2u);
    EXPECT_EQ(Count(ledger.page().totals.warning_count), 2u);
    EXPECT_EQ(LastRecord(ledger).flags, page::kWindowMismatched);
    EXPECT_EQ(LastRecord(ledger).intended_collectives, 2u);
    EXPECT_EQ(LastRecord(ledger).issued_collectives, 6u);
  });
  EXPECT_THAT(job.log(0), ElementsAre(HasSubstr("override: window 0, micro-step 1: gradients were reduced (dp)")));
}

TEST(Ledger, ReductionOutsideAMicroStepIsTold) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    Issue(ledger, kDp);
    MicroStep(ledger);
    Issue(ledger, kDp);
    ASSERT_TRUE(ledger.Close().ok());
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{0, 2, 1, 0, 0}));
    EXPECT_EQ(Count(ledger.page().totals.override_count), 2u);
  });
  EXPECT_THAT(job.log(0), ElementsAre(HasSubstr("outside_window: "), HasSubstr("open_window: ")));
}

TEST(Ledger, CollectivesInGroupsThatAreNotTheJobsAreNoOverride) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    for (int i = 0; i < 3; ++i) MicroStep(ledger, {GroupRole::kOther});
    MicroStep(ledger, {kDp});
    CloseWindow(ledger, Stepped(4));
    EXPECT_EQ(Count(ledger.page().totals.warning_count), 0u);
    EXPECT_EQ(LastRecord(ledger).flags, 0u);
    EXPECT_EQ(Role(ledger, GroupRole::kOther).issued, 3u);
  });
}

TEST(Ledger, OtherTrafficIsNoReduction) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    for (int i = 0; i < 4; ++i) {
      bool closes = false;
      ASSERT_TRUE(ledger.BeginMicroStep(Last::kByCount, &closes).ok());
      ledger.counts().Issued(kDp, CollectiveOp::kAllReduce, TrafficClass::kOther, 8, 1);
      ledger.counts().Issued(kDp, CollectiveOp::kAllReduce, TrafficClass::kOurs, 8, 1);
      if (closes) Issue(ledger, kDp, 1);
      EXPECT_EQ(ledger.counts().trainer_collectives(kDp), closes ? 2u : 1u);
      ASSERT_TRUE(ledger.EndMicroStep().ok());
    }
    CloseWindow(ledger, Stepped(4));
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{1, 1, 3, 0, 0}));
    const page::CollectiveCell& cell = ledger.page().cells[0][0];
    EXPECT_EQ(Count(cell.issued_count[0]), 1u);
    EXPECT_EQ(Count(cell.issued_count[1]), 4u);
    EXPECT_EQ(Count(cell.issued_count[2]), 4u);
  });
}

TEST(Ledger, DeclaredExtraIsNeitherMismatchedNorToldAndOnlyWhatHappensIsCounted) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    ASSERT_TRUE(ledger.DeclareExtra(kDp, 2).ok());
    MicroStep(ledger, {kDp});
    for (int i = 0; i < 2; ++i) MicroStep(ledger);
    MicroStep(ledger, {kDp});
    CloseWindow(ledger, Stepped(4));
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{1, 2, 2, 0, 1}));
    EXPECT_EQ(LastRecord(ledger).flags, 0u);
    EXPECT_EQ(Count(ledger.page().totals.override_count), 0u);
  });
  EXPECT_THAT(job.log(0), IsEmpty());
}

TEST(Ledger, PredictedWindowThatIsOutrunDeclaresItsSecondReduction) {
  LedgerJob job(2);
  job.Run([](uint32_t, LedgerOptions& o) { o.accumulate = 0; },
          [&](uint32_t, Ledger& ledger) {
            ASSERT_TRUE(ledger.Predict(2).ok());
            for (const int micro_steps : {2, 3}) {
              EXPECT_FALSE(MicroStep(ledger));
              EXPECT_TRUE(MicroStep(ledger, {kDp}));
              EXPECT_EQ(ledger.Predict(3).code(), Code::kFailedPrecondition) << "inside a window";
              if (micro_steps == 3) {
                EXPECT_FALSE(MicroStep(ledger));
                ASSERT_TRUE(ledger.LateBegin().ok());
                Issue(ledger, kDp, 1);
              }
              CloseWindow(ledger, Stepped(micro_steps));
              EXPECT_EQ(LastRecord(ledger).flags, micro_steps == 3 ? page::kWindowLate : 0u);
            }
            EXPECT_EQ(Role(ledger, kDp), (RoleCounts{2, 3, 3, 1, 1}));
          });
  EXPECT_THAT(job.log(0), IsEmpty());
}

TEST(Ledger, DeclaredWindowsAreNotPredicted) {
  LedgerJob job(1);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    const Status refused = ledger.Predict(2);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("of 4 micro-steps"));
    EXPECT_TRUE(ledger.Predict(0).ok());
  });
}

TEST(Ledger, AuditCountsWhatThePolicyWouldHaveDone) {
  LedgerJob job(4);
  job.Run(
      [](uint32_t, LedgerOptions& o) {
        Hsdp(SyncMode::kWindowReplica, o);
        o.enforcement = Enforcement::kAudit;
      },
      [&](uint32_t, Ledger& ledger) {
        for (int i = 0; i < 4; ++i) EXPECT_EQ(MicroStep(ledger, {kShard, kReplicate}), i == 3);
        CloseWindow(ledger, Stepped(4));
        EXPECT_EQ(Role(ledger, kShard), (RoleCounts{4, 4, 0, 0, 0}));
        EXPECT_EQ(Role(ledger, kReplicate), (RoleCounts{1, 4, 0, 0, 0}));
        const page::WindowRecord record = LastRecord(ledger);
        EXPECT_EQ(record.flags, page::kWindowMismatched);
        EXPECT_EQ(record.mode, static_cast<uint8_t>(SyncMode::kEveryMicroStep));
        EXPECT_EQ(record.intended_collectives, 10u);
        EXPECT_EQ(record.issued_collectives, 16u);
      });
  EXPECT_THAT(job.log(0), IsEmpty());
}

TEST(Ledger, OffIntendsWhatTheWrapperDoes) {
  LedgerJob job(2);
  job.Run([](uint32_t, LedgerOptions& o) { o.enforcement = Enforcement::kOff; },
          [&](uint32_t, Ledger& ledger) {
            for (int i = 0; i < 4; ++i) MicroStep(ledger, {kDp});
            CloseWindow(ledger, Stepped(4));
            EXPECT_EQ(Role(ledger, kDp), (RoleCounts{4, 4, 0, 0, 0}));
            EXPECT_EQ(LastRecord(ledger).flags, 0u);
          });
}

TEST(Ledger, AloneNothingIsIntended) {
  LedgerJob job(1);
  job.Run([](uint32_t, LedgerOptions& o) { o.store = nullptr; },
          [&](uint32_t, Ledger& ledger) {
            for (int i = 0; i < 3; ++i) MicroStep(ledger);
            MicroStep(ledger, {kDp});  // a wrapper in a group of one
            CloseWindow(ledger, Stepped(4));
            EXPECT_EQ(Role(ledger, kDp), (RoleCounts{0, 1, 0, 0, 0}));
            EXPECT_EQ(LastRecord(ledger).flags, 0u);
            EXPECT_TRUE(ledger.Fail("alone").ok());
          });
  EXPECT_THAT(job.log(0), IsEmpty());
}

TEST(Ledger, ObservedWindowNeverClosesByCount) {
  LedgerJob job(2);
  job.Run([](uint32_t, LedgerOptions& o) { o.accumulate = 0; },
          [&](uint32_t, Ledger& ledger) {
            for (int i = 0; i < 9; ++i) EXPECT_FALSE(MicroStep(ledger));
            ASSERT_TRUE(ledger.LateBegin().ok());
            Issue(ledger, kDp);
            EXPECT_EQ(CloseWindow(ledger, Stepped(9)).kind, WindowKind::kFull);
            EXPECT_EQ(Role(ledger, kDp), (RoleCounts{1, 1, 9, 1, 0}));
            EXPECT_EQ(LastRecord(ledger).planned_micro_steps, 0u);
          });
}

TEST(Ledger, AutoBeginsWithTheLeastMemoryAndMovesBetweenWindows) {
  const std::pair<uint32_t, SyncMode> rows[] = {
      {kDpRole, SyncMode::kWindow}, {kHsdpRoles, SyncMode::kWindowReplica}, {RoleBit(kShard), SyncMode::kEveryMicroStep}};
  for (const auto& row : rows) {
    const uint32_t roles = row.first;
    const SyncMode first = row.second;
    LedgerJob job(2);
    job.Run(
        [&](uint32_t, LedgerOptions& o) {
          o.roles = roles;
          o.mode = SyncMode::kAuto;
        },
        [&](uint32_t, Ledger& ledger) {
          EXPECT_EQ(ledger.mode_in_force(), first);
          EXPECT_EQ(Count(ledger.page().totals.sync_mode), static_cast<uint64_t>(first));
          EXPECT_EQ(ledger.page().identity.sync_mode, static_cast<uint8_t>(SyncMode::kAuto));
          MicroStep(ledger);
          EXPECT_EQ(ledger.SetMode(SyncMode::kWindow).code(), Code::kFailedPrecondition);
          CloseWindow(ledger, Stepped(1));
          EXPECT_TRUE(ledger.SetMode(SyncMode::kWindow).ok());
          EXPECT_EQ(ledger.mode_in_force(), SyncMode::kWindow);
          EXPECT_EQ(Count(ledger.page().totals.sync_mode), static_cast<uint64_t>(SyncMode::kWindow));
        });
  }
}

TEST(Ledger, DiscardedWindowTakesNoStep) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    for (int i = 0; i < 4; ++i) MicroStep(ledger);
    CloseWindow(ledger, {.discarded = true, .min_micro_steps = 4, .max_micro_steps = 4, .items = 7});
    const page::PageTotals& totals = ledger.page().totals;
    EXPECT_EQ(Count(totals.window_discarded_count), 1u);
    EXPECT_EQ(Count(totals.window_unstepped_count), 0u);
    EXPECT_EQ(Count(totals.step_count), 0u);
    EXPECT_EQ(Count(totals.item_count), 7u);
    EXPECT_EQ(LastRecord(ledger).flags & page::kWindowUnstepped, page::kWindowUnstepped);
  });
}

TEST(Ledger, NobodyBroughtDataSoNothingIsIntended) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    EXPECT_EQ(CloseWindow(ledger, {.stepped = true}).kind, WindowKind::kEmpty);
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{0, 0, 0, 0, 0}));
    EXPECT_EQ(Count(ledger.page().totals.step_count), 0u);
    EXPECT_EQ(LastRecord(ledger).flags, 0u);
  });
}

TEST(Ledger, CompletionAfterTheWindowBelongsToNoWindow) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    bool closes = false;
    ASSERT_TRUE(ledger.BeginMicroStep(Last::kYes, &closes).ok());
    const int64_t at_ns = ledger.counts().Issued(kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, 100, 1);
    const int64_t unknown_ns = ledger.counts().Issued(kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, 100, 1);
    ASSERT_TRUE(ledger.EndMicroStep().ok());
    CloseWindow(ledger, Stepped(1));
    EXPECT_EQ(LastRecord(ledger).completed_collectives, 0u);
    ledger.counts().Done(kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, at_ns, Outcome::kOk);
    ledger.counts().Done(kDp, CollectiveOp::kAllReduce, TrafficClass::kGradient, unknown_ns, Outcome::kUnknown);
    MicroStep(ledger, {kDp}, Last::kYes);
    CloseWindow(ledger, Stepped(1));
    EXPECT_EQ(LastRecord(ledger).completed_collectives, 2u);
    const page::CollectiveCell& cell = ledger.page().cells[0][0];
    EXPECT_EQ(Count(cell.completed_count), 3u);
    EXPECT_EQ(Count(cell.unknown_count), 1u);
    EXPECT_EQ(Count(cell.issued_count[0]), 4u);
  });
}

TEST(Ledger, ThreadsThatIssueLoseNothing) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t rank, Ledger& ledger) {
    if (rank != 0) return;
    constexpr uint32_t kThreads = 4, kEach = 5000, kWindows = 3;
    for (uint32_t window = 0; window < kWindows; ++window) {
      bool closes = false;
      ASSERT_TRUE(ledger.BeginMicroStep(Last::kYes, &closes).ok());
      std::vector<std::thread> threads;
      for (uint32_t t = 0; t < kThreads; ++t) threads.emplace_back([&ledger] { Issue(ledger, kDp, kEach); });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(ledger.counts().gradient_collectives(kDp), kThreads * kEach);
      ASSERT_TRUE(ledger.EndMicroStep().ok());
      CloseWindow(ledger, Stepped(1));
      EXPECT_EQ(LastRecord(ledger).issued_collectives, kThreads * kEach);
      EXPECT_EQ(LastRecord(ledger).completed_collectives, kThreads * kEach);
    }
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{kWindows, kWindows, 0, 0, 0}));
    EXPECT_EQ(Count(ledger.page().cells[0][0].issued_count[0]), uint64_t{kThreads} * kEach * kWindows);
  });
}

}  // namespace
}  // namespace gradgate
