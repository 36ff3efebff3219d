#include "daemon/store/etcd/etcd_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradgate {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EtcdStateTest : public ::testing::Test {
 protected:
  void Fail(absl::Duration at, const char* why = "connection refused") {
    state_.SetTrouble(absl::UnavailableError(why), begin_ + at);
  }

  const absl::Time begin_ = absl::FromUnixSeconds(1'800'000'000);
  std::vector<std::string> lines_;
  EtcdState state_{"etcd://a:2379", "/p/", [this](absl::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(EtcdStateTest, OutageThatLastsIsToldOnceAndItsEndToo) {
  state_.SetReachable(begin_);
  Fail(absl::Seconds(10));
  Fail(absl::Seconds(12));
  EXPECT_THAT(lines_, IsEmpty());
  Fail(absl::Seconds(13), "connection\nrefused");
  Fail(absl::Seconds(60));
  EXPECT_EQ(state_.Health().unreachable_since, begin_ + absl::Seconds(10));
  state_.SetReachable(begin_ + absl::Seconds(70));
  EXPECT_FALSE(state_.Health().unreachable_since);
  EXPECT_THAT(lines_,
              ElementsAre("etcd://a:2379 has not answered for 3s: connection\\nrefused; jobs go on, no policy can be changed "
                          "until it does",
                          "etcd://a:2379 answers, after 1m"));
  Fail(absl::Seconds(80));
  Fail(absl::Seconds(85));
  EXPECT_EQ(lines_.size(), 3u) << "the next outage is another one";
}

TEST_F(EtcdStateTest, AnotherMemberThatAnswersSoonIsNoOutage) {
  state_.SetReachable(begin_);
  Fail(absl::Seconds(10));
  state_.SetReachable(begin_ + absl::Seconds(12));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(EtcdStateTest, BeforeTheFirstAnswerOnlyThatAnswerIsTold) {
  EXPECT_FALSE(state_.Health().unreachable_since);
  Fail(absl::ZeroDuration());
  Fail(absl::Seconds(9));
  EXPECT_EQ(state_.Health().unreachable_since, begin_);
  EXPECT_THAT(lines_, IsEmpty()) << "whoever started the daemon was told that it goes on alone";
  state_.SetReachable(begin_ + absl::Seconds(20));
  EXPECT_THAT(lines_, ElementsAre("etcd://a:2379 answers, after 20s"));
}

}  // namespace
}  // namespace gradgate
