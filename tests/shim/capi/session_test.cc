// What a window comes to, for the loop: values, counts, refusals. Fixture F: two ranks, one weight, gradients 1…4 and 10…40.

#include "shim/capi/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "tests/shim/capi/job.h"

namespace gradgate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

double Scale(uint32_t rank) { return rank == 0 ? 1.0 : 10.0; }

void ExpectCounts(const Session& session, uint64_t intended, uint64_t issued, uint64_t suppressed, uint64_t late) {
  const page::RoleTotals& role = session.page().roles[0];
  EXPECT_EQ(Count(role.intended_count), intended);
  EXPECT_EQ(Count(role.issued_count), issued);
  EXPECT_EQ(Count(role.suppressed_count), suppressed);
  EXPECT_EQ(Count(role.late_count), late);
}

TEST(Session, FullWindowReducesOnceAtItsBoundary) {
  Job job(2);
  job.Run(nullptr, [](uint32_t rank, Session& session) {
    for (int i = 1; i <= 4; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
    ClosedWindow report;
    ASSERT_TRUE(session.BeforeStep(&report).ok());
    EXPECT_EQ(Gradient(session), 55.0);
    EXPECT_EQ(report.kind, WindowKind::kFull);
    EXPECT_EQ(report.min_micro_steps, 4u);
    EXPECT_FALSE(report.late);
    ExpectCounts(session, 1, 1, 3, 0);
    EXPECT_EQ(Count(session.page().totals.step_count), 1u);
    EXPECT_EQ(Count(session.page().totals.window_full_count), 1u);
    EXPECT_EQ(Count(session.page().totals.window_mismatched_count), 0u);
    const page::CollectiveCell& cell = session.page().cells[0][0];
    EXPECT_EQ(Count(cell.issued_count[0]), 1u);
    EXPECT_EQ(Count(cell.intended_count), 1u);
    EXPECT_EQ(Count(cell.bytes[0]), 8u);
    EXPECT_EQ(Count(cell.completed_count), 2u);  // the gradient's and the ballot
    EXPECT_EQ(Count(cell.gradient_completed_count), 1u);
  });
  // The transport's own count, independent of ours.
  EXPECT_EQ(job.hub().count(0, DType::kFloat64, ReduceOp::kSum).request_count, 1u);
  EXPECT_EQ(job.hub().count(1, DType::kInt64, ReduceOp::kMax).request_count, 1u);
}

TEST(Session, EveryMicroStepFollowsTheTrace) {
  Job job(2);
  job.Run([](uint32_t, SessionOptions& o) { o.mode = SyncMode::kEveryMicroStep; },
          [](uint32_t rank, Session& session) {
            std::vector<double> trace;
            for (int i = 1; i <= 4; ++i) {
              ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
              trace.push_back(Gradient(session));
            }
            EXPECT_THAT(trace, ElementsAre(5.5, 16.5, 33.0, 55.0));
            ASSERT_TRUE(session.BeforeStep(nullptr).ok());
            EXPECT_EQ(Gradient(session), 55.0);
            ExpectCounts(session, 4, 4, 0, 0);
            EXPECT_EQ(Count(session.page().totals.window_mismatched_count), 0u);
          });
  EXPECT_EQ(job.hub().count(0, DType::kFloat64, ReduceOp::kSum).request_count, 4u);
}

TEST(Session, AuditCountsWhatThePolicyWouldHaveSaved) {
  Job job(2);
  job.Run([](uint32_t, SessionOptions& o) { o.enforcement = Enforcement::kAudit; },
          [](uint32_t rank, Session& session) {
            for (int i = 1; i <= 4; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
            ASSERT_TRUE(session.BeforeStep(nullptr).ok());
            EXPECT_EQ(Gradient(session), 55.0);
            ExpectCounts(session, 1, 4, 0, 0);
            EXPECT_EQ(Count(session.page().cells[0][0].intended_count), 1u);
            EXPECT_EQ(Count(session.page().totals.window_mismatched_count), 1u);
          });
}

TEST(Session, StepOnUnreducedGradientsIsReducedLate) {
  Job job(2);
  job.Run(nullptr, [](uint32_t rank, Session& session) {
    for (int i = 1; i <= 2; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
    ClosedWindow report;
    ASSERT_TRUE(session.BeforeStep(&report).ok());
    EXPECT_EQ(Gradient(session), 16.5);
    EXPECT_TRUE(report.late);
    EXPECT_EQ(report.kind, WindowKind::kPartial);
    ExpectCounts(session, 1, 1, 2, 1);
    EXPECT_EQ(Count(session.page().totals.window_late_count), 1u);
  });
}

TEST(Session, LookedAheadLastReducesInTime) {
  Job job(2);
  job.Run(nullptr, [](uint32_t rank, Session& session) {
    ASSERT_TRUE(AddMicroStep(session, Scale(rank)).ok());
    ASSERT_TRUE(AddMicroStep(session, 2 * Scale(rank), Last::kYes).ok());
    ClosedWindow report;
    ASSERT_TRUE(session.BeforeStep(&report).ok());
    EXPECT_EQ(Gradient(session), 16.5);
    EXPECT_FALSE(report.late);
    ExpectCounts(session, 1, 1, 1, 0);
  });
}

// 6 micro-steps at N = 4, losses divided by 4: the second step must be 30.25, not 15.125.
TEST(Session, FlushRescalesAPartialWindow) {
  for (const SyncMode mode : {SyncMode::kWindow, SyncMode::kEveryMicroStep}) {
    Job job(2);
    job.Run([mode](uint32_t, SessionOptions& o) { o.mode = mode; },
            [](uint32_t rank, Session& session) {
              for (int i = 1; i <= 4; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i / 4).ok());
              ASSERT_TRUE(session.BeforeStep(nullptr).ok());
              EXPECT_EQ(Gradient(session), 13.75);
              Gradient(session) = 0;
              for (int i = 5; i <= 6; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i / 4).ok());
              bool flushed = false;
              ASSERT_TRUE(session.Flush(4, &flushed, nullptr).ok());
              EXPECT_TRUE(flushed);
              EXPECT_EQ(Gradient(session), 30.25);
              ASSERT_TRUE(session.Flush(4, &flushed, nullptr).ok());
              EXPECT_FALSE(flushed);
              EXPECT_EQ(Count(session.page().totals.step_count), 2u);
            });
  }
}

TEST(Session, FlushDivisorWithUnequalRanksIsRefusedOnAll) {
  Job job(2);
  job.Run([](uint32_t, SessionOptions& o) { o.variable_windows = true; },
          [](uint32_t rank, Session& session) {
            for (uint32_t i = 0; i <= rank; ++i) ASSERT_TRUE(AddMicroStep(session, 1).ok());
            bool flushed = false;
            const Status status = session.Flush(4, &flushed, nullptr);
            EXPECT_EQ(status.code(), Code::kFailedPrecondition);
            EXPECT_THAT(status.message(), HasSubstr("they brought 1 to 2"));
          });
}

// One rank flushes with a divisor, the other with another, or steps: all refuse, rather than some rescale.
TEST(Session, DifferentDivisorsAreRefusedOnAll) {
  for (const uint32_t other : {0u, 8u}) {
    for (const SyncMode mode : {SyncMode::kWindow, SyncMode::kEveryMicroStep}) {
      Job job(2);
      job.Run([mode](uint32_t, SessionOptions& o) { o.mode = mode; },
              [other](uint32_t rank, Session& session) {
                for (int i = 0; i < 2; ++i) ASSERT_TRUE(AddMicroStep(session, 1).ok());
                bool flushed = false;
                const Status status = rank == 1 && other == 0 ? session.BeforeStep(nullptr)
                                                              : session.Flush(rank == 0 ? 4 : other, &flushed, nullptr);
                EXPECT_EQ(status.code(), Code::kFailedPrecondition);
                EXPECT_THAT(status.message(), HasSubstr("needs the same call on all ranks"));
                EXPECT_EQ(Count(session.page().totals.step_count), 0u);
              });
    }
  }
}

// A divisor that comes after the window was reduced in time is not in its ballot: it may not change anything.
TEST(Session, DivisorAfterALastThatWasToldIsRefusedUnlessItIsOne) {
  Job job(2);
  job.Run(nullptr, [](uint32_t, Session& session) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(AddMicroStep(session, 1).ok());
    bool flushed = false;
    EXPECT_TRUE(session.Flush(4, &flushed, nullptr).ok());
    EXPECT_TRUE(flushed);
    ASSERT_TRUE(AddMicroStep(session, 1, Last::kYes).ok());
    EXPECT_EQ(session.Flush(4, &flushed, nullptr).code(), Code::kFailedPrecondition);
  });
}

// Data for 8 and for 7 micro-steps: the loop of the first page, flushing until nobody has any.
TEST(Session, FlushingUntilNobodyHasDataEndsAllRanksTogether) {
  for (const SyncMode mode : {SyncMode::kWindow, SyncMode::kEveryMicroStep}) {
    for (const uint32_t short_by : {1u, 4u, 7u}) {
      Job job(2);
      job.Run(
          [mode](uint32_t, SessionOptions& o) {
            o.mode = mode;
            o.variable_windows = true;
          },
          [short_by](uint32_t rank, Session& session) {
            double sum = 0;
            const uint32_t data = rank == 0 ? 8 : 8 - short_by;
            const auto step = [&] {
              sum += Gradient(session);
              Gradient(session) = 0;
            };
            for (uint32_t i = 1; i <= data; ++i) {
              ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
              if (i % 4 != 0) continue;
              ASSERT_TRUE(session.BeforeStep(nullptr).ok());
              step();
            }
            bool flushed = true;
            for (int calls = 0; calls < 10 && flushed; ++calls) {
              const Status status = session.Flush(0, &flushed, nullptr);
              ASSERT_TRUE(status.ok()) << status.message();
              if (flushed) step();
            }
            EXPECT_FALSE(flushed);
            EXPECT_TRUE(session.Close().ok());
            const double last = 8.0 - short_by;
            EXPECT_EQ(sum, (36 + 10 * last * (last + 1) / 2) / 2);
          });
    }
  }
}

TEST(Session, VariableWindowsAreExactInBothModes) {
  for (const SyncMode mode : {SyncMode::kWindow, SyncMode::kEveryMicroStep}) {
    Job job(2);
    job.Run(
        [mode](uint32_t, SessionOptions& o) {
          o.mode = mode;
          o.variable_windows = true;
          o.strict = true;
        },
        [](uint32_t rank, Session& session) {
          for (uint32_t i = 1; i <= 3 + rank; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
          ClosedWindow report;
          ASSERT_TRUE(session.BeforeStep(&report).ok());
          EXPECT_EQ(Gradient(session), (6.0 + 100.0) / 2);
          EXPECT_EQ(report.min_micro_steps, 3u);
          EXPECT_EQ(report.max_micro_steps, 4u);
          EXPECT_FALSE(report.disagreed);
          EXPECT_EQ(Count(session.page().totals.window_mismatched_count), 0u);
        });
  }
}

TEST(Session, UnequalRanksAreNamedAndStillExact) {
  Job job(2);
  job.Run(nullptr, [](uint32_t rank, Session& session) {
    for (int window = 0; window < 2; ++window) {
      Gradient(session) = 0;
      for (uint32_t i = 1; i <= 3 + rank; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
      ClosedWindow report;
      ASSERT_TRUE(session.BeforeStep(&report).ok());
      EXPECT_EQ(Gradient(session), 53.0);
      EXPECT_TRUE(report.disagreed);
    }
    EXPECT_EQ(Count(session.page().totals.window_disagreed_count), 2u);
    EXPECT_EQ(Count(session.page().totals.warning_count), 2u);
  });
  ASSERT_EQ(job.log(0).size(), 1u);  // told once, counted each time
  EXPECT_THAT(job.log(0)[0], HasSubstr("micro_steps: ranks [1] have 4, ranks [0] have 3"));
}

TEST(Session, StrictRaisesOnAllRanksBeforeTheStep) {
  for (const SyncMode mode : {SyncMode::kWindow, SyncMode::kEveryMicroStep}) {
    Job job(3);
    job.Run(
        [mode](uint32_t, SessionOptions& o) {
          o.mode = mode;
          o.strict = true;
        },
        [](uint32_t rank, Session& session) {
          Status status;
          for (uint32_t i = 1; status.ok() && i <= (rank == 2 ? 3u : 4u); ++i) status = AddMicroStep(session, i);
          if (status.ok()) status = session.BeforeStep(nullptr);
          EXPECT_EQ(status.code(), Code::kAborted) << rank;
          EXPECT_THAT(status.message(), HasSubstr("ranks [2]"));
          EXPECT_EQ(Count(session.page().totals.step_count), 0u);
          bool boundary;
          EXPECT_EQ(session.BeginMicroStep(Last::kByCount, 0, &boundary).code(), Code::kFailedPrecondition);
        });
  }
}

TEST(Session, RankWithoutDataBringsZerosWhateverItsMemoryHolds) {
  for (const SyncMode mode : {SyncMode::kWindow, SyncMode::kEveryMicroStep}) {
    Job job(2);
    job.Run(
        [mode](uint32_t, SessionOptions& o) {
          o.mode = mode;
          o.variable_windows = true;
        },
        [](uint32_t rank, Session& session) {
          Gradient(session) = rank == 1 ? 999.0 : 0.0;
          for (int i = 1; rank == 0 && i <= 2; ++i) ASSERT_TRUE(AddMicroStep(session, 50.0 + 10 * (i - 1)).ok());
          ClosedWindow report;
          ASSERT_TRUE(session.BeforeStep(&report).ok());
          EXPECT_EQ(Gradient(session), 55.0);
          EXPECT_EQ(report.kind, rank == 0 ? WindowKind::kPartial : WindowKind::kEmpty);
          EXPECT_EQ(report.max_micro_steps, 2u);
        });
  }
}

TEST(Session, DivideByActiveRanks) {
  for (const SyncMode mode : {SyncMode::kWindow, SyncMode::kEveryMicroStep}) {
    Job job(2);
    job.Run(
        [mode](uint32_t, SessionOptions& o) {
          o.mode = mode;
          o.variable_windows = true;
          o.divide = Divide::kActive;
        },
        [](uint32_t rank, Session& session) {
          for (int i = 0; rank == 1 && i < 2; ++i) ASSERT_TRUE(AddMicroStep(session, 50.0 + 10 * i).ok());
          ClosedWindow report;
          ASSERT_TRUE(session.BeforeStep(&report).ok());
          EXPECT_EQ(Gradient(session), 110.0);
          EXPECT_EQ(report.active_ranks, 1u);
        });
  }
}

// Tokens 1, 3 with loss sums 1, 9 and tokens 2, 4 with 2, 20: 32 / 10.
TEST(Session, DivideByItemsIsTheMeanOverItemsOfAllRanks) {
  for (const SyncMode mode : {SyncMode::kWindow, SyncMode::kEveryMicroStep}) {
    Job job(2);
    job.Run(
        [mode](uint32_t, SessionOptions& o) {
          o.mode = mode;
          o.accumulate = 2;
          o.divide = Divide::kItems;
        },
        [](uint32_t rank, Session& session) {
          ASSERT_TRUE(AddMicroStep(session, rank == 0 ? 1 : 2, Last::kByCount, rank == 0 ? 1 : 2).ok());
          ASSERT_TRUE(AddMicroStep(session, rank == 0 ? 9 : 20, Last::kByCount, rank == 0 ? 3 : 4).ok());
          ClosedWindow report;
          ASSERT_TRUE(session.BeforeStep(&report).ok());
          EXPECT_EQ(Gradient(session), 3.2);
          EXPECT_EQ(report.item_count, 10);
        });
  }
}

TEST(Session, NoItemsOnAnyRankIsRefused) {
  Job job(2);
  job.Run(
      [](uint32_t, SessionOptions& o) {
        o.accumulate = 1;
        o.divide = Divide::kItems;
      },
      [](uint32_t, Session& session) {
        ASSERT_TRUE(AddMicroStep(session, 1).ok());
        const Status status = session.BeforeStep(nullptr);
        EXPECT_EQ(status.code(), Code::kFailedPrecondition);
        EXPECT_THAT(status.message(), HasSubstr("no items"));
        EXPECT_EQ(Count(session.page().totals.step_count), 0u);
      });
}

TEST(Session, WithoutTensorsNothingIsIntended) {
  Job job(2);
  job.Run(
      [](uint32_t, SessionOptions& o) {
        o.tensors.clear();
        o.tensor_names.clear();
      },
      [](uint32_t, Session& session) {
        bool boundary = false;
        for (int i = 0; i < 4; ++i) {
          ASSERT_TRUE(session.BeginMicroStep(Last::kByCount, 0, &boundary).ok());
          ASSERT_TRUE(session.EndMicroStep().ok());
        }
        ASSERT_TRUE(session.BeforeStep(nullptr).ok());
        EXPECT_EQ(Count(session.page().totals.window_mismatched_count), 0u);
      });
}

TEST(Session, NobodyHasDataNothingIsReduced) {
  Job job(2);
  job.Run(nullptr, [](uint32_t, Session& session) {
    ClosedWindow report;
    ASSERT_TRUE(session.BeforeStep(&report).ok());
    EXPECT_EQ(report.kind, WindowKind::kEmpty);
    EXPECT_EQ(report.max_micro_steps, 0u);
    ExpectCounts(session, 0, 0, 0, 0);
    EXPECT_EQ(Count(session.page().totals.step_count), 0u);
  });
  EXPECT_EQ(job.hub().count(0, DType::kFloat64, ReduceOp::kSum).request_count, 0u);
}

TEST(Session, ReducedButNotSteppedIsCounted) {
  Job job(2);
  job.Run([](uint32_t, SessionOptions& o) { o.accumulate = 1; },
          [](uint32_t rank, Session& session) {
            ASSERT_TRUE(AddMicroStep(session, Scale(rank)).ok());
            ASSERT_TRUE(AddMicroStep(session, Scale(rank)).ok());
            ASSERT_TRUE(session.BeforeStep(nullptr).ok());
            EXPECT_EQ(Gradient(session), 11.0);
            EXPECT_EQ(Count(session.page().totals.window_unstepped_count), 1u);
            EXPECT_EQ(Count(session.page().totals.step_count), 1u);
          });
}

TEST(Session, StepInsideAMicroStepIsRefusedAndTheWindowSurvives) {
  Job job(2);
  job.Run(nullptr, [](uint32_t rank, Session& session) {
    for (int i = 1; i <= 3; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
    bool boundary = false;
    ASSERT_TRUE(session.BeginMicroStep(Last::kByCount, 0, &boundary).ok());
    EXPECT_TRUE(boundary);
    const Status status = session.BeforeStep(nullptr);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("middle of a micro-step"));
    EXPECT_EQ(Count(session.page().totals.refused_count), 1u);
    Gradient(session) += Scale(rank) * 4;
    ASSERT_TRUE(session.EndMicroStep().ok());
    ASSERT_TRUE(session.BeforeStep(nullptr).ok());
    EXPECT_EQ(Gradient(session), 55.0);
  });
}

TEST(Session, AbandonedMicroStepIsTriedAgain) {
  Job job(2);
  job.Run(nullptr, [](uint32_t rank, Session& session) {
    for (int i = 1; i <= 3; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
    bool boundary = false;
    if (rank == 0) {
      ASSERT_TRUE(session.BeginMicroStep(Last::kByCount, 0, &boundary).ok());
      ASSERT_TRUE(session.AbandonMicroStep().ok());
    }
    ASSERT_TRUE(AddMicroStep(session, Scale(rank) * 4).ok());
    ASSERT_TRUE(session.BeforeStep(nullptr).ok());
    EXPECT_EQ(Gradient(session), 55.0);
  });
}

TEST(Session, GradientToldTwiceOrUnknownIsRefused) {
  Job job(1);
  job.Run(nullptr, [](uint32_t, Session& session) {
    EXPECT_EQ(session.GradientReady(0).code(), Code::kFailedPrecondition);
    bool boundary = false;
    ASSERT_TRUE(session.BeginMicroStep(Last::kByCount, 0, &boundary).ok());
    ASSERT_TRUE(session.GradientReady(0).ok());
    const Status twice = session.GradientReady(0);
    EXPECT_EQ(twice.code(), Code::kFailedPrecondition);
    EXPECT_THAT(twice.message(), HasSubstr("\"w\""));
    EXPECT_EQ(session.GradientReady(1).code(), Code::kInvalidArgument);
  });
}

TEST(Session, OneProcessIsTheSameLoop) {
  for (const SyncMode mode : {SyncMode::kWindow, SyncMode::kEveryMicroStep}) {
    Job job(1);
    job.Run([mode](uint32_t, SessionOptions& o) { o.mode = mode; },
            [](uint32_t, Session& session) {
              for (int i = 1; i <= 4; ++i) ASSERT_TRUE(AddMicroStep(session, i).ok());
              ASSERT_TRUE(session.BeforeStep(nullptr).ok());
              EXPECT_EQ(Gradient(session), 10.0);
              bool flushed = true;
              ASSERT_TRUE(session.Flush(4, &flushed, nullptr).ok());
              EXPECT_FALSE(flushed);
              ASSERT_TRUE(AddMicroStep(session, 2).ok());
              Gradient(session) = 2;
              ASSERT_TRUE(session.Flush(4, &flushed, nullptr).ok());
              EXPECT_TRUE(flushed);
              EXPECT_EQ(Gradient(session), 8.0);
              ExpectCounts(session, 0, 0, 0, 0);
            });
  }
}

TEST(Session, ClosingWithAnOpenWindowWarns) {
  Job job(1);
  job.Run(nullptr, [](uint32_t, Session& session) {
    ASSERT_TRUE(AddMicroStep(session, 1).ok());
    ASSERT_TRUE(session.Close().ok());
    ASSERT_TRUE(session.Close().ok());
    EXPECT_EQ(AddMicroStep(session, 1).code(), Code::kFailedPrecondition);
    EXPECT_EQ(Count(session.page().totals.closed), 1u);
  });
  ASSERT_EQ(job.log(0).size(), 1u);
  EXPECT_THAT(job.log(0)[0], HasSubstr("open_window"));
}

// The window's record says what its counters say.
TEST(Session, WindowRecordIsPublished) {
  Job job(2);
  job.Run(nullptr, [](uint32_t rank, Session& session) {
    for (int i = 1; i <= 2; ++i) ASSERT_TRUE(AddMicroStep(session, Scale(rank) * i).ok());
    ASSERT_TRUE(session.BeforeStep(nullptr).ok());
    const page::WindowSlot& slot = session.page().windows[0];
    ASSERT_EQ(Count(slot.sequence), 2u);
    page::WindowRecord record;
    uint64_t words[page::kWindowWords];
    for (uint32_t i = 0; i < page::kWindowWords; ++i) words[i] = Count(slot.words[i]);
    std::memcpy(&record, words, sizeof(record));
    EXPECT_EQ(record.window_index, 0u);
    EXPECT_EQ(record.kind, static_cast<uint8_t>(WindowKind::kPartial));
    EXPECT_EQ(record.flags, page::kWindowLate);
    EXPECT_EQ(record.micro_steps, 2u);
    EXPECT_EQ(record.planned_micro_steps, 4u);
    EXPECT_EQ(record.last_reduction_at, 2u);
    EXPECT_EQ(record.intended_reductions, 1u);
    EXPECT_EQ(record.issued_reductions, 1u);
    EXPECT_EQ(record.suppressed_reductions, 2u);
    EXPECT_EQ(record.late_reductions, 1u);
    EXPECT_EQ(record.issued_collectives, 1u);
    EXPECT_EQ(record.completed_collectives, 1u);
    EXPECT_EQ(record.gradient_bytes, 8u);
    EXPECT_GE(record.end_ns, record.begin_ns);
    EXPECT_EQ(record.exposed_ns, record.wait_ns);
  });
}

}  // namespace
}  // namespace gradgate
