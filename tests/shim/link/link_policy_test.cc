// Policies that a daemon sends: the newest waits for its rank; what is none ends the connection.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/shim/link/link_fixture.h"

namespace gradgate::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class LinkPolicyTest : public LinkTest {
 protected:
  LinkPolicyTest() : daemon_(directory_), link_(MakeWelcomed(&daemon_, &connection_)) {}

  // A connection that was dropped is made anew, the next second.
  void Reconnect() {
    link_->Poll(now_ns_ += kSecondNs);
    connection_ = daemon_.AcceptHello();
    FakeDaemon::Send(connection_, Welcome());
    link_->Poll(now_ns_);
    ASSERT_TRUE(link_->welcomed());
  }

  template <typename Frame>
  void ExpectDropped(const Frame& frame, const char* fault) {
    FakeDaemon::Send(connection_, frame);
    link_->Poll(now_ns_);
    EXPECT_FALSE(link_->welcomed()) << fault;
    EXPECT_FALSE(link_->policy_waits()) << fault;
    EXPECT_TRUE(FakeDaemon::Receive(connection_).end);
    EXPECT_THAT(told_, ElementsAre(Pair("link_garbage", HasSubstr(fault))));
  }

  FakeDaemon daemon_;
  int connection_ = -1;
  std::unique_ptr<Link> link_;
};

TEST_F(LinkPolicyTest, APolicyWaitsUntilItIsTaken) {
  EXPECT_FALSE(link_->policy_waits());
  EXPECT_EQ(link_->TakePolicy().version, 0u);
  FakeDaemon::Send(connection_, Policy(5, 2));
  EXPECT_FALSE(link_->policy_waits()) << "nothing is read but by Poll";
  link_->Poll(now_ns_);
  EXPECT_TRUE(link_->policy_waits());
  const link::PolicyFrame taken = link_->TakePolicy();
  EXPECT_EQ(taken.version, 5u);
  EXPECT_EQ(taken.sync_mode, 2u);
  EXPECT_EQ(taken.content_hash, Policy(9, 2).content_hash);
  EXPECT_FALSE(link_->policy_waits());
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(LinkPolicyTest, TheNewestWinsInWhateverOrder) {
  for (const uint64_t version : {7, 9, 8}) FakeDaemon::Send(connection_, Policy(version, static_cast<uint32_t>(version % 4)));
  link_->Poll(now_ns_);
  const link::PolicyFrame taken = link_->TakePolicy();
  EXPECT_EQ(taken.version, 9u);
  EXPECT_EQ(taken.sync_mode, 1u);
  EXPECT_FALSE(link_->policy_waits());
}

TEST_F(LinkPolicyTest, ItOutlivesTheConnectionItCameOn) {
  FakeDaemon::Send(connection_, Policy(5));
  daemon_.Close(connection_);
  link_->Poll(now_ns_);
  EXPECT_FALSE(link_->welcomed());
  EXPECT_EQ(link_->TakePolicy().version, 5u);
}

TEST_F(LinkPolicyTest, AFloodIsReadInPartsAndNeverBlocks) {
  uint64_t sent = 0;
  while (sent < 40) FakeDaemon::Send(connection_, Policy(++sent));
  link_->Poll(now_ns_);
  EXPECT_EQ(link_->TakePolicy().version, 16u);
  link_->Poll(now_ns_);
  link_->Poll(now_ns_);
  EXPECT_EQ(link_->TakePolicy().version, 40u);
  for (int i = 0; i < 1000; ++i) link_->Poll(now_ns_);
  EXPECT_TRUE(link_->welcomed());
}

TEST_F(LinkPolicyTest, VersionZeroEndsTheConnection) { ExpectDropped(Policy(0), "policy version 0"); }

TEST_F(LinkPolicyTest, VersionWithTheTopBitEndsTheConnection) {
  ExpectDropped(Policy(uint64_t{1} << 63), "policy version 9223372036854775808");
}

TEST_F(LinkPolicyTest, AnotherHashEndsTheConnection) {
  link::PolicyFrame frame = Policy(5);
  frame.content_hash ^= 1;
  ExpectDropped(frame, "content hash");
}

TEST_F(LinkPolicyTest, ShortAndLongEndTheConnection) {
  struct Short {
    char bytes[sizeof(link::PolicyFrame) - 8];
  } cut;
  const link::PolicyFrame frame = Policy(5);
  std::memcpy(&cut, &frame, sizeof(cut));
  ExpectDropped(cut, "frame_bytes 88 in a packet of 80");
  Reconnect();
  told_.clear();  // it is told once
  struct Long {
    link::PolicyFrame frame;
    uint64_t more = 0;
  } longer{frame};
  FakeDaemon::Send(connection_, longer);
  link_->Poll(now_ns_);
  EXPECT_FALSE(link_->welcomed());
  EXPECT_FALSE(link_->policy_waits());
}

TEST_F(LinkPolicyTest, WithADescriptorItIsNoneAndNothingIsKept) {
  link::PolicyFrame frame = Policy(5);
  iovec part = {&frame, sizeof(frame)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  const int gift = 1;
  std::memcpy(CMSG_DATA(attached), &gift, sizeof(int));
  ASSERT_EQ(::sendmsg(connection_, &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(frame)));
  link_->Poll(now_ns_);
  EXPECT_FALSE(link_->welcomed());
  EXPECT_FALSE(link_->policy_waits());
  EXPECT_THAT(told_, ElementsAre(Pair("link_garbage", HasSubstr("a descriptor attached"))));
}

TEST_F(LinkPolicyTest, WhatCameBeforeGarbageStillWaits) {
  FakeDaemon::Send(connection_, Policy(5));
  FakeDaemon::Send(connection_, Policy(0));
  link_->Poll(now_ns_);
  EXPECT_FALSE(link_->welcomed());
  EXPECT_EQ(link_->TakePolicy().version, 5u);
}

TEST_F(LinkPolicyTest, ADaemonThatComesBackOffersItAgain) {
  FakeDaemon::Send(connection_, Policy(5));
  link_->Poll(now_ns_);
  (void)link_->TakePolicy();
  daemon_.Close(connection_);
  link_->Poll(now_ns_);
  Reconnect();
  FakeDaemon::Send(connection_, Policy(5));
  link_->Poll(now_ns_);
  EXPECT_EQ(link_->TakePolicy().version, 5u) << "whether it is news is the rank's to know";
}

}  // namespace
}  // namespace gradgate::test
