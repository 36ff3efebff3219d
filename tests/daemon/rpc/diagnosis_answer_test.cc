#include "daemon/rpc/diagnosis_answer.h"

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "daemon/node/clock.h"
#include "daemon/rpc/evidence.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using testing::FakePage;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int64_t kWallNs = 1'700'000'000 * static_cast<int64_t>(kSecondNs);

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixNanos(kWallNs) + absl::Nanoseconds(static_cast<int64_t>(since_ns)); }
  uint64_t MonotonicNs() const override { return kStartNs + since_ns + namespace_ns; }

  static constexpr uint64_t kStartNs = 1'000'000'000'000;
  uint64_t since_ns = 0;
  uint64_t namespace_ns = 0;  // how far the trainer's clock is behind, in a time namespace of its own
};

class FakeStore final : public Store {
 public:
  absl::StatusOr<int64_t> Put(absl::string_view, absl::string_view, std::optional<int64_t>, absl::Time) override { return 1; }
  absl::Status Delete(absl::string_view, absl::Time) override { return absl::OkStatus(); }
  std::vector<StoredValue> List(absl::string_view) const override { return {}; }
  void Announce(absl::string_view, absl::string_view) override {}
  StoreHealth Health() const override {
    StoreHealth health;
    health.shared = true;
    health.reachable = false;
    health.name = "etcd://a:1";
    health.trouble = "refused for 5 s";
    health.unreachable_since = absl::FromUnixNanos(kWallNs) + absl::Seconds(3);
    return health;
  }
  void OnChange(Changed) override {}
};

class DiagnosisAnswer : public ::testing::Test {
 protected:
  // A page whose process began when the clock did.
  std::unique_ptr<FakePage> MakePage(uint32_t rank) {
    auto page = std::make_unique<FakePage>(testing::FakeIdentity{.rank = rank, .wall_time_ns = kWallNs});
    page->page().identity.monotonic_ns = FakeClock::kStartNs;
    return page;
  }
  void Connect(const FakePage& page) { ASSERT_TRUE(registry_.Register(1000, page.Map()).ok()); }

  v1::DiagnoseResponse Part(const Store* store = nullptr) {
    v1::DiagnoseRequest request;
    request.set_job("job");
    auto part = AnswerEvidence(request, "node-a", store, registry_);
    EXPECT_TRUE(part.ok()) << part.status();
    return part.value_or(v1::DiagnoseResponse());
  }
  const v1::RankEvidence& Rank(const v1::DiagnoseResponse& part, int at) { return part.evidence(0).ranks(at); }

  FakeClock clock_;
  Registry registry_{RegistryOptions{}, &clock_};
};

TEST_F(DiagnosisAnswer, MeasuresIdleTimeOnTheClockThatTrainersShare) {
  auto page = MakePage(0);
  page->page().totals.last_event_ns.store(FakeClock::kStartNs + 10 * kSecondNs);
  page->page().cells[0][0].last_issue_ns.store(FakeClock::kStartNs + 12 * kSecondNs);
  page->page().cells[0][0].issued_count[0].store(3);
  page->page().cells[0][0].issued_count[1].store(1);
  page->page().cells[0][0].completed_count.store(1);
  page->page().cells[0][0].unknown_count.store(1);
  clock_.since_ns = 40 * kSecondNs;  // a daemon that comes late still knows
  Connect(*page);
  const v1::DiagnoseResponse part = Part();
  EXPECT_EQ(Rank(part, 0).progress().idle().seconds(), 28);
  EXPECT_EQ(Rank(part, 0).progress().in_flight_count(), 2);
  EXPECT_EQ(Rank(part, 0).age().seconds(), 40);
}

TEST_F(DiagnosisAnswer, MeasuresByItselfWhereTheTrainersClockIsAnother) {
  auto page = MakePage(0);
  clock_.namespace_ns = 5000 * kSecondNs;
  page->page().totals.last_event_ns.store(FakeClock::kStartNs + kSecondNs);
  clock_.since_ns = 10 * kSecondNs;
  Connect(*page);
  clock_.since_ns = 14 * kSecondNs;
  EXPECT_EQ(Rank(Part(), 0).progress().idle().seconds(), 4);
  page->page().totals.last_event_ns.store(FakeClock::kStartNs + 13 * kSecondNs);
  registry_.Tick();
  clock_.since_ns = 20 * kSecondNs;
  EXPECT_EQ(Rank(Part(), 0).progress().idle().seconds(), 6);
}

TEST_F(DiagnosisAnswer, BringsWindowsWithWhatTheirEventsAdd) {
  auto page = MakePage(0);
  page->AddEvent(EventKind::kCollectiveDone, 7'000'000);
  page->AddEvent(EventKind::kMicroStepEnd, 9'000'000);
  page->CloseWindow();
  page->CloseWindow();
  page->page().totals.override_count.store(2);
  page->page().totals.policy_staged_version.store(8);
  page->page().totals.policy_rejected_version.store(9);
  page->page().totals.policy_rejection.store(3);
  Connect(*page);
  const v1::DiagnoseResponse part = Part();
  const v1::RankEvidence& rank = Rank(part, 0);
  ASSERT_THAT(rank.windows(), SizeIs(2));
  EXPECT_EQ(rank.windows(1).window_index(), 1);
  EXPECT_EQ(rank.windows(1).window().micro_step_count(), 4);
  EXPECT_EQ(rank.windows(1).window_duration().nanos(), 50'000'000);
  EXPECT_EQ(rank.windows(1).gap_duration().nanos(), 50'000'000);
  EXPECT_FALSE(rank.windows(1).events_exact());  // the fake closes windows without an event
  EXPECT_EQ(rank.override_count(), 2);
  EXPECT_EQ(rank.policy_staged_version(), 8);
  EXPECT_EQ(rank.policy_rejected_version(), 9);
  EXPECT_EQ(rank.policy_rejection(), 3);
  EXPECT_EQ(part.job().job_name(), "job");
}

TEST_F(DiagnosisAnswer, LeavesOutWhatWasGoneBeforeItLooked) {
  auto page = MakePage(0);
  for (uint32_t i = 0; i < page::kEventSlots + 100; ++i) page->AddEvent(EventKind::kMicroStepBegin);
  for (uint32_t i = 0; i < page::kWindowSlots + 10; ++i) page->CloseWindow();
  Connect(*page);
  EXPECT_EQ(Rank(Part(), 0).event_missed_count(), 0);
  EXPECT_EQ(Rank(Part(), 0).window_missed_count(), 0);
  for (uint32_t i = 0; i < page::kEventSlots + 7; ++i) page->AddEvent(EventKind::kMicroStepBegin);
  for (uint32_t i = 0; i < page::kWindowSlots + 3; ++i) page->CloseWindow();
  EXPECT_EQ(Rank(Part(), 0).event_missed_count(), 7);
  EXPECT_EQ(Rank(Part(), 0).window_missed_count(), 3);
}

TEST_F(DiagnosisAnswer, KeepsTheLastWindowsOfALostRank) {
  auto page = MakePage(0);
  Connect(*page);
  const auto second = MakePage(1);
  const auto lost = registry_.Register(1000, second->Map());
  second->CloseWindow();
  clock_.since_ns = 3 * kSecondNs;
  registry_.End(lost->connection, Ending::kDisconnected);
  clock_.since_ns = 8 * kSecondNs;
  const v1::DiagnoseResponse part = Part();
  EXPECT_EQ(Rank(part, 1).stats().state(), v1::STATE_LOST);
  EXPECT_EQ(Rank(part, 1).ended().seconds(), 5);
  EXPECT_THAT(Rank(part, 1).windows(), SizeIs(1));
}

TEST_F(DiagnosisAnswer, SaysThatTheStoreCannotBeReached) {
  Connect(*MakePage(0));
  const FakeStore store;
  clock_.since_ns = 8 * kSecondNs;
  EXPECT_EQ(Part(&store).evidence(0).store_unreachable_duration().seconds(), 5);
  EXPECT_FALSE(Part().evidence(0).has_store_unreachable_duration());
  EXPECT_EQ(Part(&store).evidence(0).store_error(), "etcd://a:1: refused for 5 s");
  EXPECT_EQ(Part().evidence(0).store_error(), "");
}

TEST_F(DiagnosisAnswer, OfNobodyIsNotFound) {
  v1::DiagnoseRequest request;
  request.set_job("nobody");
  EXPECT_EQ(AnswerEvidence(request, "", nullptr, registry_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(DiagnosisAnswer, JudgesOverAllPartsAndNamesTheSilent) {
  auto page = MakePage(0);
  Connect(*page);
  Parts<v1::DiagnoseResponse> parts;
  parts.parts.push_back({0, Part()});
  v1::DiagnoseResponse other = Part();
  other.mutable_evidence(0)->mutable_ranks(0)->mutable_stats()->set_rank(1);
  other.mutable_evidence(0)->set_node_name("a lie");
  parts.parts.push_back({1, other});
  parts.nodes.resize(3);
  for (const int at : {0, 1}) parts.nodes[static_cast<size_t>(at)].set_answered(true);
  parts.nodes[1].set_node_name("node-b");
  parts.nodes[2].set_node_name("node-c");
  const v1::DiagnoseResponse response = Judge(parts, true, true);
  ASSERT_THAT(response.verdicts(), SizeIs(1));
  EXPECT_THAT(response.verdicts(0).headline(), HasSubstr("node-c did not answer"));
  EXPECT_THAT(response.nodes(), SizeIs(3));
  ASSERT_THAT(response.evidence(), SizeIs(2));
  EXPECT_EQ(response.evidence(1).node_name(), "node-b");
  EXPECT_EQ(response.job().running_rank_count(), 2);
  EXPECT_THAT(Judge(parts, true, false).evidence(), SizeIs(0));
}

TEST_F(DiagnosisAnswer, CountsRunningJobsByVerdict) {
  const auto healthy = MakePage(0);
  healthy->page().totals.override_count.store(2);
  Connect(*healthy);
  FakePage other({.job_name = "other", .run_id_bytes = std::string(16, '\x22')});
  const auto ended = registry_.Register(1000, other.Map());
  registry_.End(ended->connection, Ending::kDisconnected);
  const auto counts = CountVerdicts(registry_);
  EXPECT_EQ(counts.size(), 24u);
  EXPECT_EQ(counts.at("overridden"), 1);
  EXPECT_EQ(counts.at("healthy"), 0);
  EXPECT_EQ(counts.at("rank_lost"), 0);  // of a job that has ended
}

TEST_F(DiagnosisAnswer, RefusesEvidenceThatIsNone) {
  Connect(*MakePage(0));
  EXPECT_TRUE(CheckEvidence(Part()).ok());
  v1::DiagnoseResponse part = Part();
  *part.add_evidence() = part.evidence(0);
  EXPECT_THAT(CheckEvidence(part).message(), HasSubstr("evidence of 2 nodes"));
  part = Part();
  *part.mutable_evidence(0)->add_ranks() = part.evidence(0).ranks(0);
  EXPECT_THAT(CheckEvidence(part).message(), HasSubstr("there twice"));
  part = Part();
  for (int i = 0; i < 2000; ++i) part.mutable_evidence(0)->mutable_ranks(0)->add_windows();
  EXPECT_THAT(CheckEvidence(part).message(), HasSubstr("brings 2000 windows"));
  part = Part();
  part.mutable_evidence(0)->mutable_ranks(0)->mutable_stats()->set_host_name("\x1b[2J");
  EXPECT_EQ(CheckEvidence(part).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace gradgate
