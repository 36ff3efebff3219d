#include "daemon/rpc/plan_answer.h"

#include "daemon/node/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using testing::FakePage;
using ::testing::HasSubstr;

class PlanAnswerTest : public ::testing::Test {
 protected:
  SystemClock clock_;
  Registry registry_{RegistryOptions{}, &clock_};
};

TEST_F(PlanAnswerTest, GivenNumbersNeedNoJob) {
  v1::PlanSyncRequest request;
  request.mutable_numbers()->set_rank_count(2);
  request.mutable_numbers()->set_accumulate(4);
  request.mutable_numbers()->set_compute_seconds(1);
  request.mutable_numbers()->set_sync_seconds(0.5);
  const auto response = AnswerPlanSync(request, registry_);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_FALSE(response->has_job());
  EXPECT_DOUBLE_EQ(response->plan().modes(1).step_seconds(), 4.5);
  request.mutable_numbers()->set_rank_count(0);
  EXPECT_EQ(AnswerPlanSync(request, registry_).status().code(), absl::StatusCode::kInvalidArgument);
  request.mutable_numbers()->clear_rank_count();
  EXPECT_EQ(AnswerPlanSync(request, registry_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PlanAnswerTest, UnknownJobIsNotFound) {
  v1::PlanSyncRequest request;
  request.set_job("job");
  EXPECT_EQ(AnswerPlanSync(request, registry_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PlanAnswerTest, TheLatestWindowsOfAllRanksAreMeasured) {
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
  const auto response = AnswerPlanSync(request, registry_);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->job().world_size(), 2);
  EXPECT_NEAR(response->plan().numbers().compute_seconds(), 0.01, 1e-9);
  EXPECT_NEAR(response->plan().numbers().sync_seconds(), 0.005, 1e-9);
  EXPECT_EQ(response->plan().numbers().parameter_count(), 1000);
  EXPECT_EQ(response->plan().numbers().collective_count(), 2);
  EXPECT_EQ(response->measurements(0).sample_count(), 64);
}

TEST_F(PlanAnswerTest, TooManyWhatIfsAreRefused) {
  v1::PlanSyncRequest request;
  request.mutable_numbers()->set_rank_count(2);
  request.mutable_numbers()->set_accumulate(4);
  request.mutable_numbers()->set_compute_seconds(1);
  request.mutable_numbers()->set_sync_seconds(0.5);
  for (int i = 0; i < 64; ++i) request.add_what_ifs()->set_accumulate(i + 1);
  EXPECT_TRUE(AnswerPlanSync(request, registry_).ok());
  request.add_what_ifs();
  EXPECT_THAT(std::string(AnswerPlanSync(request, registry_).status().message()), HasSubstr("65 what-ifs are more than 64"));
}

}  // namespace
}  // namespace gradgate
