#include "daemon/node/job_selector.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using ::testing::HasSubstr;

TEST(JobSelector, AUserIsWhatStandsBeforeTheFirstSlash) {
  const JobSelector of_user = ParseJobSelector("1000/digits");
  EXPECT_EQ(of_user.user_id, 1000u);
  EXPECT_EQ(of_user.job, "digits");
  EXPECT_TRUE(of_user.IsOf(1000));
  EXPECT_FALSE(of_user.IsOf(1001));
  EXPECT_EQ(ParseJobSelector("0/a/b").user_id, 0u);
  EXPECT_EQ(ParseJobSelector("0/a/b").job, "a/b");
  EXPECT_EQ(ParseJobSelector("7/").job, "");
  EXPECT_EQ(ParseJobSelector(FormatJobSelector(4294967295, "x")).user_id, 4294967295u);
}

TEST(JobSelector, WhatIsNoUidIsPartOfAName) {
  for (const char* text : {"", "digits", "ann/digits", "/digits", "-1/digits", "+1/digits", " 1/digits", "4294967296/digits",
                           "1x/digits", "3f2a91"}) {
    EXPECT_EQ(ParseJobSelector(text).user_id, std::nullopt) << text;
    EXPECT_EQ(ParseJobSelector(text).job, text);
    EXPECT_TRUE(ParseJobSelector(text).IsOf(5));
  }
}

TEST(JobSelector, ManyUsersAreCounted) {
  std::set<std::pair<int64_t, std::string>> runs;
  for (int64_t uid = 100; uid < 110; ++uid) {
    runs.emplace(uid, std::string(32, 'a'));
    runs.emplace(uid, std::string(32, 'b'));
  }
  const std::string text(SeveralUsers("are called", "x", runs).message());
  EXPECT_THAT(text, HasSubstr("jobs of several users are called \"x\": 100/x (run bbbbbbbbbbbb), 101/x"));
  EXPECT_THAT(text, HasSubstr("107/x (run bbbbbbbbbbbb), 2 more; give"));
}

}  // namespace
}  // namespace gradgate
