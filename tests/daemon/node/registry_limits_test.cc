// What the registry forgets, and whose.

#include <memory>
#include <string>
#include <vector>

#include "daemon/node/registry.h"
#include "daemon/node/rejection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using testing::FakeIdentity;
using testing::FakePage;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr uint32_t kHonest = 1000;
constexpr uint32_t kHostile = 6666;

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

class RegistryLimitsTest : public ::testing::Test {
 protected:
  void Make(const RegistryOptions& options) { registry_ = std::make_unique<Registry>(options, &clock_); }

  FakePage& NewPage(const std::string& job, uint32_t rank = 0) {
    pages_.push_back(std::make_unique<FakePage>(FakeIdentity{.job_name = job, .rank = rank, .world_size = 64}));
    return *pages_.back();
  }
  absl::StatusOr<Registration> Register(uint32_t uid, const FakePage& page) { return registry_->Register(uid, page.Map()); }
  // Runs and ends, a second apart from all others.
  void RunJob(uint32_t uid, const std::string& job, int windows = 0) {
    FakePage& page = NewPage(job);
    for (int i = 0; i < windows; ++i) page.CloseWindow();
    const auto registration = Register(uid, page);
    ASSERT_TRUE(registration.ok()) << registration.status();
    registry_->End(registration->connection, Ending::kGoodbye);
    clock_.Advance(absl::Seconds(1));
  }
  std::vector<std::string> Jobs() {
    std::vector<std::string> names;
    for (const JobView& job : registry_->ListJobs()) names.push_back(job.job_name);
    return names;
  }
  size_t WindowsOf(const std::string& job) {
    return registry_->ListWindows(*registry_->FindJob(job), std::nullopt, false, 1'000'000)->size();
  }

  FakeClock clock_;
  std::unique_ptr<Registry> registry_;
  std::vector<std::unique_ptr<FakePage>> pages_;
};

TEST_F(RegistryLimitsTest, EndedJobsOfTheUserWithMostGoFirstTheOldestFirst) {
  Make({.max_ended_jobs = 3});
  RunJob(kHonest, "a");
  RunJob(kHonest, "b");
  for (const char* job : {"x", "y", "z"}) RunJob(kHostile, job);
  EXPECT_THAT(Jobs(), UnorderedElementsAre("b", "y", "z")) << "each gave way while it had most";
  RunJob(kHostile, "q");
  EXPECT_THAT(Jobs(), UnorderedElementsAre("b", "z", "q"));
  for (int i = 0; i < 50; ++i) RunJob(kHostile, "flood" + std::to_string(i));
  EXPECT_THAT(Jobs(), UnorderedElementsAre("b", "flood48", "flood49"));
}

TEST_F(RegistryLimitsTest, RanksInAllAreBoundedAndEndedJobsMakeRoom) {
  Make({.max_ended_jobs = 64, .max_ranks = 4});
  for (const char* job : {"a", "b", "c", "d"}) RunJob(kHonest, job);
  EXPECT_EQ(Jobs().size(), 4u);
  RunJob(kHonest, "e");
  EXPECT_THAT(Jobs(), UnorderedElementsAre("b", "c", "d", "e"));
}

TEST_F(RegistryLimitsTest, RunningRanksOfOneUserCannotFillTheNode) {
  Make({.max_ranks = 4});
  for (uint32_t rank = 0; rank < 3; ++rank) ASSERT_TRUE(Register(kHostile, NewPage("many", rank)).ok());
  const auto refused = Register(kHostile, NewPage("many", 3)).status();
  EXPECT_EQ(RejectionOf(refused), Rejection::kRankLimit);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("uid 6666 already have 3 ranks"));
  EXPECT_TRUE(Register(kHonest, NewPage("job")).ok());
  const auto full = Register(kHonest, NewPage("job", 1)).status();
  EXPECT_EQ(RejectionOf(full), Rejection::kRankLimit);
  EXPECT_THAT(std::string(full.message()), HasSubstr("running jobs already have 4 ranks; raise --max_ranks"));
}

// A job stays running as long as one rank does, so those of its ranks that ended count.
TEST_F(RegistryLimitsTest, EndedRanksOfARunningJobCount) {
  Make({.max_ranks = 4});
  ASSERT_TRUE(Register(kHostile, NewPage("many", 0)).ok());
  for (uint32_t rank = 1; rank < 3; ++rank) {
    registry_->End(Register(kHostile, NewPage("many", rank))->connection, Ending::kGoodbye);
  }
  EXPECT_EQ(RejectionOf(Register(kHostile, NewPage("many", 3)).status()), Rejection::kRankLimit);
  EXPECT_TRUE(Register(kHostile, NewPage("many", 2)).ok()) << "one that was there may come back";
}

TEST_F(RegistryLimitsTest, SlotsOfEvictedJobsAreFree) {
  Make({.series_linger = absl::Hours(1), .max_ranks = 2});
  for (int i = 0; i < 20; ++i) RunJob(kHostile, "job" + std::to_string(i));
  EXPECT_LT(Register(kHonest, NewPage("job"))->slot, 2u);
  EXPECT_LE(registry_->GetNode().ranks.size(), 2u);
}

TEST_F(RegistryLimitsTest, WindowsInAllAreBoundedAndEndedJobsMakeRoom) {
  Make({.max_window_records = 100});
  RunJob(kHonest, "honest", 30);
  RunJob(kHostile, "first", 40);
  RunJob(kHostile, "second", 60);
  EXPECT_THAT(Jobs(), UnorderedElementsAre("honest", "second"));
  EXPECT_EQ(WindowsOf("honest"), 30u);
}

TEST_F(RegistryLimitsTest, OldestWindowsOfTheHeaviestUsersLargestRunningJobGo) {
  Make({.max_window_records = 100});
  FakePage &honest = NewPage("honest"), &small = NewPage("small"), &large = NewPage("large");
  for (FakePage* page : {&honest, &small, &large}) {
    ASSERT_TRUE(Register(page == &honest ? kHonest : kHostile, *page).ok());
  }
  for (int i = 0; i < 45; ++i) honest.CloseWindow();
  for (int i = 0; i < 10; ++i) small.CloseWindow();
  for (int i = 0; i < 60; ++i) large.CloseWindow();
  registry_->Tick();
  EXPECT_EQ(WindowsOf("honest"), 45u);
  EXPECT_EQ(WindowsOf("small"), 10u);
  EXPECT_EQ(WindowsOf("large"), 30u);
  EXPECT_EQ(registry_->ListWindows(*registry_->FindJob("large"), std::nullopt, true, 1)->front().window_index, 59u);
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 50; ++i) large.CloseWindow();
    registry_->Tick();
    ASSERT_LE(WindowsOf("large") + WindowsOf("small"), 55u);
  }
  EXPECT_EQ(WindowsOf("honest"), 45u);
}

TEST_F(RegistryLimitsTest, OneWindowOfEachJobIsKeptHoweverTightTheBound) {
  Make({.max_window_records = 1});
  for (const char* job : {"a", "b", "c"}) {
    FakePage& page = NewPage(job);
    ASSERT_TRUE(Register(kHonest, page).ok());
    page.CloseWindow();
    page.CloseWindow();
  }
  registry_->Tick();
  for (const char* job : {"a", "b", "c"}) EXPECT_EQ(WindowsOf(job), 1u);
}

}  // namespace
}  // namespace gradgate
