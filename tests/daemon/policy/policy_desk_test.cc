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
    EXPECT_EQ(desk.Latest(kJob).version(), version);
    EXPECT_EQ(desk.FrameFor(kJob).version, static_cast<uint64_t>(version));
  }
  EXPECT_EQ(desk.Propose(Propose(kJob, 1), Soon()).status().code(), absl::StatusCode::kAborted);
}

TEST_F(DeskTest, WithoutAPolicyThereIsNothingToOffer) {
  desk_.Refresh();
  EXPECT_EQ(desk_.FrameFor(kJob).version, 0u);
  EXPECT_EQ(desk_.Latest(kJob).version(), 0);
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
  EXPECT_EQ(proposed->content_hash(), FormatHash(desk_.FrameFor(kJob)));
  EXPECT_EQ(desk_.Latest(kJob).SerializeAsString(), proposed->SerializeAsString());
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
  EXPECT_EQ(desk_.Latest(kJob).version(), 5);
  EXPECT_EQ(desk_.Latest(kJob).actor(), "bob@other");
  const auto proposed = desk_.Propose(Propose(kJob, 5), Soon());
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  EXPECT_EQ(proposed->version(), 6);
  EXPECT_EQ(desk_.Latest(kJob).version(), 6) << "told, although the copy does not have it yet";
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(kJob).version(), 6);
  ASSERT_TRUE(desk_.Propose(Propose(kJob, 6), Soon()).ok()) << "and can be changed at once";
  store_.CatchUp();
  Write(kJob, 9);
  store_.CatchUp();
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(kJob).version(), 9);
}

TEST_F(DeskTest, TheStoresErrorsAreTold) {
  for (const auto code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kPermissionDenied, absl::StatusCode::kResourceExhausted}) {
    store_.Fail(absl::Status(code, "etcd says so"));
    const auto refused = desk_.Propose(Propose(kJob, 0), Soon());
    EXPECT_EQ(refused.status().code(), code);
    EXPECT_EQ(refused.status().message(), "etcd says so");
  }
  EXPECT_EQ(desk_.Latest(kJob).version(), 0);
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
    EXPECT_EQ(desk_.FrameFor(kJob).version, 0u) << c.what;
    EXPECT_EQ(desk_.Latest(kJob).version(), 0) << c.what;
    EXPECT_NE(desk_.FrameFor(other).version, 0u) << "beside " << c.what;
  }
  Write(kJob, ++revision, nullptr, "policies/1001/" + KeyOf(kJob).substr(sizeof("policies/1000/") - 1));
  EXPECT_EQ(desk_.Latest(kJob).version(), 0) << "under another user's key";
  Write(kJob, ++revision, nullptr, KeyOf(kJob) + "0");
  EXPECT_EQ(desk_.Latest(kJob).version(), 0) << "under another attempt's key";
  store_.Empty();
  store_.Write(KeyOf(kJob), "\xff\xff\xff no message", ++revision);
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(kJob).version(), 0);
  Write(kJob, 0);
  EXPECT_EQ(desk_.Latest(kJob).version(), 0) << "no revision";
  Write(kJob, -3);
  EXPECT_EQ(desk_.FrameFor(kJob).version, 0u) << "a revision that no rank would take";
}

TEST_F(DeskTest, AnyPrintableJobNameHasAKey) {
  for (const char* name : {"a/b", "..", "größe", "a b", ""}) {
    JobKey job = kJob;
    job.job_name = name;
    ASSERT_TRUE(desk_.Propose(Propose(job, 0), Soon()).ok()) << name;
    EXPECT_NE(desk_.Latest(job).version(), 0) << name;
  }
}

TEST_F(DeskTest, APolicyIsOfOneRunAndAttempt) {
  const auto attempt = [](uint32_t number, char run) { return JobKey{1000, "digits", std::string(32, run), number}; };
  Write(attempt(0, 'a'), 5);
  EXPECT_EQ(desk_.FrameFor(attempt(0, 'a')).version, 5u);
  EXPECT_EQ(desk_.FrameFor(attempt(1, 'b')).version, 0u) << "another run of the name, or a restart: nothing tells which";
  EXPECT_EQ(desk_.FrameFor(attempt(1, 'a')).version, 0u);
  EXPECT_EQ(desk_.FrameFor({1001, "digits", std::string(32, 'a'), 0}).version, 0u) << "of another user";
}

TEST_F(DeskTest, AValueThatIsNotSoundIsReplaced) {
  store_.Write(KeyOf(kJob), "garbage", 7);
  desk_.Refresh();
  EXPECT_EQ(desk_.Latest(kJob).version(), 0);
  const auto proposed = desk_.Propose(Propose(kJob, 0), Soon());
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  EXPECT_EQ(desk_.Latest(kJob).version(), 8);
}

TEST_F(DeskTest, AStoreThatWasEmptiedProposesNothingBelowWhatRanksHold) {
  Proposal proposal = Propose(kJob, 0);
  proposal.above = 40;
  const auto refused = desk_.Propose(proposal, Soon());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), AllOf(HasSubstr("fake"), HasSubstr("gave it version 1"),
                                                             HasSubstr("hold version 40"), HasSubstr("restart the job")));
  EXPECT_TRUE(store_.List("policies/").empty()) << "taken back";
  EXPECT_EQ(desk_.FrameFor(kJob).version, 0u);
  store_.revision = 39;
  EXPECT_FALSE(desk_.Propose(proposal, Soon()).ok()) << "the same is not above";
  store_.revision = 40;
  const auto proposed = desk_.Propose(proposal, Soon());
  ASSERT_TRUE(proposed.ok()) << proposed.status();
  EXPECT_EQ(proposed->version(), 41);
}

}  // namespace
}  // namespace gradgate
