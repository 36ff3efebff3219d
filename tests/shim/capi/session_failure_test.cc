// Bad weather: ranks without a shim, with another configuration, that die, never come, or differ. Always an error that names
// the rank, within the deadline; never a hang.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "shim/capi/session.h"
#include "tests/shim/capi/job.h"

namespace gradgate {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

TEST(SessionFailure, RankWithoutShimIsNamedByTheDeadline) {
  Job job(3);
  job.Run(
      [](uint32_t rank, SessionOptions& o) {
        o.handshake_deadline_ns = 500 * kMs;
        // Rank 1 has no shim: it never writes a hello where the others look.
        if (rank == 1) o.store_prefix = "elsewhere/";
      },
      [](uint32_t, Session&) { FAIL() << "no session may come about"; });
  for (uint32_t rank : {0, 2}) {
    EXPECT_EQ(job.created(rank).code(), Code::kDeadlineExceeded);
    EXPECT_THAT(job.created(rank).message(), HasSubstr("no gradgate on ranks [1] within 0.5 s"));
  }
}

TEST(SessionFailure, OtherConfigurationIsNamedOnAllRanks) {
  Job job(3);
  job.Run([](uint32_t rank, SessionOptions& o) { o.accumulate = rank == 2 ? 8 : 4; },
          [](uint32_t, Session&) { FAIL() << "no session may come about"; });
  for (uint32_t rank : {0, 1, 2}) {
    EXPECT_EQ(job.created(rank).code(), Code::kAborted);
    EXPECT_THAT(job.created(rank).message(), HasSubstr("rank 2 has accumulate=8 where rank 0 has 4"));
  }
}

TEST(SessionFailure, OtherEnforcementTensorsAndModeAreNamed) {
  Job job(2);
  job.Run(
      [](uint32_t rank, SessionOptions& o) {
        if (rank == 0) return;
        o.enforcement = Enforcement::kOff;
        o.mode = SyncMode::kEveryMicroStep;
        o.tensors[0].element_count = 2;
      },
      [](uint32_t, Session&) { FAIL() << "no session may come about"; });
  EXPECT_THAT(job.created(0).message(), HasSubstr("GRADGATE=off where rank 0 has enforce"));
  EXPECT_THAT(job.created(0).message(), HasSubstr("mode=every_micro_step where rank 0 has window"));
  EXPECT_THAT(job.created(1).message(), HasSubstr("tensors="));
}

TEST(SessionFailure, OtherVersionIsNamed) {
  Job job(2);
  ASSERT_TRUE(job.store().Set("t/hello/1", "gradgate=0.0.1\nprotocol=0\n", kTestSecond).ok());
  Status created;
  std::thread rank0([&] {
    std::unique_ptr<Session> session;
    created = Session::Create(job.Defaults(0), &session);
  });
  rank0.join();
  EXPECT_EQ(created.code(), Code::kAborted);
  EXPECT_THAT(created.message(), HasSubstr("rank 1 has gradgate=0.0.1 where rank 0 has "));
  EXPECT_THAT(created.message(), HasSubstr("protocol=0 where rank 0 has 2"));
}

TEST(SessionFailure, PeerThatNeverComesIsNamedWithinTheDeadline) {
  Job job(3);
  std::atomic<int> gave_up{0};
  job.Run([](uint32_t, SessionOptions& o) { o.deadline_ns = 800 * kMs; },
          [&gave_up](uint32_t rank, Session& session) {
            if (rank == 1) {
              for (int i = 0; i < 3; ++i) ASSERT_TRUE(AddMicroStep(session, 1).ok());
              // Stays alive without coming to the boundary: waits, boundedly, until the others have given up.
              const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
              while (std::chrono::steady_clock::now() < end && gave_up.load() < 2) {
                std::this_thread::yield();
              }
              return;
            }
            const auto begin = std::chrono::steady_clock::now();
            for (int i = 0; i < 4; ++i) ASSERT_TRUE(AddMicroStep(session, 1).ok());
            const Status status = session.BeforeStep(nullptr);
            EXPECT_LE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1600));
            EXPECT_THAT(status.code(), AnyOf(Code::kDeadlineExceeded, Code::kUnavailable));
            EXPECT_THAT(status.message(), HasSubstr("window 0: ranks [1] did not come"));
            EXPECT_EQ(Count(session.page().totals.step_count), 0u);
            EXPECT_EQ(Count(session.page().totals.refused_count), 1u);
            gave_up.fetch_add(1);
          });
}

// Frozen or killed while it waited for the others: it came to the round, and is named all the same.
TEST(SessionFailure, PeerThatFallsSilentWhileItWaitsIsNamed) {
  Job job(2);
  std::atomic<bool> gave_up{false};
  job.Run([](uint32_t, SessionOptions& o) { o.deadline_ns = 800 * kMs; },
          [&job, &gave_up](uint32_t rank, Session& session) {
            if (rank == 1) {
              ArrivalBoard(&job.store(), "t/", 1, 2).Arrived(0, 0, kTestSecond);
              const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
              while (std::chrono::steady_clock::now() < end && !gave_up.load()) std::this_thread::yield();
              return;
            }
            for (int i = 0; i < 4; ++i) ASSERT_TRUE(AddMicroStep(session, 1).ok());
            EXPECT_THAT(session.BeforeStep(nullptr).message(), HasSubstr("window 0: ranks [1] came and then fell silent"));
            gave_up.store(true);
          });
}

TEST(SessionFailure, RankThatDiesIsNamedByTheOthers) {
  Job job(3);
  job.Run([](uint32_t, SessionOptions& o) { o.deadline_ns = 4 * kTestSecond; },
          [&job](uint32_t rank, Session& session) {
            for (int i = 0; i < 4; ++i) ASSERT_TRUE(AddMicroStep(session, 1).ok());
            ASSERT_TRUE(session.BeforeStep(nullptr).ok());
            if (rank == 1) {
              job.hub().Kill(1);
              return;
            }
            Status status;
            for (int i = 0; status.ok() && i < 4; ++i) status = AddMicroStep(session, 1);
            if (status.ok()) status = session.BeforeStep(nullptr);
            EXPECT_EQ(status.code(), Code::kUnavailable);
            EXPECT_THAT(status.message(), HasSubstr("window 1: ranks [1] did not come"));
          });
}

TEST(SessionFailure, RankThatLeftSaysWhy) {
  Job job(2);
  job.Run([](uint32_t, SessionOptions& o) { o.deadline_ns = 800 * kMs; },
          [](uint32_t rank, Session& session) {
            if (rank == 1) {
              ASSERT_TRUE(session.Close().ok());
              return;
            }
            for (int i = 0; i < 4; ++i) ASSERT_TRUE(AddMicroStep(session, 1).ok());
            const Status status = session.BeforeStep(nullptr);
            EXPECT_THAT(status.message(),
                        HasSubstr("ranks [1] did not come (rank 1: left in window 0: it closed its session)"));
          });
}

// Sessions stay in step with each other, so this is shown one level below: ranks that are in different windows or modes must
// not pair.
TEST(SessionFailure, RanksInDifferentWindowsAreNamedOnAll) {
  for (const bool other_mode : {false, true}) {
    Job job(3);
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&job, rank, other_mode] {
        std::unique_ptr<Recorder> recorder;
        ASSERT_TRUE(Recorder::Create({}, &recorder).ok());
        ArrivalBoard board(&job.store(), "t/", rank, 3);
        Reducer reducer({{nullptr, 4, DType::kFloat32}}, 1024);
        Rounds rounds({.transport = job.hub().transport(rank),
                       .board = &board,
                       .recorder = recorder.get(),
                       .reducer = &reducer,
                       .deadline_ns = 20 * kTestSecond});
        RoundInput input;
        input.ballot = {
            .window = rank == 2 && !other_mode ? 6 : 5, .mode = rank == 2 && other_mode ? 1 : 2, .contributes = 1, .closes = 1};
        reducer.Reset(true);
        rounds.Start(input);
        RoundOutcome outcome;
        const Status status =
            rounds.Finish(&outcome, [](uint32_t, const RoundOutcome&) { ADD_FAILURE() << "gradients of another window"; });
        EXPECT_EQ(status.code(), Code::kAborted);
        EXPECT_THAT(status.message(), HasSubstr(other_mode ? "mode: ranks [0, 1] have 2, ranks [2] have 1"
                                                           : "window: ranks [2] have 6, ranks [0, 1] have 5"));
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(SessionFailure, AFailedSessionKeepsItsCountsAndRefusesTheLoop) {
  Job job(2);
  job.Run([](uint32_t, SessionOptions& o) { o.deadline_ns = 400 * kMs; },
          [](uint32_t rank, Session& session) {
            if (rank == 1) {
              ASSERT_TRUE(session.Close().ok());
              return;
            }
            for (int i = 0; i < 4; ++i) ASSERT_TRUE(AddMicroStep(session, 1).ok());
            EXPECT_FALSE(session.BeforeStep(nullptr).ok());
            const Status again = session.BeforeStep(nullptr);
            EXPECT_EQ(again.code(), Code::kFailedPrecondition);
            EXPECT_THAT(again.message(), HasSubstr("failed before"));
            const page::CollectiveCell& cell = session.page().cells[0][0];
            EXPECT_EQ(Count(cell.issued_count[0]), 1u);
            EXPECT_EQ(Count(cell.failed_count), 2u);
            EXPECT_EQ(Count(cell.completed_count), 0u);
            EXPECT_EQ(Count(session.page().ring.window_next), 1u);
            EXPECT_EQ(Count(session.page().totals.window_mismatched_count), 0u) << "failed is not mismatched";
            EXPECT_TRUE(session.Close().ok());
          });
}

TEST(SessionFailure, AForkedChildCannotUseTheParentsSession) {
  Job job(1);
  job.Run(nullptr, [](uint32_t, Session& session) {
    ASSERT_TRUE(AddMicroStep(session, 1).ok());
    const pid_t child = fork();
    if (child == 0) {
      const bool refused = AddMicroStep(session, 1).code() == Code::kFailedPrecondition &&
                           session.BeforeStep(nullptr).code() == Code::kFailedPrecondition;
      _exit(refused ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(Count(session.page().totals.micro_step_count), 1u);
    ASSERT_TRUE(AddMicroStep(session, 1).ok());
  });
}

}  // namespace
}  // namespace gradgate
