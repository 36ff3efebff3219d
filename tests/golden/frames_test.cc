// What daemons of each version say to trainers, read by today's shim.

#include <gtest/gtest.h>

#include "tests/golden/golden.h"
#include "tests/shim/link/link_fixture.h"

namespace gradgate::test {
namespace {

class OldDaemon : public LinkTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void Say(const std::string& frame) {
    const std::vector<char> bytes = golden::ReadBytes(GetParam(), frame);
    FakeDaemon::SendBytes(connection_, bytes.data(), bytes.size());
    link_->Poll(now_ns_);
  }
  void Connect() {
    link_ = MakeLink();
    link_->Poll(now_ns_);
    connection_ = daemon_.AcceptHello();
  }

  FakeDaemon daemon_{directory_};
  std::unique_ptr<Link> link_;
  int connection_ = -1;
};

TEST_P(OldDaemon, ItsWelcomeIsTaken) {
  Connect();
  Say("welcome");
  EXPECT_TRUE(link_->welcomed());
  EXPECT_TRUE(told_.empty());
}

TEST_P(OldDaemon, ItsRefusalIsToldWithWhatItSays) {
  Connect();
  Say("reject");
  EXPECT_FALSE(link_->welcomed());
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].first, "link_rejected");
  EXPECT_NE(told_[0].second.find("256 trainers are connected, as many as --max_clients allows"), std::string::npos)
      << told_[0].second;
  EXPECT_FALSE(link_->Due(now_ns_ + 4 * kSecondNs)) << "a daemon that is full is left alone for 5 s";
  EXPECT_TRUE(link_->Due(now_ns_ + 5 * kSecondNs));
}

TEST_P(OldDaemon, ItsPolicyIsTaken) {
  if (GetParam() == "1.0") return;  // frames 1.0 have none
  Connect();
  Say("welcome");
  Say("policy");
  ASSERT_TRUE(link_->policy_waits());
  const link::PolicyFrame policy = link_->TakePolicy();
  EXPECT_EQ(policy.version, 7u);
  EXPECT_EQ(policy.sync_mode, static_cast<uint32_t>(SyncMode::kEveryMicroStep));
}

INSTANTIATE_TEST_SUITE_P(EachVersion, OldDaemon, ::testing::ValuesIn(golden::kVersions), golden::TestName);

}  // namespace
}  // namespace gradgate::test
