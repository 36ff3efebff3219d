// The etcd store over three members of one etcd, which die and come back.

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/etcd/etcd_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/await.h"
#include "tests/daemon/store/etcd_server.h"

namespace gradgate {
namespace {

using testing::Await;
using testing::EtcdServer;
using ::testing::HasSubstr;

constexpr size_t kMembers = 3;

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

// One daemon's store, which watches that no key under `nodes/` or `policies/` is ever lost.
struct Daemon {
  std::string name;
  std::unique_ptr<Store> store;
  std::atomic<bool> key_lost = false;

  Daemon(std::string name_given, const EtcdOptions& options) : name(std::move(name_given)) {
    auto opened = OpenEtcdStore(options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    store = *std::move(opened);
    store->OnChange([this](const std::vector<std::string>& keys) {
      key_lost = key_lost || std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return store->List(key).empty(); });
    });
    store->Announce(kNodesPrefix + name, name);
  }

  int64_t RevisionOf(const std::string& key) const {
    const auto values = store->List(key);
    return values.empty() ? 0 : values[0].revision;
  }
  bool AwaitRevision(const std::string& key, int64_t revision) const {
    return Await([&] { return RevisionOf(key) == revision; });
  }
  bool AwaitWell() const {
    return Await([&] { return store->Health().reachable && store->AnnounceStatus().ok(); });
  }
};

class EtcdClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GG_REQUIRE_ETCD();
    members_ = EtcdServer::Cluster(kMembers);
    // Each begins with another member.
    a_ = std::make_unique<Daemon>("a", Options(0));
    b_ = std::make_unique<Daemon>("b", Options(1));
    for (const Daemon* daemon : {a_.get(), b_.get()}) ASSERT_TRUE(daemon->AwaitWell()) << daemon->store->Health().trouble;
    ASSERT_TRUE(Await([&] { return a_->RevisionOf("nodes/b") > 0 && b_->RevisionOf("nodes/a") > 0; }));
  }

  EtcdOptions Options(size_t first) const {
    EtcdOptions options = members_[first]->Options();
    options.name = "etcd://all";
    options.endpoints.clear();
    for (size_t i = 0; i < kMembers; ++i) options.endpoints.push_back(members_[(first + i) % kMembers]->endpoint());
    options.lease_ttl = absl::Seconds(5);
    return options;
  }

  // Written by one, seen by both.
  void Propose(Daemon& from, const std::string& key) {
    const auto revision = from.store->Put(key, key, 0, Soon());
    ASSERT_TRUE(revision.ok()) << revision.status();
    for (const Daemon* daemon : {a_.get(), b_.get()}) EXPECT_TRUE(daemon->AwaitRevision(key, *revision)) << daemon->name;
    written_.insert(key);
  }
  void ExpectNothingLost() {
    for (const Daemon* daemon : {a_.get(), b_.get()}) {
      for (const std::string& key : written_) EXPECT_GT(daemon->RevisionOf(key), 0) << daemon->name << " has lost " << key;
    }
  }

  std::vector<std::unique_ptr<EtcdServer>> members_;
  std::unique_ptr<Daemon> a_, b_;
  std::set<std::string> written_;
};

TEST_F(EtcdClusterTest, AnyOneMemberMayDie) {
  const int64_t revision_a = b_->RevisionOf("nodes/a"), revision_b = a_->RevisionOf("nodes/b");
  const absl::Time begin = absl::Now();
  for (size_t i = 0; i < kMembers; ++i) {  // so the leader too, and each one's own
    members_[i]->Kill();
    Propose(*a_, absl::StrCat("policies/a", i));
    Propose(*b_, absl::StrCat("policies/b", i));
    for (const Daemon* daemon : {a_.get(), b_.get()}) EXPECT_TRUE(daemon->AwaitWell()) << daemon->store->Health().trouble;
    ASSERT_TRUE(members_[i]->Start()) << members_[i]->Log();
  }
  // Longer than a lease lasts unless it is prolonged.
  EXPECT_TRUE(Await([&] { return absl::Now() - begin > absl::Seconds(8); }));
  ExpectNothingLost();
  EXPECT_EQ(b_->RevisionOf("nodes/a"), revision_a) << "kept, not made anew";
  EXPECT_EQ(a_->RevisionOf("nodes/b"), revision_b) << "kept, not made anew";
  EXPECT_FALSE(a_->key_lost || b_->key_lost);
  EXPECT_EQ(a_->store->Health().warning, "");
}

TEST_F(EtcdClusterTest, AMemberThatTakesAWriteAndDoesNotAnswerLeavesTimeForAnother) {
  EtcdOptions options = Options(0);
  options.call_timeout = absl::Seconds(6);
  Daemon patient("c", options);
  ASSERT_TRUE(patient.AwaitWell());
  members_[0]->Freeze();
  const auto revision = patient.store->Put("policies/frozen", "", 0, absl::Now() + absl::Seconds(6));
  members_[0]->Thaw();
  EXPECT_TRUE(revision.ok()) << revision.status();
}

TEST_F(EtcdClusterTest, WithoutAMajorityItIsUnavailableUntilThatIsBack) {
  Propose(*a_, "policies/before");
  members_[0]->Kill();
  members_[1]->Kill();
  for (const Daemon* daemon : {a_.get(), b_.get()}) {
    EXPECT_TRUE(Await([&] { return !daemon->store->Health().reachable; })) << daemon->name;
    EXPECT_THAT(daemon->store->Health().trouble, HasSubstr("(since 20"));
    EXPECT_TRUE(absl::IsUnavailable(daemon->store->AnnounceStatus())) << daemon->store->AnnounceStatus();
    const absl::Time begin = absl::Now();
    const auto refused = daemon->store->Put("policies/refused", "", 0, begin + absl::Milliseconds(500));
    EXPECT_TRUE(absl::IsUnavailable(refused.status()) || absl::IsDeadlineExceeded(refused.status())) << refused.status();
    EXPECT_LT(absl::Now() - begin, absl::Seconds(4));
  }
  ExpectNothingLost();
  members_[0]->Launch();
  ASSERT_TRUE(members_[0]->AwaitServing()) << members_[0]->Log();
  for (const Daemon* daemon : {a_.get(), b_.get()}) EXPECT_TRUE(daemon->AwaitWell()) << daemon->store->Health().trouble;
  Propose(*b_, "policies/after");
  ExpectNothingLost();
  EXPECT_TRUE(Await([&] { return a_->RevisionOf("nodes/b") > 0 && b_->RevisionOf("nodes/a") > 0; }));
  EXPECT_EQ(a_->store->Health().trouble, "");
}

}  // namespace
}  // namespace gradgate
