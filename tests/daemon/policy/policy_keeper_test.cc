// What jobs have in force on their pages gets into the store, whenever that can be written.

#include "daemon/policy/policy_keeper.h"

#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/policy/fake_store.h"

namespace gradgate {
namespace {

using testing::FakePage;
using testing::FakeStore;

class KeeperTest : public ::testing::Test {
 protected:
  // Rank `rank` of attempt `attempt`, of a known launch or not.
  JobKey Run(FakePage& page, bool known) {
    if (known) page.page().identity.launch_id[0] = 9;
    const auto registration = registry_.Register(1000, page.Map());
    EXPECT_TRUE(registration.ok()) << registration.status();
    return registration->job;
  }

  int64_t Propose(const JobKey& job) {
    Proposal proposal;
    proposal.job = job;
    proposal.policy.set_sync_mode(v1::SYNC_MODE_WINDOW);
    const auto proposed = desk_.Propose(proposal, absl::Now() + absl::Seconds(10));
    EXPECT_TRUE(proposed.ok()) << proposed.status();
    return proposed->version();
  }

  void Adopt(FakePage& page, int64_t version) {
    page.page().totals.policy_version = static_cast<uint64_t>(version);
    registry_.Tick();
  }

  bool AwaitKept() {
    const absl::Time end = absl::Now() + absl::Seconds(30);
    for (; absl::Now() < end; absl::SleepFor(absl::Milliseconds(2))) {
      if (!store_.List(kLaunchesPrefix).empty()) return true;
    }
    return false;
  }

  SystemClock clock_;
  Registry registry_{RegistryOptions{}, &clock_};
  FakeStore store_;
  PolicyDesk desk_{&store_, &clock_, "n1"};
};

TEST_F(KeeperTest, WhatIsAdoptedIsKeptForTheNextAttempt) {
  FakePage page({}), unknown({.job_name = "other"});
  const JobKey job = Run(page, true), other = Run(unknown, false);
  const int64_t version = Propose(job);
  Adopt(unknown, Propose(other));
  EXPECT_TRUE(registry_.ListPoliciesInForce().empty()) << "proposed is not adopted, and of the other no launch is known";
  PolicyKeeper keeper(&registry_, &desk_);
  Adopt(page, version);
  ASSERT_TRUE(AwaitKept());
  desk_.Refresh();
  const std::string launch = "09" + std::string(30, '0');
  JobKey next = job;
  next.run_id = std::string(32, 'b');
  ++next.attempt;
  EXPECT_EQ(desk_.Latest(next, launch).version(), version);
  EXPECT_EQ(store_.List(kLaunchesPrefix).size(), 1u) << "nobody could tell whose attempt comes after the other's";
}

TEST_F(KeeperTest, AfterAFailureAndFromTheDead) {
  FakePage page({});
  page.page().identity.launch_id[0] = 9;
  const auto registration = registry_.Register(1000, page.Map());
  ASSERT_TRUE(registration.ok());
  const int64_t version = Propose(registration->job);
  page.page().totals.policy_version = static_cast<uint64_t>(version);
  registry_.End(registration->connection, Ending::kDisconnected);
  store_.Fail(absl::UnavailableError("gone"));
  const int before = store_.put_count;
  PolicyKeeper keeper(&registry_, &desk_);
  const absl::Time end = absl::Now() + absl::Seconds(30);
  while (store_.put_count == before && absl::Now() < end) absl::SleepFor(absl::Milliseconds(2));
  store_.Fail(absl::OkStatus());
  EXPECT_TRUE(AwaitKept());
}

TEST_F(KeeperTest, EndsWhileTheStoreHangs) {
  FakePage page({});
  const JobKey job = Run(page, true);
  Adopt(page, Propose(job));
  store_.hang = true;
  const int before = store_.put_count;
  const absl::Time begin = absl::Now();
  {
    PolicyKeeper keeper(&registry_, &desk_);
    while (store_.put_count == before && absl::Now() < begin + absl::Seconds(30)) absl::SleepFor(absl::Milliseconds(2));
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

}  // namespace
}  // namespace gradgate
