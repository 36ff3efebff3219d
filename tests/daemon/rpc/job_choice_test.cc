#include "daemon/rpc/job_choice.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobClaim Claim(size_t node, char run, int64_t start, int64_t uid = 1000, int attempt = 0, int ranks = 1,
               const std::string& name = "train") {
  JobClaim claim{node, {}};
  claim.job.set_job_name(name);
  claim.job.set_run_id(std::string(32, run));
  claim.job.set_user_id(uid);
  claim.job.set_attempt(attempt);
  claim.job.set_running_rank_count(ranks);
  claim.job.mutable_start_time()->set_seconds(start);
  return claim;
}

TEST(ChooseJob, ANameMeansTheRunThatStartedLastAnywhere) {
  const auto choice = ChooseJob("train", {Claim(0, 'a', 10), Claim(1, 'b', 20), Claim(2, 'a', 11)});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->job.run_id(), std::string(32, 'b'));
  EXPECT_THAT(choice->ask_again, ElementsAre(0, 2)) << "they may have ranks of run b as well";
}

TEST(ChooseJob, ARunStartsWithItsFirstRank) {
  const auto choice = ChooseJob("train", {Claim(0, 'a', 30), Claim(1, 'b', 20), Claim(2, 'a', 10)});
  EXPECT_EQ(choice->job.run_id(), std::string(32, 'b'));
}

TEST(ChooseJob, TheLatestAttemptIsMeant) {
  const auto choice = ChooseJob(std::string(32, 'a'), {Claim(0, 'a', 10, 1000, 0), Claim(1, 'a', 20, 1000, 1)});
  EXPECT_EQ(choice->job.attempt(), 1);
  EXPECT_THAT(choice->ask_again, IsEmpty()) << "the same run: asked again it would say the same";
}

TEST(ChooseJob, SeveralUsersJobsOfOneNameAreListed) {
  const auto choice = ChooseJob("train", {Claim(0, 'a', 10, 1000), Claim(1, 'b', 20, 2000)});
  EXPECT_EQ(choice.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(choice.status().message()),
              HasSubstr("1000/train (run aaaaaaaaaaaa), 2000/train (run bbbbbbbbbbbb); give one of these"));
}

TEST(ChooseJob, OfTheUserThatIsNamed) {
  const std::vector<JobClaim> claims = {Claim(0, 'a', 90, 666), Claim(1, 'b', 20, 1000), Claim(2, 'a', 10, 1000)};
  const auto named = ChooseJob("1000/train", claims);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->job.run_id(), std::string(32, 'b'));
  const auto run = ChooseJob("1000/" + std::string(32, 'a'), {Claim(0, 'a', 90, 666, 0, 50), Claim(2, 'a', 10, 1000)});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->job.user_id(), 1000) << "though the asked daemon has another's";
  ASSERT_EQ(run->strays.size(), 1u);
  EXPECT_EQ(run->strays[0].first, 0u);
  EXPECT_EQ(ChooseJob("7/train", claims).status().code(), absl::StatusCode::kNotFound)
      << "nodes that answer what was not asked";
}

TEST(ChooseJob, SeveralRunsOfOneBeginningAreAnError) {
  const auto choice = ChooseJob("aaaaaa", {Claim(0, 'a', 10), Claim(1, 'b', 20)});
  EXPECT_EQ(choice.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChooseJob, ANameGoesBeforeABeginning) {
  const auto choice = ChooseJob("abcdef", {Claim(0, 'a', 90), Claim(1, 'b', 20, 1000, 0, 1, "abcdef")});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->job.run_id(), std::string(32, 'b'));
  EXPECT_THAT(choice->ask_again, ElementsAre(0));
}

TEST(ChooseJob, WhoClaimsAnothersRunIsLeftOutAndTold) {
  const std::string run(32, 'a');
  const auto here = ChooseJob(run, {Claim(0, 'a', 10, 1000, 0, 1), Claim(1, 'a', 20, 666, 0, 50)});
  EXPECT_EQ(here->job.user_id(), 1000) << "the one that the asked daemon has";
  ASSERT_EQ(here->strays.size(), 1u);
  EXPECT_EQ(here->strays[0].first, 1u);
  EXPECT_THAT(here->strays[0].second, HasSubstr("uid 666"));
  const auto elsewhere = ChooseJob(run, {Claim(1, 'a', 20, 666, 0, 1), Claim(2, 'a', 10, 1000, 0, 2)});
  EXPECT_EQ(elsewhere->job.user_id(), 1000) << "else who has most ranks";
  EXPECT_THAT(elsewhere->ask_again, IsEmpty());
}

TEST(NoSuchJob, NamesThoseThatDidNotAnswer) {
  v1::NodeAnswer a, b;
  a.set_node_name("a");
  a.set_answered(true);
  b.set_node_name("b");
  b.set_error("did not answer within 2s");
  EXPECT_EQ(NoSuchJob("x", {a}).message(), "no job \"x\" on this node; ListJobs tells those that are");
  EXPECT_EQ(NoSuchJob("x", {a, b}).message(),
            "no job \"x\" on this node; no answer from b (did not answer within 2s); ListJobs tells those that are");
}

TEST(IsWholeRunId, NeedsAllDigits) {
  EXPECT_TRUE(IsWholeRunId("0123456789abcdefABCDEF0123456789"));
  EXPECT_FALSE(IsWholeRunId("0123456789abcdefABCDEF012345678"));
  EXPECT_TRUE(IsWholeRunId("1000/0123456789abcdefABCDEF0123456789"));
  EXPECT_FALSE(IsWholeRunId("1000/0123456789abcdefABCDEF01234"));
  EXPECT_FALSE(IsWholeRunId("0123456789abcdefABCDEF012345678g"));
}

}  // namespace
}  // namespace gradgate
