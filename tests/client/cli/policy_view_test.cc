// What `gradgatectl policy` shows, to the letter.

#include "client/cli/policy_view.h"

#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/samples.h"

namespace gradgate::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::SampleJob;
using testing::SampleNow;

std::string Golden(const std::string& name) {
  std::ifstream file(std::string(GOLDEN_DIR) + "/" + name);
  EXPECT_TRUE(file) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

v1::PolicyStatus Sample() {
  v1::PolicyStatus status;
  *status.mutable_job() = SampleJob("digits");
  v1::ProposedPolicy& proposed = *status.mutable_proposed();
  proposed.set_version(7);
  proposed.set_content_hash("00c0ffee00c0ffee");
  proposed.mutable_policy()->set_sync_mode(v1::SYNC_MODE_WINDOW);
  proposed.mutable_policy()->set_bucket_bytes(25 << 20);
  proposed.mutable_former_policy()->set_wire_type(v1::WIRE_TYPE_BF16);
  proposed.set_actor("ann@host");
  proposed.set_node_name("n1");
  proposed.mutable_propose_time()->set_seconds(absl::ToUnixSeconds(SampleNow()) - 83);
  status.set_state(v1::POLICY_STATE_PROPOSED);
  status.set_detail("rank 1 has not read it yet");
  v1::RankPolicy& first = *status.add_ranks();
  first.set_node_name("n1");
  first.set_state(v1::STATE_RUNNING);
  first.set_adopted_version(6);
  first.set_adopted_window_index(0);
  first.set_staged_version(7);
  v1::RankPolicy& second = *status.add_ranks();
  second.set_rank(1);
  second.set_node_name("n2");
  second.set_state(v1::STATE_LOST);
  second.set_rejected_version(5);
  second.set_rejection(v1::POLICY_REJECTION_NO_BUCKETS);
  status.set_store("etcd://10.0.0.1:2379");
  v1::NodeAnswer& node = *status.add_nodes();
  node.set_node_name("n3");
  node.set_address("10.0.0.3:9");
  node.set_error("cannot be reached: no route");
  status.add_nodes()->set_answered(true);
  return status;
}

TEST(PolicyView, HasAllOfIt) { EXPECT_EQ(PolicyView(Sample(), SampleNow()), Golden("policy.txt")); }

TEST(PolicyView, WhatWasInheritedIsToldSo) {
  v1::PolicyStatus status = Sample();
  EXPECT_THAT(PolicyView(status, SampleNow()), ::testing::Not(::testing::HasSubstr("inherited")));
  status.mutable_proposed()->set_inherited_from_attempt(0);
  EXPECT_THAT(PolicyView(status, SampleNow()), ::testing::HasSubstr("inherited from attempt 0, which had it in force\n"));
}

TEST(PolicyView, WithoutAPolicyThereAreOnlyTheRanks) {
  v1::PolicyStatus status = Sample();
  status.clear_proposed();
  status.set_state(v1::POLICY_STATE_UNSPECIFIED);
  status.set_detail("none");
  const std::string text = PolicyView(status, SampleNow());
  EXPECT_THAT(text, HasSubstr("no policy: none\n"));
  EXPECT_THAT(text, Not(HasSubstr("\nbucket")));
  EXPECT_THAT(text, HasSubstr("store: etcd://10.0.0.1:2379\n"));
}

TEST(PolicyView, OfAnAdoptedPolicyThatIsInForceAndNothingElse) {
  v1::PolicyStatus status = Sample();
  status.set_state(v1::POLICY_STATE_ADOPTED);
  status.set_detail("in force on all ranks from window 9 on");
  for (v1::RankPolicy& rank : *status.mutable_ranks()) {
    rank.set_adopted_version(7);
    rank.set_adopted_window_index(9);
    rank.clear_rejected_version();
  }
  const std::string text = PolicyView(status, SampleNow());
  EXPECT_THAT(text, HasSubstr("\nin force: version 7 since window 9 on all ranks\n"));
  EXPECT_THAT(text, HasSubstr("\npolicy       in force\n"));
  EXPECT_THAT(text, HasSubstr("\nmode         window\n"));
  EXPECT_THAT(text, Not(HasSubstr("rejection")));
}

TEST(PolicyView, ARejectedPolicyStandsBehindTheOneInForceWithItsReasonOnce) {
  v1::PolicyStatus status = Sample();
  status.set_state(v1::POLICY_STATE_REJECTED);
  status.set_detail("rejected by rank 1: no buckets");
  status.mutable_ranks(1)->set_rejected_version(7);
  const std::string text = PolicyView(status, SampleNow());
  EXPECT_LT(text.find("in force: version 6"), text.find("version 7 rejected by rank 1: no buckets\n"));
  EXPECT_THAT(text, HasSubstr("policy       in force           rejected\n"));
  EXPECT_THAT(text, Not(HasSubstr("last rejection")));
}

TEST(PolicyLine, EachStateHasItsWord) {
  v1::PolicyStatus status = Sample();
  const std::pair<int, const char*> words[] = {{v1::POLICY_STATE_UNSPECIFIED, "none"},  {v1::POLICY_STATE_PROPOSED, "proposed"},
                                               {v1::POLICY_STATE_STAGED, "staged"},     {v1::POLICY_STATE_ADOPTED, "adopted"},
                                               {v1::POLICY_STATE_REJECTED, "rejected"}, {77, "77"}};
  for (const auto& [state, word] : words) {
    status.set_state(static_cast<v1::PolicyState>(state));
    EXPECT_EQ(PolicyLine(status), "version 7 " + std::string(word) + ": rank 1 has not read it yet\n");
  }
}

TEST(PolicyView, NothingThatOthersWroteReachesTheTerminal) {
  v1::PolicyStatus status = Sample();
  const std::string evil = "\x1b]0;evil\x07\n";
  status.set_detail(evil);
  status.set_store(evil);
  status.mutable_job()->set_job_name(evil);
  status.mutable_proposed()->set_actor(evil);
  status.mutable_proposed()->set_node_name(evil);
  status.mutable_proposed()->set_content_hash(evil);
  status.mutable_ranks(0)->set_node_name(evil);
  status.mutable_nodes(0)->set_node_name(evil);
  status.mutable_nodes(0)->set_address(evil);
  status.mutable_nodes(0)->set_error(evil);
  const std::string text = PolicyView(status, SampleNow()) + PolicyLine(status);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\x07")));
}

}  // namespace
}  // namespace gradgate::cli
