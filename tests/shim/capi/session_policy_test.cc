// Policies that sessions take up: at one window on all ranks, or not at all; and never anything but a policy changes.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "tests/shim/capi/job.h"
#include "tests/shim/capi/policy_ranks.h"

namespace gradgate {
namespace {

using test::Place;
using test::PlaceOf;
using test::Policy;
using test::PolicyRanks;
using test::RecordOf;
using test::Sealed;

constexpr auto kEvery = static_cast<uint32_t>(SyncMode::kEveryMicroStep);
constexpr auto kWindow = static_cast<uint32_t>(SyncMode::kWindow);

ClosedWindow Step(Session& session) {
  ClosedWindow report;
  const Status status = session.BeforeStep(&report);
  EXPECT_TRUE(status.ok()) << status.message();
  return report;
}

// A whole window of four micro-steps; each rank brings 1, 2, 3, 4.
ClosedWindow FullWindow(Session& session) {
  Gradient(session) = 0;
  for (int i = 1; i <= 4; ++i) EXPECT_TRUE(AddMicroStep(session, i).ok());
  const ClosedWindow report = Step(session);
  EXPECT_EQ(Gradient(session), 10.0) << "window " << report.window_index;
  return report;
}

class SessionPolicyTest : public ::testing::Test {
 protected:
  using Body = std::function<void(uint32_t rank, Session& session)>;

  void Run(uint32_t world_size, const Job::Configure& configure, const Body& body) {
    Job job(world_size);
    ranks_ = std::make_unique<PolicyRanks>(world_size);
    job.Run(
        [&](uint32_t rank, SessionOptions& options) {
          options.daemon_dirs = {ranks_->directory(rank)};
          if (configure) configure(rank, options);
        },
        [&](uint32_t rank, Session& session) {
          body(rank, session);
          EXPECT_TRUE(session.Close().ok());
        });
    for (uint32_t rank = 0; rank < world_size; ++rank) EXPECT_TRUE(job.created(rank).ok()) << job.created(rank).message();
  }

  std::unique_ptr<PolicyRanks> ranks_;
};

TEST_F(SessionPolicyTest, ModeIsAdoptedByAllRanksAtOneWindowAndBack) {
  Run(4, nullptr, [&](uint32_t rank, Session& session) {
    for (uint64_t window = 0; window < 8; ++window) {
      if (window == 0) ranks_->Offer(rank, Policy(5, kEvery));
      if (window == 3) ranks_->Offer(rank, Policy(6, 0));  // as given
      const ClosedWindow report = FullWindow(session);
      EXPECT_EQ(report.policy_adopted, window == 1 || window == 4);
      const page::WindowRecord record = RecordOf(session.page(), window);
      const bool every = window >= 2 && window < 5;
      EXPECT_EQ(record.issued_reductions, every ? 4u : 1u) << window;
      EXPECT_EQ(record.intended_reductions, every ? 4u : 1u) << window;
      EXPECT_EQ(record.intended_collectives, record.issued_collectives) << window;
      EXPECT_EQ(record.suppressed_reductions, every ? 0u : 3u) << window;
      EXPECT_EQ(record.mode, every ? kEvery : kWindow) << window;
      EXPECT_EQ(record.policy_version, window < 2 ? 0u : every ? 5u : 6u) << window;
      EXPECT_EQ(record.flags, 0) << window;
      const uint64_t mode = Count(session.page().totals.sync_mode);
      EXPECT_EQ(mode, window >= 1 && window < 4 ? kEvery : kWindow) << "of the next window, after " << window;
    }
    EXPECT_EQ(PlaceOf(session.page()), (Place{6, 5, 0, 0, PolicyRejection::kNone}));
    EXPECT_EQ(Count(session.page().totals.window_mismatched_count), 0u);
    EXPECT_EQ(Count(session.page().totals.warning_count), 0u);
  });
}

TEST_F(SessionPolicyTest, WhereARankIsStandsOnItsPage) {
  Run(2, nullptr, [&](uint32_t rank, Session& session) {
    EXPECT_EQ(PlaceOf(session.page()), (Place{0, 0, 0, 0, PolicyRejection::kNone}));
    ranks_->Offer(rank, Policy(5, kEvery));
    EXPECT_EQ(session.stage().in_force().version, 0u);
    FullWindow(session);
    EXPECT_EQ(PlaceOf(session.page()), (Place{0, 0, 5, 0, PolicyRejection::kNone}));
    FullWindow(session);
    EXPECT_EQ(PlaceOf(session.page()), (Place{5, 2, 0, 0, PolicyRejection::kNone}));
    EXPECT_EQ(session.stage().in_force().version, 5u);
    EXPECT_EQ(session.stage().adopted_window(), 2u);
  });
}

TEST_F(SessionPolicyTest, AuditLetsEveryMicroStepReduceAndCountsWhatWasIntended) {
  link::PolicyFrame audit = Policy(5);
  audit.enforcement = static_cast<uint32_t>(Enforcement::kAudit);
  link::PolicyFrame enforce = Policy(6);
  enforce.enforcement = static_cast<uint32_t>(Enforcement::kEnforce);
  Run(2, nullptr, [&](uint32_t rank, Session& session) {
    for (uint64_t window = 0; window < 6; ++window) {
      if (window == 0) ranks_->Offer(rank, Sealed(audit));
      if (window == 2) ranks_->Offer(rank, Sealed(enforce));
      FullWindow(session);
      const page::WindowRecord record = RecordOf(session.page(), window);
      const bool audited = window == 2 || window == 3;
      EXPECT_EQ(record.issued_reductions, audited ? 4u : 1u) << window;
      EXPECT_EQ(record.intended_reductions, 1u) << window;
      EXPECT_EQ(record.issued_collectives, audited ? 4u : 1u) << window;
      EXPECT_EQ(record.intended_collectives, 1u) << window;
    }
  });
}

// Gradients that the trainer keeps, copied into buckets.
struct Copied {
  static constexpr uint64_t kElements = 512;  // 4096 bytes a tensor
  std::array<std::vector<double>, 4> tensors;

  explicit Copied(uint32_t) { tensors.fill(std::vector<double>(kElements)); }

  void Describe(SessionOptions& options) {
    options.tensor_names = {"a", "b", "c", "d"};
    options.tensors.clear();
    for (auto& tensor : tensors) options.tensors.push_back({tensor.data(), kElements, DType::kFloat64});
  }

  // One window of two micro-steps with values that depend on rank and `seed` alone.
  void Window(Session& session, uint32_t rank, uint32_t seed) {
    for (auto& tensor : tensors) std::fill(tensor.begin(), tensor.end(), 0.0);
    std::mt19937 random(seed * 100 + rank);
    for (int i = 0; i < 2; ++i) {
      bool boundary = false;
      EXPECT_TRUE(session.BeginMicroStep(Last::kByCount, 0, &boundary).ok());
      for (uint32_t t = 4; t-- > 0;) {
        for (double& value : tensors[t]) value += std::uniform_real_distribution<double>(-1, 1)(random);
        EXPECT_TRUE(session.GradientReady(t).ok());
      }
      EXPECT_TRUE(session.EndMicroStep().ok());
    }
    Step(session);
  }
};

TEST_F(SessionPolicyTest, BucketSizeIsAdoptedAndEveryByteStaysTheSame) {
  constexpr uint32_t kWorld = 4;
  link::PolicyFrame small = Policy(5);
  small.bucket_bytes = 4096;
  link::PolicyFrame middle = Policy(6);
  middle.bucket_bytes = 8192;
  const std::map<uint64_t, link::PolicyFrame> offers = {{0, Sealed(small)}, {2, Sealed(middle)}, {4, Policy(7)}};
  const std::vector<uint32_t> buckets = {1, 1, 4, 4, 2, 2, 1, 1};
  std::mutex mutex;
  std::map<bool, std::vector<double>> bytes;  // of rank 0, by whether policies were offered
  for (const bool offered : {false, true}) {
    std::vector<Copied> memory;
    for (uint32_t rank = 0; rank < kWorld; ++rank) memory.emplace_back(rank);
    Run(
        kWorld,
        [&](uint32_t rank, SessionOptions& options) {
          memory[rank].Describe(options);
          options.accumulate = 2;
        },
        [&](uint32_t rank, Session& session) {
          for (uint64_t window = 0; window < buckets.size(); ++window) {
            if (offered && offers.count(window) != 0) ranks_->Offer(rank, offers.at(window));
            memory[rank].Window(session, rank, static_cast<uint32_t>(window));
            const page::WindowRecord record = RecordOf(session.page(), window);
            EXPECT_EQ(record.issued_collectives, offered ? buckets[window] : 1) << window;
            EXPECT_EQ(record.intended_collectives, record.issued_collectives) << window;
            EXPECT_EQ(record.issued_reductions, 1u) << window;
            EXPECT_EQ(record.gradient_bytes, 4 * 4096u) << window;
            const std::lock_guard<std::mutex> lock(mutex);
            if (rank != 0) continue;
            for (const auto& tensor : memory[0].tensors)
              bytes[offered].insert(bytes[offered].end(), tensor.begin(), tensor.end());
          }
        });
  }
  ASSERT_EQ(bytes[true].size(), bytes[false].size());
  EXPECT_EQ(std::memcmp(bytes[true].data(), bytes[false].data(), bytes[true].size() * sizeof(double)), 0);
}

TEST_F(SessionPolicyTest, BucketSizeOfViewsIsFixed) {
  Run(2, nullptr, [&](uint32_t rank, Session& session) {
    link::PolicyFrame frame = Policy(5);
    frame.bucket_bytes = 4096;
    ranks_->Offer(rank, Sealed(frame));
    for (int i = 0; i < 3; ++i) FullWindow(session);
    EXPECT_EQ(PlaceOf(session.page()), (Place{0, 0, 0, 5, PolicyRejection::kFixed}));
    frame.version = 6;  // the size that it has
    frame.bucket_bytes = 1 << 20;
    ranks_->Offer(rank, Sealed(frame));
    for (int i = 0; i < 3; ++i) FullWindow(session);
    EXPECT_EQ(PlaceOf(session.page()), (Place{6, 5, 0, 5, PolicyRejection::kFixed}));
  });
}

TEST_F(SessionPolicyTest, WhatItCannotCarryOutIsRejectedWithTheReason) {
  struct Case {
    const char* what;
    std::function<void(link::PolicyFrame&)> change;
    PolicyRejection why;
  };
  const Case cases[] = {
      {"window_replica", [](auto& f) { f.sync_mode = 3; }, PolicyRejection::kNoReplicas},
      {"bf16", [](auto& f) { f.wire_type = 2; }, PolicyRejection::kNoWireType},
      {"fp16", [](auto& f) { f.wire_type = 3; }, PolicyRejection::kNoWireType},
      {"kept parameters", [](auto& f) { f.reshard = 2; }, PolicyRejection::kNothingGathered},
      {"a mode of the future", [](auto& f) { f.sync_mode = 5; }, PolicyRejection::kInvalid},
      {"a mode beyond a byte", [](auto& f) { f.sync_mode = 256 + 1; }, PolicyRejection::kInvalid},
      {"a wire type of the future", [](auto& f) { f.wire_type = 4; }, PolicyRejection::kInvalid},
      {"a reshard of the future", [](auto& f) { f.reshard = 3; }, PolicyRejection::kInvalid},
      {"enforcement off", [](auto& f) { f.enforcement = 1; }, PolicyRejection::kInvalid},
      {"an enforcement of the future", [](auto& f) { f.enforcement = 0x10002; }, PolicyRejection::kInvalid},
      {"small buckets", [](auto& f) { f.bucket_bytes = 4095; }, PolicyRejection::kInvalid},
      {"huge buckets", [](auto& f) { f.bucket_bytes = ~uint64_t{0}; }, PolicyRejection::kInvalid},
      {"a word of the future", [](auto& f) { f.reserved[0] = 1; }, PolicyRejection::kInvalid},
      {"the last word of the future", [](auto& f) { f.reserved[3] = uint64_t{1} << 63; }, PolicyRejection::kInvalid},
  };
  Run(2, nullptr, [&](uint32_t rank, Session& session) {
    uint64_t version = 0;
    for (const Case& c : cases) {
      link::PolicyFrame frame = Policy(++version, kEvery);
      c.change(frame);
      ranks_->Offer(rank, Sealed(frame));
      for (int i = 0; i < 2; ++i) EXPECT_EQ(FullWindow(session).policy_adopted, false) << c.what;
      EXPECT_EQ(PlaceOf(session.page()), (Place{0, 0, 0, version, c.why})) << c.what;
      EXPECT_TRUE(session.linked()) << c.what;
    }
    // What it is given at start, said again, is nothing to reject.
    link::PolicyFrame plain = Policy(++version, static_cast<uint32_t>(SyncMode::kAuto));
    plain.wire_type = 1;
    plain.reshard = 1;
    plain.enforcement = 3;
    ranks_->Offer(rank, Sealed(plain));
    for (int i = 0; i < 3; ++i) FullWindow(session);
    EXPECT_EQ(session.stage().in_force().version, version);
    EXPECT_EQ(Count(session.page().totals.sync_mode), kWindow) << "auto is as given";
  });
}

TEST_F(SessionPolicyTest, OneRankWithoutItAndNobodyAdoptsUntilItHasIt) {
  Run(3, nullptr, [&](uint32_t rank, Session& session) {
    if (rank != 1) ranks_->Offer(rank, Policy(5, kEvery));
    for (uint64_t window = 0; window < 5; ++window) {
      EXPECT_FALSE(FullWindow(session).policy_adopted);
      EXPECT_EQ(PlaceOf(session.page()), (Place{0, 0, rank == 1 ? 0u : 5u, 0, PolicyRejection::kNone}));
      EXPECT_EQ(RecordOf(session.page(), window).issued_reductions, 1u);
    }
    if (rank == 1) ranks_->Offer(rank, Policy(5, kEvery));
    EXPECT_FALSE(FullWindow(session).policy_adopted);
    EXPECT_TRUE(FullWindow(session).policy_adopted);
    EXPECT_EQ(PlaceOf(session.page()), (Place{5, 7, 0, 0, PolicyRejection::kNone}));
    EXPECT_EQ(Count(session.page().totals.warning_count), 0u);
  });
}

TEST_F(SessionPolicyTest, OneRankThatRejectsItAndNobodyAdopts) {
  link::PolicyFrame buckets = Policy(5);
  buckets.bucket_bytes = 4096;
  std::vector<Copied> memory;
  for (uint32_t rank = 0; rank < 2; ++rank) memory.emplace_back(rank);
  Run(
      2,
      [&](uint32_t rank, SessionOptions& options) {
        memory[rank].Describe(options);
        if (rank == 1) options.tensors[2].gradient = nullptr;  // a view: its buckets cannot move
        options.accumulate = 1;
      },
      [&](uint32_t rank, Session& session) {
        ranks_->Offer(rank, Sealed(buckets));
        for (int i = 0; i < 4; ++i) {
          bool boundary = false;
          EXPECT_TRUE(session.BeginMicroStep(Last::kByCount, 0, &boundary).ok());
          EXPECT_TRUE(session.EndMicroStep().ok());
          EXPECT_FALSE(Step(session).policy_adopted);
        }
        const Place expected =
            rank == 1 ? Place{0, 0, 0, 5, PolicyRejection::kFixed} : Place{0, 0, 5, 0, PolicyRejection::kNone};
        EXPECT_EQ(PlaceOf(session.page()), expected);
        EXPECT_EQ(session.reducer().bucket_count(), 1u);
      });
}

TEST_F(SessionPolicyTest, AnotherContentUnderOneVersionAndNobodyAdopts) {
  Run(3, nullptr, [&](uint32_t rank, Session& session) {
    ranks_->Offer(rank, Policy(5, rank == 2 ? kWindow : kEvery));
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(FullWindow(session).policy_adopted);
    EXPECT_EQ(PlaceOf(session.page()), (Place{0, 0, 5, 0, PolicyRejection::kNone}));
    ranks_->Offer(rank, Policy(6, kEvery));  // the next sound one is taken
    FullWindow(session);
    EXPECT_TRUE(FullWindow(session).policy_adopted);
    EXPECT_EQ(session.stage().in_force().version, 6u);
  });
}

TEST_F(SessionPolicyTest, AnOlderOneTakesNothingBack) {
  Run(2, nullptr, [&](uint32_t rank, Session& session) {
    ranks_->Offer(rank, Policy(5, kEvery));
    for (int i = 0; i < 2; ++i) FullWindow(session);
    ranks_->Offer(rank, Policy(4, kWindow));
    ranks_->Offer(rank, Policy(5, kWindow));  // the store lies about what 5 was
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(FullWindow(session).policy_adopted);
    EXPECT_EQ(PlaceOf(session.page()), (Place{5, 2, 0, 0, PolicyRejection::kNone}));
    EXPECT_EQ(RecordOf(session.page(), 4).issued_reductions, 4u);
  });
}

TEST_F(SessionPolicyTest, GarbageFromADaemonChangesNothing) {
  Run(2, nullptr, [&](uint32_t rank, Session& session) {
    link::PolicyFrame frame = Policy(5, kEvery);
    if (rank == 0) frame.content_hash ^= 4;
    ranks_->Offer(rank, frame);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(FullWindow(session).policy_adopted);
    EXPECT_EQ(PlaceOf(session.page()), (Place{0, 0, rank == 0 ? 0u : 5u, 0, PolicyRejection::kNone}));
    EXPECT_EQ(Count(session.page().totals.warning_count), rank == 0 ? 1u : 0u);
    EXPECT_EQ(session.linked(), rank != 0);
  });
}

// Ranks that bring different numbers, none, or nothing any more vote in the same rounds.
TEST_F(SessionPolicyTest, AdoptedAcrossPartialEmptyAndLateWindows) {
  Run(
      3, [](uint32_t, SessionOptions& options) { options.variable_windows = true; },
      [&](uint32_t rank, Session& session) {
        const auto window = [&](uint32_t micro_steps) {
          Gradient(session) = 0;
          for (uint32_t i = 0; i < micro_steps; ++i) EXPECT_TRUE(AddMicroStep(session, 3).ok());
          bool flushed = false;
          ClosedWindow report;
          const Status status = session.Flush(0, &flushed, &report);
          EXPECT_TRUE(status.ok()) << status.message();
          return report;
        };
        EXPECT_FALSE(window(2).policy_adopted);
        ranks_->Offer(rank, Policy(5, kEvery));
        EXPECT_FALSE(window(rank == 0 ? 4 : 1).policy_adopted) << "partial and late";
        EXPECT_TRUE(window(rank == 1 ? 0 : 2).policy_adopted) << "one rank has nothing";
        const ClosedWindow late = window(rank == 2 ? 3 : 1);  // several rounds
        EXPECT_FALSE(late.policy_adopted);
        EXPECT_EQ(late.max_micro_steps, 3u);
        EXPECT_EQ(RecordOf(session.page(), 3).issued_reductions, 3u);
        EXPECT_EQ(RecordOf(session.page(), 3).intended_reductions, 3u);
        ranks_->Offer(rank, Policy(6, kWindow));
        EXPECT_FALSE(window(rank == 2 ? 3 : 1).policy_adopted);
        EXPECT_TRUE(window(rank == 2 ? 3 : 1).policy_adopted) << "agreed on in the first of three rounds";
        EXPECT_FALSE(window(0).policy_adopted) << "empty on all ranks";
        EXPECT_EQ(PlaceOf(session.page()), (Place{6, 6, 0, 0, PolicyRejection::kNone}));
      });
}

TEST_F(SessionPolicyTest, EmptyWindowsAdoptAsWell) {
  Run(2, nullptr, [&](uint32_t rank, Session& session) {
    ranks_->Offer(rank, Policy(5, kEvery));
    bool flushed = true;
    ClosedWindow report;
    ASSERT_TRUE(session.Flush(0, &flushed, &report).ok());
    EXPECT_FALSE(flushed);
    EXPECT_FALSE(report.policy_adopted);
    ASSERT_TRUE(session.Flush(0, &flushed, &report).ok());
    EXPECT_TRUE(report.policy_adopted);
    FullWindow(session);
    EXPECT_EQ(RecordOf(session.page(), 2).issued_reductions, 4u);
  });
}

TEST_F(SessionPolicyTest, AWorldOfOneAdopts) {
  Run(1, nullptr, [&](uint32_t rank, Session& session) {
    ranks_->Offer(rank, Policy(5, kEvery));
    EXPECT_FALSE(FullWindow(session).policy_adopted);
    EXPECT_TRUE(FullWindow(session).policy_adopted);
    EXPECT_EQ(PlaceOf(session.page()), (Place{5, 2, 0, 0, PolicyRejection::kNone}));
    EXPECT_FALSE(FullWindow(session).policy_adopted);
    EXPECT_EQ(RecordOf(session.page(), 2).mode, kEvery);
    EXPECT_EQ(RecordOf(session.page(), 2).issued_reductions, 0u);
  });
}

// The window was reduced in time, as a full one, before one rank called it a flush of another size: its step is refused there
// alone.
TEST_F(SessionPolicyTest, AWindowWhoseStepOneRankRefusesStillAdoptsEverywhere) {
  Run(2, nullptr, [&](uint32_t rank, Session& session) {
    ranks_->Offer(rank, Policy(5, kEvery));
    FullWindow(session);
    Gradient(session) = 0;
    for (int i = 1; i <= 4; ++i) EXPECT_TRUE(AddMicroStep(session, i).ok());
    if (rank == 0) {
      bool flushed = true;
      EXPECT_EQ(session.Flush(3, &flushed, nullptr).code(), Code::kFailedPrecondition);
      EXPECT_FALSE(flushed);
    } else {
      EXPECT_TRUE(Step(session).policy_adopted);
    }
    EXPECT_EQ(PlaceOf(session.page()), (Place{5, 2, 0, 0, PolicyRejection::kNone}));
    FullWindow(session);
    EXPECT_EQ(RecordOf(session.page(), 2).issued_reductions, 4u);
    EXPECT_EQ(RecordOf(session.page(), 2).intended_reductions, 4u);
  });
}

TEST_F(SessionPolicyTest, WhatComesWhileAWindowVotesWaitsForTheNext) {
  Run(2, nullptr, [&](uint32_t rank, Session& session) {
    ranks_->Offer(rank, Policy(5, kEvery));
    FullWindow(session);
    if (rank == 0) ranks_->Offer(rank, Policy(6, kWindow));  // the other rank hears of it a window later
    EXPECT_TRUE(FullWindow(session).policy_adopted);
    EXPECT_EQ(session.stage().in_force().version, 5u);
    if (rank == 1) ranks_->Offer(rank, Policy(6, kWindow));
    EXPECT_FALSE(FullWindow(session).policy_adopted);
    EXPECT_TRUE(FullWindow(session).policy_adopted);
    EXPECT_EQ(PlaceOf(session.page()), (Place{6, 4, 0, 0, PolicyRejection::kNone}));
  });
}

}  // namespace
}  // namespace gradgate
