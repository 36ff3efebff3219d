// Policies that ledgers vote on: the owner says whether it can carry them out, and all ranks have them at one window, or none
// has.

#include <gtest/gtest.h>

#include "tests/shim/capi/ledger_job.h"
#include "tests/shim/capi/policy_ranks.h"

namespace gradgate {
namespace {

using test::Place;
using test::PlaceOf;
using test::Policy;
using test::PolicyRanks;
using test::Sealed;

class LedgerPolicyTest : public ::testing::Test {
 protected:
  void Run(uint32_t world_size, const LedgerJob::Body& body) {
    LedgerJob job(world_size);
    job_ = &job;
    ranks_ = std::make_unique<PolicyRanks>(world_size);
    job.Run([&](uint32_t rank, LedgerOptions& options) { options.daemon_dirs = {ranks_->directory(rank)}; },
            [&](uint32_t rank, Ledger& ledger) {
              body(rank, ledger);
              EXPECT_TRUE(ledger.Close().ok());
            });
    for (uint32_t rank = 0; rank < world_size; ++rank) EXPECT_TRUE(job.created(rank).ok()) << job.created(rank).message();
  }

  void Ballot(uint32_t rank, Ledger& ledger) { ledger.Read(job_->Vote(rank, ledger, {})); }

  // A window of four micro-steps, reduced in the last, with `ballots` of them in it. Answers what is offered with `answer`.
  ClosedWindow Window(uint32_t rank, Ledger& ledger, PolicyRejection answer = PolicyRejection::kNone, uint32_t ballots = 1) {
    for (int i = 0; i < 3; ++i) MicroStep(ledger, AllOf(ledger));
    MicroStep(ledger, {GroupRole::kDp});
    for (uint32_t i = 0; i < ballots; ++i) Ballot(rank, ledger);
    const ClosedWindow report = CloseWindow(ledger, Stepped(4));
    const uint64_t offered = ledger.stage().unvetted().version;
    EXPECT_EQ(report.policy_offered, offered != 0);
    EXPECT_TRUE(offered == 0 || ledger.AnswerPolicy(offered, answer).ok());
    return report;
  }

  // What a framework reduces in a micro-step that does not close.
  static std::vector<GroupRole> AllOf(const Ledger& ledger) {
    return ledger.mode_in_force() == SyncMode::kEveryMicroStep ? std::vector<GroupRole>{GroupRole::kDp}
                                                               : std::vector<GroupRole>{};
  }

  LedgerJob* job_ = nullptr;
  std::unique_ptr<PolicyRanks> ranks_;
};

TEST_F(LedgerPolicyTest, WhatAllOwnersAcceptIsInForceAtOneWindow) {
  Run(3, [&](uint32_t rank, Ledger& ledger) {
    ranks_->Offer(rank, Policy(5, 1));
    EXPECT_FALSE(Window(rank, ledger).policy_adopted);
    EXPECT_EQ(PlaceOf(ledger.page()), (Place{0, 0, 5, 0, PolicyRejection::kNone}));
    EXPECT_TRUE(Window(rank, ledger).policy_adopted);
    EXPECT_EQ(PlaceOf(ledger.page()), (Place{5, 2, 0, 0, PolicyRejection::kNone}));
    EXPECT_EQ(ledger.stage().in_force().sync_mode, SyncMode::kEveryMicroStep);
    EXPECT_EQ(ledger.mode_in_force(), SyncMode::kWindow) << "the mode is the owner's to set";
    EXPECT_TRUE(ledger.SetMode(SyncMode::kEveryMicroStep).ok());
    EXPECT_FALSE(Window(rank, ledger).policy_adopted);
    EXPECT_EQ(LastRecord(ledger).policy_version, 5u);
    EXPECT_EQ(LastRecord(ledger).intended_reductions, 4u);
    EXPECT_EQ(LastRecord(ledger).issued_reductions, 4u);
  });
}

TEST_F(LedgerPolicyTest, UntilTheOwnerAnswersNobodyVotes) {
  Run(2, [&](uint32_t rank, Ledger& ledger) {
    ranks_->Offer(rank, Policy(5, 1));
    for (int window = 0; window < 3; ++window) {
      for (int i = 0; i < 4; ++i) MicroStep(ledger, i == 3 ? std::vector{GroupRole::kDp} : std::vector<GroupRole>{});
      Ballot(rank, ledger);
      const ClosedWindow report = CloseWindow(ledger, Stepped(4));
      EXPECT_TRUE(report.policy_offered) << "asked at each window";
      EXPECT_FALSE(report.policy_adopted);
    }
    EXPECT_EQ(PlaceOf(ledger.page()), (Place{0, 0, 0, 0, PolicyRejection::kNone}));
    EXPECT_TRUE(ledger.AnswerPolicy(5, PolicyRejection::kNone).ok());
    EXPECT_TRUE(Window(rank, ledger).policy_adopted);
  });
}

TEST_F(LedgerPolicyTest, OneOwnerThatRejectsAndNobodyAdopts) {
  Run(3, [&](uint32_t rank, Ledger& ledger) {
    ranks_->Offer(rank, Policy(5, 1));
    const auto answer = rank == 1 ? PolicyRejection::kHookHeld : PolicyRejection::kNone;
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(Window(rank, ledger, answer).policy_adopted);
    EXPECT_EQ(PlaceOf(ledger.page()),
              rank == 1 ? (Place{0, 0, 0, 5, PolicyRejection::kHookHeld}) : (Place{0, 0, 5, 0, PolicyRejection::kNone}));
    ranks_->Offer(rank, Policy(6, 1));
    Window(rank, ledger);
    EXPECT_TRUE(Window(rank, ledger).policy_adopted) << "the next one that all can";
  });
}

TEST_F(LedgerPolicyTest, OneRankLaterAndAnotherContent) {
  Run(2, [&](uint32_t rank, Ledger& ledger) {
    ranks_->Offer(rank, Policy(5, rank == 0 ? 1 : 2));
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(Window(rank, ledger).policy_adopted) << "another content";
    if (rank == 0) ranks_->Offer(rank, Policy(6, 1));
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(Window(rank, ledger).policy_adopted) << "one rank alone";
    if (rank == 1) ranks_->Offer(rank, Policy(6, 1));
    EXPECT_FALSE(Window(rank, ledger).policy_adopted);
    EXPECT_TRUE(Window(rank, ledger).policy_adopted);
    EXPECT_EQ(ledger.stage().adopted_window(), 8u);
  });
}

TEST_F(LedgerPolicyTest, AWindowOfSeveralBallotsAdoptsOnceAndOneOfNoneAdoptsNothing) {
  Run(2, [&](uint32_t rank, Ledger& ledger) {
    ranks_->Offer(rank, Policy(5, 1));
    Window(rank, ledger);
    EXPECT_FALSE(Window(rank, ledger, PolicyRejection::kNone, 0).policy_adopted) << "nobody was asked";
    EXPECT_TRUE(Window(rank, ledger, PolicyRejection::kNone, 3).policy_adopted);
    EXPECT_FALSE(Window(rank, ledger, PolicyRejection::kNone, 3).policy_adopted);
  });
}

TEST_F(LedgerPolicyTest, EnforcementIsTakenUpByItselfAndGoesBack) {
  link::PolicyFrame audit = Policy(5);
  audit.enforcement = static_cast<uint32_t>(Enforcement::kAudit);
  Run(2, [&](uint32_t rank, Ledger& ledger) {
    ranks_->Offer(rank, Sealed(audit));
    Window(rank, ledger);
    EXPECT_EQ(ledger.enforcement(), Enforcement::kEnforce);
    Window(rank, ledger);
    EXPECT_EQ(ledger.enforcement(), Enforcement::kAudit);
    EXPECT_EQ(ledger.mode_in_force(), SyncMode::kEveryMicroStep);
    EXPECT_EQ(Count(ledger.page().totals.sync_mode), page::PackMode(SyncMode::kEveryMicroStep, Enforcement::kAudit));
    ranks_->Offer(rank, Policy(6));
    Window(rank, ledger);
    EXPECT_EQ(LastRecord(ledger).intended_reductions, 1u);
    EXPECT_EQ(LastRecord(ledger).issued_reductions, 4u);
    EXPECT_EQ(LastRecord(ledger).suppressed_reductions, 0u);
    Window(rank, ledger);
    EXPECT_EQ(ledger.enforcement(), Enforcement::kEnforce) << "as given";
    EXPECT_EQ(ledger.mode_in_force(), SyncMode::kWindow);
  });
}

TEST_F(LedgerPolicyTest, UnknownValuesAreRejectedWithoutAskingTheOwner) {
  Run(2, [&](uint32_t rank, Ledger& ledger) {
    link::PolicyFrame frame = Policy(5, 77);
    ranks_->Offer(rank, frame);
    EXPECT_FALSE(Window(rank, ledger).policy_offered);
    EXPECT_EQ(PlaceOf(ledger.page()), (Place{0, 0, 0, 5, PolicyRejection::kInvalid}));
    frame = Policy(6);
    frame.reserved[2] = 1;
    ranks_->Offer(rank, Sealed(frame));
    EXPECT_FALSE(Window(rank, ledger).policy_offered);
    EXPECT_EQ(PlaceOf(ledger.page()), (Place{0, 0, 0, 6, PolicyRejection::kInvalid}));
  });
}

TEST_F(LedgerPolicyTest, AnswersThatAreNone) {
  Run(1, [&](uint32_t rank, Ledger& ledger) {
    EXPECT_EQ(ledger.AnswerPolicy(0, PolicyRejection::kNone).code(), Code::kFailedPrecondition) << "nothing waits";
    EXPECT_EQ(ledger.AnswerPolicy(5, PolicyRejection::kNone).code(), Code::kFailedPrecondition);
    ranks_->Offer(rank, Policy(5, 1));
    MicroStep(ledger);
    EXPECT_TRUE(CloseWindow(ledger, Stepped(1)).policy_offered);
    for (const uint64_t version : {0, 4, 6}) {
      const Status status = ledger.AnswerPolicy(version, PolicyRejection::kNone);
      EXPECT_EQ(status.code(), Code::kFailedPrecondition);
      EXPECT_NE(status.message().find("which is 5"), std::string::npos) << status.message();
    }
    EXPECT_EQ(ledger.stage().unvetted().version, 5u) << "still waits";
    EXPECT_TRUE(ledger.AnswerPolicy(5, PolicyRejection::kNone).ok());
    EXPECT_EQ(ledger.AnswerPolicy(5, PolicyRejection::kFixed).code(), Code::kFailedPrecondition) << "twice";
    EXPECT_EQ(PlaceOf(ledger.page()), (Place{0, 0, 5, 0, PolicyRejection::kNone}));
  });
}

TEST_F(LedgerPolicyTest, ANewerOneThatComesBeforeTheAnswerIsWhatWaits) {
  Run(1, [&](uint32_t rank, Ledger& ledger) {
    for (const uint64_t version : {5, 6}) {
      ranks_->Offer(rank, Policy(version, 1));
      MicroStep(ledger);
      EXPECT_TRUE(CloseWindow(ledger, Stepped(1)).policy_offered);
    }
    EXPECT_EQ(ledger.AnswerPolicy(5, PolicyRejection::kNone).code(), Code::kFailedPrecondition);
    EXPECT_TRUE(ledger.AnswerPolicy(6, PolicyRejection::kNone).ok());
    MicroStep(ledger);
    EXPECT_TRUE(CloseWindow(ledger, Stepped(1)).policy_adopted);
    EXPECT_EQ(ledger.stage().in_force().version, 6u);
  });
}

TEST_F(LedgerPolicyTest, AWindowThatFailedOnOneRankStillAdoptsWhatWasAgreed) {
  Run(2, [&](uint32_t rank, Ledger& ledger) {
    ranks_->Offer(rank, Policy(5, 1));
    Window(rank, ledger);
    for (int i = 0; i < 4; ++i) MicroStep(ledger, i == 3 ? std::vector{GroupRole::kDp} : std::vector<GroupRole>{});
    Ballot(rank, ledger);
    if (rank == 0) {
      EXPECT_TRUE(
          ledger.CloseWindow({.stepped = false, .discarded = true, .min_micro_steps = 4, .max_micro_steps = 4}, nullptr).ok());
    } else {
      EXPECT_TRUE(CloseWindow(ledger, Stepped(4)).policy_adopted);
    }
    EXPECT_EQ(PlaceOf(ledger.page()), (Place{5, 2, 0, 0, PolicyRejection::kNone}));
  });
}

TEST_F(LedgerPolicyTest, PoliciesNeverMakeRanksDiffer) {
  Run(2, [&](uint32_t rank, Ledger& ledger) {
    if (rank == 0) ranks_->Offer(rank, Policy(5, 1));
    Window(rank, ledger);
    for (int i = 0; i < 4; ++i) MicroStep(ledger, i == 3 ? std::vector{GroupRole::kDp} : std::vector<GroupRole>{});
    const BallotResult result = job_->Vote(rank, ledger, {});
    EXPECT_NE(result.min().policy, result.max().policy);
    EXPECT_FALSE(result.differs(true)) << "a rank that does not have it yet is none to warn of";
    ledger.Read(result);
    CloseWindow(ledger, Stepped(4));
  });
}

}  // namespace
}  // namespace gradgate
