#include "daemon/rpc/plan_asking.h"

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "daemon/node/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using testing::FakePage;
using ::testing::HasSubstr;

class PlanAskingTest : public ::testing::Test {
 protected:
  // Of this node alone, which is answered at once.
  absl::StatusOr<v1::PlanSyncResponse> Plan(const v1::PlanSyncRequest& request) {
    absl::StatusOr<v1::PlanSyncResponse> plan = absl::UnknownError("not answered");
    std::make_shared<PlanAsking>(request, nullptr, &registry_, &tokens_, [&](auto answer) {
      plan = std::move(answer);
    })->Start(absl::Now() + absl::Seconds(5));
    return plan;
  }

  SystemClock clock_;
  Registry registry_{RegistryOptions{}, &clock_};
  PageTokens tokens_{1};
};

TEST_F(PlanAskingTest, GivenNumbersNeedNoJob) {
  v1::PlanSyncRequest request;
  request.mutable_numbers()->set_rank_count(2);
  request.mutable_numbers()->set_accumulate(4);
  request.mutable_numbers()->set_compute_seconds(1);
  request.mutable_numbers()->set_sync_seconds(0.5);
  const auto response = Plan(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_FALSE(response->has_job());
  EXPECT_DOUBLE_EQ(response->plan().modes(1).step_seconds(), 4.5);
  request.mutable_numbers()->set_rank_count(0);
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.mutable_numbers()->clear_rank_count();
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PlanAskingTest, UnknownJobIsNotFound) {
  v1::PlanSyncRequest request;
  request.set_job("job");
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PlanAskingTest, TheLatestWindowsOfAllRanksAreMeasured) {
  FakePage page0({.rank = 0}), page1({.rank = 1});
  for (FakePage* page : {&page0, &page1}) {
    ASSERT_TRUE(registry_.Register(1000, page->Map()).ok());
    page->page().roles[0].issued_count.store(100);
    page->page().cells[0][0].issued_count[0].store(200);
    page->page().cells[0][0].bytes[0].store(100 * 4000);
    for (uint64_t i = 0; i < 100; ++i) {
      page::WindowRecord record = FakePage::MakeRecord(i);
      record.suppressed_median_ns = i < 50 ? 99'000'000 : 10'000'000;  // it became faster
      record.boundary_ns = record.suppressed_median_ns + 5'000'000;
      page->CloseWindow(record);
    }
  }
  v1::PlanSyncRequest request;
  request.set_job("job");
  const auto response = Plan(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->job().world_size(), 2);
  EXPECT_NEAR(response->plan().numbers().compute_seconds(), 0.01, 1e-9);
  EXPECT_NEAR(response->plan().numbers().sync_seconds(), 0.005, 1e-9);
  EXPECT_EQ(response->plan().numbers().parameter_count(), 1000);
  EXPECT_EQ(response->plan().numbers().collective_count(), 2);
  EXPECT_EQ(response->measurements(0).sample_count(), 64);
}

TEST_F(PlanAskingTest, TooManyWhatIfsAreRefused) {
  v1::PlanSyncRequest request;
  request.mutable_numbers()->set_rank_count(2);
  request.mutable_numbers()->set_accumulate(4);
  request.mutable_numbers()->set_compute_seconds(1);
  request.mutable_numbers()->set_sync_seconds(0.5);
  for (int i = 0; i < 64; ++i) request.add_what_ifs()->set_accumulate(i + 1);
  EXPECT_TRUE(Plan(request).ok());
  request.add_what_ifs();
  EXPECT_THAT(std::string(Plan(request).status().message()), HasSubstr("65 what-ifs are more than 64"));
}

}  // namespace
}  // namespace gradgate
