// Pages that trainers of each version have published, read by today's daemon: counts are those that the trainer's own library
// gave.

#include <cstring>
#include <tuple>

#include "daemon/node/page_reader.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/node/listener_fixture.h"
#include "tests/golden/golden.h"

namespace gradgate {
namespace {

using testing::FakePage;
using testing::FakeTrainer;
using Kind = FakeTrainer::Answer::Kind;

// A page of today whose bytes are a golden one's.
void Put(const std::string& version, int rank, FakePage* page) {
  const std::vector<char> bytes = golden::ReadBytes(version, "page." + std::to_string(rank));
  ASSERT_GE(bytes.size(), sizeof(page::StatsPage));
  std::memcpy(static_cast<void*>(&page->page()), bytes.data(), sizeof(page::StatsPage));
}

class GoldenPage : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  GoldenPage() { Put(version_, rank_, &page_); }

  const std::string version_ = std::get<0>(GetParam());
  const int rank_ = std::get<1>(GetParam());
  std::map<std::string, uint64_t> counts_ = golden::ReadCounts(version_, rank_);
  FakePage page_{{}};
};

TEST_P(GoldenPage, HeaderAndIdentityAreTaken) {
  EXPECT_TRUE(CheckPageHeader(page_.page()).ok()) << CheckPageHeader(page_.page());
  const auto identity = ReadIdentity(page_.page());
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->job_name, "golden");
  EXPECT_EQ(identity->rank, static_cast<uint32_t>(rank_));
  EXPECT_EQ(identity->local_rank, static_cast<uint32_t>(rank_));
  EXPECT_EQ(identity->world_size, 2u);
  EXPECT_EQ(identity->attempt, 0u);
  EXPECT_EQ(identity->accumulate, 4u);
  EXPECT_EQ(identity->sync_mode, SyncMode::kWindow);
  EXPECT_EQ(identity->enforcement, Enforcement::kEnforce);
  EXPECT_EQ(identity->shim_version, "0.1.0");
  EXPECT_NE(identity->config_hash, 0u);
  EXPECT_GT(identity->wall_time_ns, 0);
  EXPECT_EQ(identity->launch_id.empty(), version_ < "1.2") << "its field was reserved, and zero, before 1.2";
}

TEST_P(GoldenPage, CountsAreThoseOfItsOwnLibrary) {
  const Counters counters = ReadCounters(page_.page());
  const TotalsValues& totals = counters.totals;
  EXPECT_EQ(totals.micro_step_count, counts_["micro_steps"]);
  EXPECT_EQ(totals.step_count, counts_["steps"]);
  EXPECT_EQ(totals.window_full_count, counts_["windows_full"]);
  EXPECT_EQ(totals.window_full_count, 5u);
  EXPECT_EQ(totals.window_partial_count, counts_["windows_partial"]);
  EXPECT_EQ(totals.window_partial_count, 1u);
  EXPECT_EQ(totals.window_late_count, counts_["windows_late"]);
  EXPECT_EQ(totals.ballot_count, counts_["ballots"]);
  EXPECT_EQ(totals.exposed_ns, counts_["exposed_ns"]);
  EXPECT_EQ(totals.wait_ns, counts_["wait_ns"]);
  EXPECT_EQ(totals.micro_step_ns, counts_["micro_step_ns"]);
  EXPECT_EQ(totals.window_ns, counts_["window_ns"]);
  EXPECT_EQ(totals.closed, 1u);
  const RoleValues& dp = counters.roles[static_cast<size_t>(GroupRole::kDp)];
  EXPECT_EQ(dp.intended_count, counts_["reductions_intended"]);
  EXPECT_EQ(dp.issued_count, counts_["reductions_issued"]);
  EXPECT_EQ(dp.suppressed_count, counts_["reductions_suppressed"]);
  EXPECT_EQ(dp.late_count, counts_["reductions_late"]);
  const CellValues& cell = counters.cells[static_cast<size_t>(GroupRole::kDp)][static_cast<size_t>(CollectiveOp::kAllReduce)];
  EXPECT_EQ(cell.issued_count[static_cast<size_t>(TrafficClass::kGradient)], counts_["gradient_collectives"]);
  EXPECT_EQ(cell.bytes[static_cast<size_t>(TrafficClass::kGradient)], counts_["gradient_bytes"]);
  EXPECT_GT(counts_["gradient_bytes"], 0u);
  EXPECT_TRUE(CheckRange(counters).ok());
}

// Words that were reserved before 1.1 tell of no policy; a page of a trainer that adopted one tells which, and since when.
TEST_P(GoldenPage, PolicyIsTheAdoptedOne) {
  const TotalsValues totals = ReadCounters(page_.page()).totals;
  EXPECT_EQ(totals.policy_version, counts_["policy_version"]);
  EXPECT_EQ(totals.policy_version, version_ == "1.0" ? 0u : 7u);
  EXPECT_EQ(totals.policy_adopted_window, counts_["policy_adopted_window"]);
  EXPECT_EQ(totals.policy_rejected_version, 0u);
  EXPECT_EQ(page::UnpackMode(totals.sync_mode), version_ == "1.0" ? SyncMode::kWindow : SyncMode::kEveryMicroStep);
}

TEST_P(GoldenPage, WindowsAndEventsAreWhole) {
  RingCursor windows, events;
  uint64_t issued = 0, micro_steps = 0, partial = 0, begun = 0;
  const WindowReport read = ReadWindows(page_.page(), windows, Pass::kFinal, [&](const page::WindowRecord& record) {
    issued += record.issued_reductions;
    micro_steps += record.micro_steps;
    partial += record.kind == static_cast<uint8_t>(WindowKind::kPartial) ? 1 : 0;
    EXPECT_LE(record.begin_ns, record.end_ns);
  });
  EXPECT_EQ(read.delivered, counts_["windows_full"] + counts_["windows_partial"] + counts_["windows_empty"]);
  EXPECT_EQ(read.torn + read.invalid + read.missed, 0u);
  EXPECT_EQ(issued, counts_["reductions_issued"]);
  EXPECT_EQ(micro_steps, counts_["micro_steps"]);
  EXPECT_EQ(partial, counts_["windows_partial"]);
  const EventReport seen = ReadEvents(page_.page(), events, Pass::kFinal, [&](const page::Event& event) {
    begun += event.kind == EventKind::kMicroStepBegin ? 1 : 0;
  });
  EXPECT_EQ(seen.overwritten + seen.dropped + seen.invalid, 0u);
  EXPECT_EQ(begun, counts_["micro_steps"]);
}

INSTANTIATE_TEST_SUITE_P(EachVersion, GoldenPage,
                         ::testing::Combine(::testing::ValuesIn(golden::kVersions), ::testing::Values(0, 1)),
                         [](const auto& one) {
                           return "v" + std::to_string(one.index / 2) + "_rank" + std::to_string(std::get<1>(one.param));
                         });

// The whole of it: an old trainer says Hello, is welcomed, is counted, says goodbye.
class OldTrainer : public testing::ListenerTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(OldTrainer, IsWelcomedCountedAndSeenOff) {
  Start();
  FakePage page({});
  Put(GetParam(), 0, &page);
  const std::vector<char> hello = golden::ReadBytes(GetParam(), "hello"), goodbye = golden::ReadBytes(GetParam(), "goodbye");
  FakeTrainer trainer(path());
  ASSERT_TRUE(trainer.Send(hello.data(), hello.size(), {page.fd()}));
  const auto answer = trainer.Receive();
  ASSERT_EQ(answer.kind, Kind::kWelcome) << answer.message;
  auto counts = golden::ReadCounts(GetParam(), 0);
  const auto stats = registry_.GetJobStats("golden");
  ASSERT_TRUE(stats.ok()) << stats.status();
  ASSERT_EQ(stats->ranks.size(), 1u);
  EXPECT_EQ(stats->ranks[0].state, RankState::kRunning);
  EXPECT_EQ(stats->ranks[0].counters.totals.step_count, counts["steps"]);
  ASSERT_TRUE(trainer.Send(goodbye.data(), goodbye.size()));
  EXPECT_TRUE(Await([&] { return registry_.GetJobStats("golden")->ranks[0].state == RankState::kFinished; }));
}

INSTANTIATE_TEST_SUITE_P(EachVersion, OldTrainer, ::testing::ValuesIn(golden::kVersions), golden::TestName);

}  // namespace
}  // namespace gradgate
