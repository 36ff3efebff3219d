#include "daemon/policy/policy_desk.h"

#include <functional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/policy/policy_content.h"
#include "daemon/store/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/policy/fake_store.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using testing::FakeStore;
using ::testing::HasSubstr;

const JobKey kJob{1000, "digits", std::string(32, 'a'), 0};

v1::Policy Mode(v1::SyncMode mode) {
  v1::Policy policy;
  policy.set_sync_mode(mode);
  return policy;
}

Proposal Propose(const JobKey& job, int64_t expected, v1::SyncMode mode = v1::SYNC_MODE_WINDOW) {
  Proposal proposal;
  proposal.job = job;
  proposal.policy = Mode(mode);
  proposal.former = Mode(v1::SYNC_MODE_AUTO);
  proposal.actor = "ann@host";
  proposal.expected = expected;
  return proposal;
}

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

class FixedClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixNanos(1'700'000'000'123'456'789); }
};

class DeskTest : public ::testing::Test {
 protected:
  // As another daemon would have written it, under the key that belongs to it.
  void Write(const JobKey& job, int64_t revision, const std::function<void(store::v1::StoredPolicy&)>& change = nullptr,
             const std::string& key = "") {
    store::v1::StoredPolicy stored;
    stored.set_user_id(job.user_id);
    stored.set_job_name(job.job_name);
    stored.set_run_id(job.run_id);
    stored.set_attempt(static_cast<int32_t>(job.attempt));
    *stored.mutable_policy() = Mode(v1::SYNC_MODE_EVERY_MICRO_STEP);
    stored.set_actor("bob@other");
    stored.set_node_name("n2");
    if (change) change(stored);
    store_.Write(key.empty() ? KeyOf(job) : key, stored.SerializeAsString(), revision);
    desk_.Refresh();
  }
  static std::string KeyOf(const JobKey& job) {
    return absl::StrCat("policies/", job.user_id, "/", absl::BytesToHexString(job.job_name), "/", job.run_id, "/", job.attempt);
  }

  FixedClock clock_;
  FakeStore store_;
  PolicyDesk desk_{&store_, &clock_, "n1"};
};

TEST(PolicyDesk, OverAMemoryStore) {
  SystemClock clock;
  MemoryStore store;
  PolicyDesk desk(&store, &clock, "n1");
  for (int64_t version = 0, round = 0; round < 3; ++round) {
    const auto proposed = desk.Propose(Propose(kJob, version), Soon());
    ASSERT_TRUE(proposed.ok()) << proposed.status();
    EXPECT_GT(proposed->version(), version);
    version = proposed->version();
    EXPECT_EQ(desk.Latest(kJob, "").version(), version);
    EXPECT_EQ(desk.FrameFor(kJob, "").version, static_cast<uint64_t>(version));
  }
  EXPECT_EQ(desk.Propose(Propose(kJob, 1), Soon()).status().code(), absl::StatusCode::kAborted);
}

TEST_F(DeskTest, WithoutAPolicyThereIsNothingToOffer) {
  desk_.Refresh();
  EXPECT_EQ(desk_.FrameFor(kJob, "").version, 0u);
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 0);
}

TEST_F(DeskTest, AProposalIsInTheStoreWithAllOfIt) {
  const uint64_t before = desk_.generation();
  const auto proposed = desk_.Propose(Propose(kJob, 0), Soon());
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  EXPECT_EQ(proposed->version(), 1);
  EXPECT_EQ(proposed->policy().sync_mode(), v1::SYNC_MODE_WINDOW);
  EXPECT_EQ(proposed->former_policy().sync_mode(), v1::SYNC_MODE_AUTO);
  EXPECT_EQ(proposed->actor(), "ann@host");
  EXPECT_EQ(proposed->node_name(), "n1");
  EXPECT_EQ(proposed->propose_time().seconds(), 1'700'000'000);
  EXPECT_EQ(proposed->propose_time().nanos(), 123'456'789);
  EXPECT_EQ(proposed->content_hash(), FormatHash(desk_.FrameFor(kJob, "")));
  EXPECT_EQ(desk_.Latest(kJob, "").SerializeAsString(), proposed->SerializeAsString());
  EXPECT_GT(desk_.generation(), before);
  ASSERT_EQ(store_.List(KeyOf(kJob)).size(), 1u);
}

TEST_F(DeskTest, OnlyOverTheVersionItWasMadeFrom) {
  ASSERT_TRUE(desk_.Propose(Propose(kJob, 0), Soon()).ok());
  for (const int64_t expected : {0, 2, 99}) {
    const auto refused = desk_.Propose(Propose(kJob, expected), Soon());
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(absl::StrCat("the present version is 1, not ", expected)));
  }
  EXPECT_EQ(store_.put_count, 1) << "nothing was written";
}

// The copy of this daemon is behind: the store itself refuses.
TEST_F(DeskTest, ALateCopyLosesNoUpdate) {
  store_.late = true;
  Write(kJob, 5);
  const auto refused = desk_.Propose(Propose(kJob, 0), Soon());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAborted);
  store_.CatchUp();
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 5);
  EXPECT_EQ(desk_.Latest(kJob, "").actor(), "bob@other");
  const auto proposed = desk_.Propose(Propose(kJob, 5), Soon());
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  EXPECT_EQ(proposed->version(), 6);
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 6) << "told, although the copy does not have it yet";
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 6);
  ASSERT_TRUE(desk_.Propose(Propose(kJob, 6), Soon()).ok()) << "and can be changed at once";
  store_.CatchUp();
  Write(kJob, 9);
  store_.CatchUp();
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 9);
}

TEST_F(DeskTest, TheStoresErrorsAreTold) {
  for (const auto code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kPermissionDenied, absl::StatusCode::kResourceExhausted}) {
    store_.Fail(absl::Status(code, "etcd says so"));
    const auto refused = desk_.Propose(Propose(kJob, 0), Soon());
    EXPECT_EQ(refused.status().code(), code);
    EXPECT_EQ(refused.status().message(), "etcd says so");
  }
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 0);
}

TEST_F(DeskTest, AStoreThatHangsIsGivenUpAtTheDeadlineAndHoldsNobodyElse) {
  store_.hang = true;
  const absl::Time begin = absl::Now();
  EXPECT_EQ(desk_.Propose(Propose(kJob, 0), begin + absl::Milliseconds(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

TEST_F(DeskTest, GenerationGrowsOnlyWithAPolicy) {
  Write(kJob, 5);
  const uint64_t before = desk_.generation();
  desk_.Refresh();
  store_.Write("nodes/n2", "here", 6);
  desk_.Refresh();
  EXPECT_EQ(desk_.generation(), before) << "listeners have nothing to do";
  Write(kJob, 7);
  EXPECT_GT(desk_.generation(), before);
  const uint64_t then = desk_.generation();
  store_.Empty();
  desk_.Refresh();
  EXPECT_GT(desk_.generation(), then);
}

TEST_F(DeskTest, ForeignAndHostileValuesAreLeftAlone) {
  const JobKey other{1000, "other", std::string(32, 'b'), 0};
  struct Case {
    const char* what;
    std::function<void(store::v1::StoredPolicy&)> change;
  };
  const Case cases[] = {
      {"another user's", [](auto& s) { s.set_user_id(0); }},
      {"another job's", [](auto& s) { s.set_job_name("digit"); }},
      {"another run's", [](auto& s) { s.set_run_id("b"); }},
      {"another attempt's", [](auto& s) { s.set_attempt(1); }},
      {"a negative attempt", [](auto& s) { s.set_attempt(-1); }},
      {"a user beyond any", [](auto& s) { s.set_user_id(1000 + (int64_t{1} << 32)); }},
      {"a negative user", [](auto& s) { s.set_user_id(-1); }},
      {"an unknown mode", [](auto& s) { s.mutable_policy()->set_sync_mode(static_cast<v1::SyncMode>(9)); }},
      {"a bucket of a byte", [](auto& s) { s.mutable_policy()->set_bucket_bytes(1); }},
      {"off", [](auto& s) { s.mutable_policy()->set_enforcement(v1::ENFORCEMENT_OFF); }},
      {"an unsound former", [](auto& s) { s.mutable_former_policy()->set_bucket_bytes(-4); }},
      {"a long actor", [](auto& s) { s.set_actor(std::string(129, 'x')); }},
      {"an actor for the terminal", [](auto& s) { s.set_actor("\x1b]0;evil\x07"); }},
      {"a long node", [](auto& s) { s.set_node_name(std::string(129, 'x')); }},
      {"a node of two lines", [](auto& s) { s.set_node_name("n\n2"); }},
      {"a time that no JSON has", [](auto& s) { s.mutable_propose_time()->set_seconds(int64_t{1} << 50); }},
      {"a time before all", [](auto& s) { s.mutable_propose_time()->set_seconds(INT64_MIN); }},
      {"nanoseconds below 0", [](auto& s) { s.mutable_propose_time()->set_nanos(-1); }},
      {"nanoseconds of more than one second", [](auto& s) { s.mutable_propose_time()->set_nanos(1'000'000'000); }},
  };
  int64_t revision = 0;
  for (const Case& c : cases) {
    store_.Empty();
    Write(other, ++revision);
    Write(kJob, ++revision, c.change, KeyOf(kJob));
    EXPECT_EQ(desk_.FrameFor(kJob, "").version, 0u) << c.what;
    EXPECT_EQ(desk_.Latest(kJob, "").version(), 0) << c.what;
    EXPECT_NE(desk_.FrameFor(other, "").version, 0u) << "beside " << c.what;
  }
  Write(kJob, ++revision, nullptr, "policies/1001/" + KeyOf(kJob).substr(sizeof("policies/1000/") - 1));
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 0) << "under another user's key";
  Write(kJob, ++revision, nullptr, KeyOf(kJob) + "0");
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 0) << "under another attempt's key";
  store_.Empty();
  store_.Write(KeyOf(kJob), "\xff\xff\xff no message", ++revision);
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 0);
  Write(kJob, 0);
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 0) << "no revision";
  Write(kJob, -3);
  EXPECT_EQ(desk_.FrameFor(kJob, "").version, 0u) << "a revision that no rank would take";
}

TEST_F(DeskTest, AnyPrintableJobNameHasAKey) {
  for (const char* name : {"a/b", "..", "größe", "a b", ""}) {
    JobKey job = kJob;
    job.job_name = name;
    ASSERT_TRUE(desk_.Propose(Propose(job, 0), Soon()).ok()) << name;
    EXPECT_NE(desk_.Latest(job, "").version(), 0) << name;
  }
}

const std::string kLaunch(32, 'e');

JobKey Attempt(uint32_t number) { return {1000, "digits", std::string(32, static_cast<char>('a' + number)), number}; }

TEST_F(DeskTest, APolicyIsOfOneRun) {
  Write(Attempt(0), 5);
  EXPECT_EQ(desk_.FrameFor(Attempt(0), kLaunch).version, 5u);
  EXPECT_EQ(desk_.FrameFor(Attempt(1), "").version, 0u) << "another run of the name, or a restart: nothing tells which";
  EXPECT_EQ(desk_.FrameFor(Attempt(1), kLaunch).version, 0u) << "nothing was in force";
  EXPECT_EQ(desk_.FrameFor({1001, "digits", std::string(32, 'a'), 0}, "").version, 0u) << "of another user";
}

TEST_F(DeskTest, WhatIsInForceIsInheritedByLaterAttemptsOfTheLaunchAlone) {
  Write(Attempt(1), 5);
  const uint64_t before = desk_.generation();
  ASSERT_TRUE(desk_.Keep({Attempt(1), kLaunch, 5}, Soon()).ok());
  desk_.Refresh();
  EXPECT_GT(desk_.generation(), before) << "ranks that wait are offered it";
  for (const uint32_t later : {2, 7}) {
    EXPECT_EQ(desk_.FrameFor(Attempt(later), kLaunch).version, 5u);
    const v1::ProposedPolicy latest = desk_.Latest(Attempt(later), kLaunch);
    EXPECT_EQ(latest.version(), 5);
    EXPECT_EQ(latest.inherited_from_attempt(), 1);
    EXPECT_EQ(latest.policy().sync_mode(), v1::SYNC_MODE_EVERY_MICRO_STEP);
    EXPECT_EQ(latest.actor(), "bob@other");
    EXPECT_EQ(latest.content_hash(), FormatHash(desk_.FrameFor(Attempt(1), kLaunch))) << "the same frame on all nodes";
    EXPECT_EQ(latest.former_policy().ByteSizeLong(), 0u) << "before it, the attempt has what its trainers are given";
  }
  EXPECT_FALSE(desk_.Latest(Attempt(1), kLaunch).has_inherited_from_attempt()) << "its own";
  JobKey beside = Attempt(1);
  beside.run_id = std::string(32, 'f');
  EXPECT_EQ(desk_.FrameFor(beside, kLaunch).version, 0u) << "of the same attempt";
  EXPECT_EQ(desk_.FrameFor(Attempt(0), kLaunch).version, 0u) << "of an earlier one";
  EXPECT_EQ(desk_.FrameFor(Attempt(2), std::string(32, 'd')).version, 0u) << "of another launch";
  EXPECT_EQ(desk_.FrameFor(Attempt(2), "").version, 0u) << "of no known launch";
  JobKey foreign = Attempt(2), renamed = Attempt(2);
  foreign.user_id = 1001;
  renamed.job_name = "letters";
  EXPECT_EQ(desk_.FrameFor(foreign, kLaunch).version, 0u) << "of another user";
  EXPECT_EQ(desk_.FrameFor(renamed, kLaunch).version, 0u);
}

TEST_F(DeskTest, WhatWasNeverInForceIsNotInherited) {
  Write(Attempt(0), 5);
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 5}, Soon()).ok());
  Write(Attempt(0), 8, [](auto& s) { *s.mutable_policy() = Mode(v1::SYNC_MODE_AUTO); });
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 5}, Soon()).ok()) << "8 was rejected: 5 stays in force";
  EXPECT_EQ(desk_.FrameFor(Attempt(1), kLaunch).version, 5u);
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 8}, Soon()).ok());
  desk_.Refresh();
  EXPECT_EQ(desk_.FrameFor(Attempt(1), kLaunch).version, 8u);
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 5}, Soon()).ok()) << "a page read late";
  desk_.Refresh();
  EXPECT_EQ(desk_.FrameFor(Attempt(1), kLaunch).version, 8u);
  const int puts = store_.put_count;
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 8}, Soon()).ok());
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 99}, Soon()).ok()) << "whatever a page says";
  EXPECT_EQ(store_.put_count, puts) << "written once";
}

TEST_F(DeskTest, WhatWasReplacedBeforeItWasAdoptedIsKeptAllTheSame) {
  Write(Attempt(0), 5);
  Write(Attempt(0), 6, [](auto& s) { *s.mutable_policy() = Mode(v1::SYNC_MODE_AUTO); });
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 5}, Soon()).ok());
  desk_.Refresh();
  const v1::ProposedPolicy left = desk_.Latest(Attempt(1), kLaunch);
  EXPECT_EQ(left.version(), 5);
  EXPECT_EQ(left.policy().sync_mode(), v1::SYNC_MODE_EVERY_MICRO_STEP);
}

TEST_F(DeskTest, AnEarlierAttemptDoesNotTakeThePlaceOfALaterOne) {
  Write(Attempt(1), 5);
  ASSERT_TRUE(desk_.Keep({Attempt(1), kLaunch, 5}, Soon()).ok());
  Write(Attempt(0), 9);
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 9}, Soon()).ok());
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(Attempt(2), kLaunch).version(), 5);
}

TEST_F(DeskTest, AnHeirIsGivenAPolicyOfItsOwn) {
  Write(Attempt(0), 5);
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 5}, Soon()).ok());
  desk_.Refresh();
  Proposal proposal = Propose(Attempt(1), 0);
  proposal.launch_id = kLaunch;
  EXPECT_EQ(desk_.Propose(proposal, Soon()).status().code(), absl::StatusCode::kAborted)
      << "made from nothing, though 5 stands";
  proposal.expected = proposal.above = 5;
  const auto proposed = desk_.Propose(proposal, Soon());
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  EXPECT_GT(proposed->version(), 5);
  EXPECT_FALSE(proposed->has_inherited_from_attempt());
  EXPECT_EQ(desk_.FrameFor(Attempt(1), kLaunch).version, static_cast<uint64_t>(proposed->version()));
  EXPECT_EQ(desk_.FrameFor(Attempt(0), kLaunch).version, 5u);
  EXPECT_EQ(desk_.FrameFor(Attempt(2), kLaunch).version, 5u) << "until it is in force";
  ASSERT_TRUE(desk_.Keep({Attempt(1), kLaunch, static_cast<uint64_t>(proposed->version())}, Soon()).ok());
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(Attempt(2), kLaunch).inherited_from_attempt(), 1);
}

TEST_F(DeskTest, KeepingTellsWhatFailsAndLeavesOthersTheirWord) {
  Write(Attempt(0), 5);
  store_.Fail(absl::UnavailableError("gone"));
  EXPECT_EQ(desk_.Keep({Attempt(0), kLaunch, 5}, Soon()).code(), absl::StatusCode::kUnavailable);
  store_.Fail(absl::OkStatus());
  store_.late = true;
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 5}, Soon()).ok());
  EXPECT_EQ(desk_.Keep({Attempt(0), kLaunch, 5}, Soon()).code(), absl::StatusCode::kAborted) << "another daemon was first";
  store_.CatchUp();
  desk_.Refresh();
  EXPECT_EQ(desk_.FrameFor(Attempt(1), kLaunch).version, 5u);
}

TEST_F(DeskTest, WhatOthersLeftUnsoundIsNotInherited) {
  const std::string key = absl::StrCat("launches/1000/", absl::BytesToHexString("digits"), "/", kLaunch);
  const auto leave = [&](const std::function<void(store::v1::LaunchPolicy&)>& change, const std::string& under) {
    store::v1::LaunchPolicy left;
    store::v1::StoredPolicy& stored = *left.mutable_stored();
    stored.set_user_id(1000);
    stored.set_job_name("digits");
    stored.set_run_id(std::string(32, 'a'));
    left.set_version(5);
    left.set_launch_id(kLaunch);
    change(left);
    store_.Empty();
    store_.Write(under, left.SerializeAsString(), 6);
    desk_.Refresh();
    return desk_.FrameFor(Attempt(1), kLaunch).version;
  };
  EXPECT_EQ(leave([](auto&) {}, key), 5u);
  EXPECT_EQ(leave([](auto& left) { left.set_version(0); }, key), 0u);
  EXPECT_EQ(leave([](auto& left) { left.set_launch_id(""); }, key), 0u);
  EXPECT_EQ(leave([](auto& left) { left.mutable_stored()->set_user_id(1001); }, key), 0u);
  EXPECT_EQ(leave([](auto& left) { left.mutable_stored()->set_actor("\x1b[2J"); }, key), 0u);
  EXPECT_EQ(leave([](auto& left) { left.mutable_stored()->mutable_policy()->set_bucket_bytes(1); }, key), 0u);
  EXPECT_EQ(leave([](auto&) {}, key + "0"), 0u) << "under another key";
  store_.Write(key, "garbage", 9);
  desk_.Refresh();
  EXPECT_EQ(desk_.FrameFor(Attempt(1), kLaunch).version, 0u);
  Write(Attempt(0), 10);
  ASSERT_TRUE(desk_.Keep({Attempt(0), kLaunch, 10}, Soon()).ok()) << "in the place of garbage";
  desk_.Refresh();
  EXPECT_EQ(desk_.FrameFor(Attempt(1), kLaunch).version, 10u);
}

TEST_F(DeskTest, AValueThatIsNotSoundIsReplaced) {
  store_.Write(KeyOf(kJob), "garbage", 7);
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 0);
  const auto proposed = desk_.Propose(Propose(kJob, 0), Soon());
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  EXPECT_EQ(desk_.Latest(kJob, "").version(), 8);
}

TEST_F(DeskTest, AStoreThatWasEmptiedProposesNothingBelowWhatRanksHold) {
  Proposal proposal = Propose(kJob, 0);
  proposal.above = 40;
  const auto refused = desk_.Propose(proposal, Soon());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), AllOf(HasSubstr("fake"), HasSubstr("gave it version 1"),
                                                             HasSubstr("hold version 40"), HasSubstr("restart the job")));
  EXPECT_TRUE(store_.List("policies/").empty()) << "taken back";
  EXPECT_EQ(desk_.FrameFor(kJob, "").version, 0u);
  store_.revision = 39;
  EXPECT_FALSE(desk_.Propose(proposal, Soon()).ok()) << "the same is not above";
  store_.revision = 40;
  const auto proposed = desk_.Propose(proposal, Soon());
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  EXPECT_EQ(proposed->version(), 41);
}

}  // namespace
}  // namespace gradgate
