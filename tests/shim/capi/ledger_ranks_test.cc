// What ranks tell each other: handshake, ballots, who is missing, who failed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shim/capi/ledger.h"
#include "tests/shim/capi/ledger_job.h"

namespace gradgate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr GroupRole kDp = GroupRole::kDp;
constexpr int64_t kMs = 1'000'000;

TEST(LedgerRanks, FactsThatDifferAreNamed) {
  LedgerJob job(3);
  job.Run(
      [](uint32_t rank, LedgerOptions& o) {
        o.facts = {{"torch", "2.13.0"}, {"wrapper", rank == 1 ? "Fsdp2" : "Ddp"}};
        if (rank == 2) o.roles = kHsdpRoles;
      },
      nullptr);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(job.created(rank).code(), Code::kAborted);
    EXPECT_THAT(job.created(rank).message(), HasSubstr("rank 1 has wrapper=Fsdp2 where rank 0 has Ddp"));
    EXPECT_THAT(job.created(rank).message(), HasSubstr("rank 2 has roles=shard, replicate where rank 0 has dp"));
  }
}

TEST(LedgerRanks, RankWithoutGradgateIsNamed) {
  LedgerJob job(3);
  job.Run(
      [](uint32_t rank, LedgerOptions& o) {
        o.handshake_deadline_ns = 300 * kMs;
        if (rank == 1) o.store_prefix = "elsewhere/";
      },
      nullptr);
  EXPECT_EQ(job.created(0).code(), Code::kDeadlineExceeded);
  EXPECT_THAT(job.created(0).message(), HasSubstr("no gradgate on ranks [1] within 0.3 s"));
  EXPECT_THAT(job.created(2).message(), HasSubstr("no gradgate on ranks [1]"));
}

TEST(LedgerRanks, BallotTellsWindowMicroStepsAndWhatOwnersSay) {
  LedgerJob job(3);
  job.Run([](uint32_t, LedgerOptions& o) { o.variable_windows = true; },
          [&](uint32_t rank, Ledger& ledger) {
            for (uint32_t i = 0; i < 2 + rank; ++i) MicroStep(ledger);
            const BallotResult said = job.Vote(
                rank, ledger, {.skipped = rank == 2, .out_of_data = rank == 0, .headroom = 100 + int64_t{rank}, .staged = 5});
            EXPECT_EQ(said.min().micro_steps, 2);
            EXPECT_EQ(said.max().micro_steps, 4);
            EXPECT_TRUE(said.unequal());
            EXPECT_FALSE(said.incompatible());
            EXPECT_TRUE(said.differs(false)) << "skipped by some";
            EXPECT_EQ(said.min().headroom, 100);
            EXPECT_EQ(said.min().staged, said.max().staged);
            EXPECT_EQ(said.min().out_of_data, 0);
            EXPECT_EQ(said.max().out_of_data, 1);
            EXPECT_TRUE(said.all_close());
            EXPECT_EQ(Count(ledger.page().totals.ballot_count), 1u);
          });
}

TEST(LedgerRanks, BallotInsideTheBoundaryCountsItsMicroStep) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t rank, Ledger& ledger) {
    for (int i = 0; i < 3; ++i) MicroStep(ledger);
    BallotResult said(LedgerJob::Words{});
    if (rank == 0) {
      bool closes = false;
      ASSERT_TRUE(ledger.BeginMicroStep(Last::kByCount, &closes).ok());
      // Where the backward runs, which the loop waits for.
      std::thread backward([&] {
        said = job.Vote(rank, ledger, {.contributes = 1});
        Issue(ledger, kDp);
      });
      backward.join();
      ASSERT_TRUE(ledger.EndMicroStep().ok());
    } else {
      MicroStep(ledger);
      said = job.Vote(rank, ledger, {});
    }
    EXPECT_EQ(said.min().micro_steps, 4);
    EXPECT_FALSE(said.unequal());
    EXPECT_TRUE(said.any_contributes());
    EXPECT_EQ(said.min().contributes, 0);
    EXPECT_FALSE(said.differs(true));
  });
}

TEST(LedgerRanks, RanksInDifferentWindowsOrRoundsAreIncompatible) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t rank, Ledger& ledger) {
    EXPECT_FALSE(job.Vote(rank, ledger, {}).incompatible());
    CloseWindow(ledger, Stepped(0));
    EXPECT_FALSE(job.Vote(rank, ledger, {}).incompatible());
    if (rank == 0) CloseWindow(ledger, Stepped(0));
    EXPECT_TRUE(job.Vote(rank, ledger, {}).incompatible());
  });
}

TEST(LedgerRanks, ParityDiffersAlsoWhereOnlySomeSampled) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t rank, Ledger& ledger) {
    EXPECT_FALSE(job.Vote(rank, ledger, {.parity = 77}).differs(true));
    EXPECT_TRUE(job.Vote(rank, ledger, {.parity = 77 + int64_t{rank}}).differs(true));
    EXPECT_TRUE(job.Vote(rank, ledger, {.parity = rank ? 77 : 0}).differs(true));
    EXPECT_TRUE(job.Vote(rank, ledger, {.discard = rank == 1}).differs(true));
    EXPECT_FALSE(job.Vote(rank, ledger, {.discard = 1}).differs(true));
    EXPECT_FALSE(job.Vote(rank, ledger, {.divisor = rank, .headroom = rank, .staged = rank}).differs(true));
  });
}

TEST(LedgerRanks, WhoeverDoesNotComeIsNamed) {
  LedgerJob job(3);
  std::array<std::string, 3> missing;
  job.Run([](uint32_t, LedgerOptions& o) { o.deadline_ns = 800 * kMs; },
          [&](uint32_t rank, Ledger& ledger) {
            if (rank == 2) return;  // destroyed without a close
            MicroStep(ledger);
            LedgerJob::Words words;
            ASSERT_TRUE(ledger.Vote({}, &words).ok());
            ASSERT_TRUE(ledger.Arrived().ok());
            ASSERT_TRUE(ledger.Missing(&missing[rank]).ok());
            CloseWindow(ledger, {.failed = true});
            EXPECT_EQ(LastRecord(ledger).flags, page::kWindowUnstepped | page::kWindowFailed);
          });
  for (uint32_t rank : {0u, 1u}) {
    EXPECT_THAT(missing[rank], HasSubstr("ranks [2] did not come"));
    EXPECT_THAT(missing[rank], HasSubstr("its ledger was destroyed without being closed"));
  }
}

TEST(LedgerRanks, RankThatFailsAloneTellsWhyAndRefusesEverything) {
  LedgerJob job(2);
  std::string missing;
  job.Run([](uint32_t, LedgerOptions& o) { o.deadline_ns = 800 * kMs; },
          [&](uint32_t rank, Ledger& ledger) {
            MicroStep(ledger);
            if (rank == 0) {
              ASSERT_TRUE(ledger.Missing(&missing).ok());
              return;
            }
            bool closes = false;
            ASSERT_TRUE(ledger.BeginMicroStep(Last::kYes, &closes).ok());
            Issue(ledger, kDp);
            ASSERT_TRUE(ledger.Fail("layer.weight got no gradient").ok());
            EXPECT_TRUE(ledger.Fail("again").ok());
            LedgerJob::Words words;
            EXPECT_EQ(ledger.BeginMicroStep(Last::kByCount, &closes).code(), Code::kFailedPrecondition);
            EXPECT_EQ(ledger.EndMicroStep().code(), Code::kFailedPrecondition);
            EXPECT_EQ(ledger.AbandonMicroStep().code(), Code::kFailedPrecondition);
            EXPECT_EQ(ledger.Vote({}, &words).code(), Code::kFailedPrecondition);
            EXPECT_EQ(ledger.LateBegin().code(), Code::kFailedPrecondition);
            EXPECT_EQ(ledger.SetMode(SyncMode::kWindow).code(), Code::kFailedPrecondition);
            EXPECT_EQ(ledger.CloseWindow(Stepped(2), nullptr).code(), Code::kFailedPrecondition);
            EXPECT_EQ(LastRecord(ledger).flags, page::kWindowUnstepped | page::kWindowFailed);
            EXPECT_EQ(LastRecord(ledger).issued_reductions, 1u);
            EXPECT_EQ(Count(ledger.page().totals.window_mismatched_count), 0u);
            EXPECT_TRUE(ledger.Close().ok());
            EXPECT_TRUE(ledger.Close().ok());
          });
  EXPECT_THAT(missing, HasSubstr("ranks [1] did not come (rank 1: left in window 0: layer.weight got no gradient)"));
}

TEST(LedgerRanks, CallsOutOfOrderAreRefusedAndChangeNothing) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    bool closes = false;
    EXPECT_THAT(ledger.EndMicroStep().message(), HasSubstr("no micro-step has begun"));
    ASSERT_TRUE(ledger.BeginMicroStep(Last::kByCount, &closes).ok());
    EXPECT_THAT(ledger.BeginMicroStep(Last::kByCount, &closes).message(), HasSubstr("has not ended"));
    EXPECT_THAT(ledger.CloseWindow(Stepped(1), nullptr).message(), HasSubstr("in the middle of a micro-step"));
    EXPECT_THAT(ledger.LateBegin().message(), HasSubstr("in the middle of a micro-step"));
    EXPECT_THAT(ledger.Close().message(), HasSubstr("in the middle of a micro-step"));
    ASSERT_TRUE(ledger.EndMicroStep().ok());
    MicroStep(ledger, {kDp}, Last::kYes);
    EXPECT_THAT(ledger.BeginMicroStep(Last::kByCount, &closes).message(), HasSubstr("not closed"));
    CloseWindow(ledger, Stepped(2));
    EXPECT_EQ(Count(ledger.page().totals.refused_count), 6u);
    EXPECT_EQ(Role(ledger, kDp), (RoleCounts{1, 1, 1, 0, 0}));
    ASSERT_TRUE(ledger.Close().ok());
    EXPECT_THAT(ledger.BeginMicroStep(Last::kByCount, &closes).message(), HasSubstr("closed"));
    EXPECT_THAT(ledger.Warn("x", "y").message(), HasSubstr("closed"));
  });
  EXPECT_THAT(job.log(0), IsEmpty());
}

TEST(LedgerRanks, WarningsAreToldOncePerReasonAndCounted) {
  LedgerJob job(2);
  job.Run(nullptr, [&](uint32_t, Ledger& ledger) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(ledger.Warn("no_effect", "the mode has none here").ok());
    EXPECT_EQ(Count(ledger.page().totals.warning_count), 3u);
  });
  EXPECT_THAT(job.log(1), ElementsAre("no_effect: the mode has none here"));
}

}  // namespace
}  // namespace gradgate
