// The etcd store when a real etcd dies, stops, forgets, or holds what others wrote.

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/etcd/etcd_store.h"
#include "daemon/store/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/await.h"
#include "tests/daemon/store/etcd_server.h"
#include "tests/daemon/store/relay.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using testing::Await;
using testing::EtcdServer;
using ::testing::HasSubstr;
using testing::Relay;

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

std::unique_ptr<Store> Open(const EtcdOptions& options) {
  auto store = OpenEtcdStore(options);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

bool AwaitReachable(const Store& store, bool reachable = true) {
  return Await([&] { return store.Health().reachable == reachable; });
}

std::string ValueOf(const Store& store, const std::string& key) {
  const auto values = store.List(key);
  return values.empty() ? "(none)" : values[0].value;
}

bool AwaitValue(const Store& store, const std::string& key, const std::string& value) {
  return Await([&] { return ValueOf(store, key) == value; });
}

class EtcdWeatherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GG_REQUIRE_ETCD();
    server_ = std::make_unique<EtcdServer>();
    store_ = Open(server_->Options());
    ASSERT_TRUE(AwaitReachable(*store_)) << store_->Health().trouble;
  }

  int64_t Put(Store& store, const std::string& key, const std::string& value) {
    const auto revision = store.Put(key, value, std::nullopt, Soon());
    EXPECT_TRUE(revision.ok()) << revision.status();
    return revision.value_or(0);
  }
  std::string Key(const std::string& key) { return "/gradgate/v1/" + key; }

  std::unique_ptr<EtcdServer> server_;
  std::unique_ptr<Store> store_;
};

TEST_F(EtcdWeatherTest, DaemonsSeeEachOthersWrites) {
  const auto other = Open(server_->Options());
  const int64_t revision = Put(*store_, "policies/a", "1");
  EXPECT_TRUE(AwaitValue(*other, "policies/a", "1"));
  EXPECT_EQ(other->List("policies/a")[0].revision, revision);
  const auto late = other->Put("policies/a", "2", revision - 1, Soon());
  EXPECT_TRUE(absl::IsAborted(late.status())) << late.status();
  EXPECT_TRUE(other->Put("policies/a", "2", revision, Soon()).ok());
  EXPECT_TRUE(AwaitValue(*store_, "policies/a", "2"));
  EXPECT_TRUE(other->Delete("policies/a", Soon()).ok());
  EXPECT_TRUE(AwaitValue(*store_, "policies/a", "(none)"));
}

TEST_F(EtcdWeatherTest, KilledAndRestartedEtcdIsFoundAgain) {
  Put(*store_, "policies/a", "1");
  store_->Announce("nodes/n", "n");
  ASSERT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); }));
  server_->Kill();
  ASSERT_TRUE(AwaitReachable(*store_, false));
  const StoreHealth health = store_->Health();
  EXPECT_THAT(health.trouble, AllOf(HasSubstr(server_->endpoint()), HasSubstr("(since 20"), HasSubstr("still used")));
  EXPECT_TRUE(absl::IsUnavailable(store_->AnnounceStatus())) << store_->AnnounceStatus();
  EXPECT_EQ(ValueOf(*store_, "policies/a"), "1") << "what was known stays";
  const auto refused = store_->Put("policies/a", "2", std::nullopt, absl::Now() + absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_GT(store_->Health().error_count, 0u);
  ASSERT_TRUE(server_->Start()) << server_->Log();
  EXPECT_TRUE(AwaitReachable(*store_)) << store_->Health().trouble;
  EXPECT_EQ(store_->Health().trouble, "");
  EXPECT_EQ(store_->Health().warning, "");
  EXPECT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); })) << store_->AnnounceStatus();
  EXPECT_GT(Put(*store_, "policies/a", "3"), 1);
}

TEST_F(EtcdWeatherTest, PutWaitsForAnEtcdThatComesBackInTime) {
  server_->Kill();
  ASSERT_TRUE(AwaitReachable(*store_, false));
  absl::StatusOr<int64_t> revision = absl::UnknownError("");
  std::thread writer([&] { revision = store_->Put("policies/a", "1", 0, Soon()); });
  ASSERT_TRUE(server_->Start()) << server_->Log();
  writer.join();
  EXPECT_TRUE(revision.ok()) << revision.status();
}

TEST_F(EtcdWeatherTest, FrozenEtcdIsNoticedWithinSecondsAndBoundsAPut) {
  const absl::Time begin = absl::Now();
  server_->Freeze();
  EXPECT_TRUE(AwaitReachable(*store_, false));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  const absl::Time put = absl::Now();
  const auto refused = store_->Put("policies/a", "1", std::nullopt, put + absl::Milliseconds(500));
  EXPECT_FALSE(refused.ok());
  EXPECT_LT(absl::Now() - put, absl::Seconds(2));
  server_->Thaw();
  EXPECT_TRUE(AwaitReachable(*store_)) << store_->Health().trouble;
}

TEST_F(EtcdWeatherTest, HalfDeadConnectionIsNoticed) {
  Relay relay(server_->endpoint());
  EtcdOptions options = server_->Options();
  options.endpoints = {relay.endpoint()};
  const auto store = Open(options);
  ASSERT_TRUE(AwaitReachable(*store));
  relay.Set(Relay::Mode::kStall);
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(AwaitReachable(*store, false));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  EXPECT_THAT(store->Health().trouble, HasSubstr("nothing was heard for"));
  Put(*store_, "policies/a", "1");
  relay.Set(Relay::Mode::kForward);
  EXPECT_TRUE(AwaitValue(*store, "policies/a", "1"));
}

TEST_F(EtcdWeatherTest, NothingIsMissedAcrossACompaction) {
  Relay relay(server_->endpoint());
  EtcdOptions options = server_->Options();
  options.endpoints = {relay.endpoint()};
  const auto store = Open(options);
  Put(*store_, "policies/changed", "1");
  Put(*store_, "policies/removed", "1");
  Put(*store_, "policies/kept", "1");
  ASSERT_TRUE(AwaitValue(*store, "policies/kept", "1"));
  std::mutex mutex;
  std::set<std::string> heard;
  store->OnChange([&](const std::vector<std::string>& keys) {
    std::lock_guard<std::mutex> lock(mutex);
    heard.insert(keys.begin(), keys.end());
  });
  relay.Set(Relay::Mode::kCut);
  ASSERT_TRUE(AwaitReachable(*store, false));
  Put(*store_, "policies/new", "1");
  EXPECT_TRUE(store_->Delete("policies/removed", Soon()).ok());
  Put(*store_, "policies/changed", "2");
  const int64_t last = Put(*store_, "policies/changed", "3");
  server_->Ctl({"compact", absl::StrCat(last)});
  EXPECT_EQ(ValueOf(*store, "policies/changed"), "1") << "it is away";
  relay.Set(Relay::Mode::kForward);
  EXPECT_TRUE(AwaitValue(*store, "policies/changed", "3"));
  EXPECT_EQ(ValueOf(*store, "policies/new"), "1");
  EXPECT_EQ(ValueOf(*store, "policies/removed"), "(none)");
  EXPECT_EQ(store->Health().warning, "");
  EXPECT_TRUE(Await([&] {
    std::lock_guard<std::mutex> lock(mutex);
    return heard == std::set<std::string>{"policies/new", "policies/removed", "policies/changed"};
  })) << ::testing::PrintToString(heard);
}

TEST_F(EtcdWeatherTest, SecondEndpointTakesOver) {
  Relay first(server_->endpoint()), second(server_->endpoint());
  EtcdOptions options = server_->Options();
  options.endpoints = {first.endpoint(), second.endpoint()};
  const auto store = Open(options);
  ASSERT_TRUE(AwaitReachable(*store));
  for (Relay* cut : {&first, &second, &first}) {
    first.Set(Relay::Mode::kForward);
    second.Set(Relay::Mode::kForward);
    cut->Set(cut == &first ? Relay::Mode::kCut : Relay::Mode::kStall);
    const std::string value = absl::FormatTime(absl::Now());
    Put(*store, "policies/a", value);
    EXPECT_TRUE(AwaitValue(*store_, "policies/a", value));
    EXPECT_TRUE(AwaitReachable(*store)) << store->Health().trouble;
    Put(*store_, "policies/b", value);
    EXPECT_TRUE(AwaitValue(*store, "policies/b", value));
  }
}

TEST_F(EtcdWeatherTest, AnnouncementGoesWithItsDaemon) {
  Relay relay(server_->endpoint());
  EtcdOptions options = server_->Options();
  options.endpoints = {relay.endpoint()};
  auto store = Open(options);
  store->Announce("nodes/n", "1");
  ASSERT_TRUE(AwaitValue(*store_, "nodes/n", "1"));
  relay.Set(Relay::Mode::kStall);  // as if its node had lost power
  EXPECT_TRUE(AwaitValue(*store_, "nodes/n", "(none)"));
  relay.Set(Relay::Mode::kForward);  // it was only cut off
  EXPECT_TRUE(AwaitValue(*store_, "nodes/n", "1"));
  store.reset();
  const absl::Time ended = absl::Now();
  EXPECT_TRUE(AwaitValue(*store_, "nodes/n", "(none)"));
  EXPECT_LT(absl::Now() - ended, absl::Seconds(2)) << "it is revoked, not left to expire";
}

TEST_F(EtcdWeatherTest, AnnouncementOutlivesItsLeasesTime) {
  store_->Announce("nodes/n", "1");
  ASSERT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); }));
  const absl::Time until = absl::Now() + 2 * server_->Options().lease_ttl;
  EXPECT_FALSE(Await([&] { return ValueOf(*store_, "nodes/n") != "1"; }, absl::ToChronoMilliseconds(until - absl::Now())));
  EXPECT_EQ(server_->Ctl({"get", Key("nodes/n"), "--print-value-only"}), "1\n");
}

TEST_F(EtcdWeatherTest, RemovedAnnouncementComesBack) {
  store_->Announce("nodes/n", "1");
  ASSERT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); }));
  const auto values = store_->List("nodes/n");
  server_->Ctl({"del", Key("nodes/n")});
  EXPECT_TRUE(Await([&] {
    const auto now = store_->List("nodes/n");
    return now.size() == 1 && now[0].revision > values[0].revision;
  }));
}

TEST_F(EtcdWeatherTest, RevokedLeaseIsReplaced) {
  store_->Announce("nodes/n", "1");
  ASSERT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); }));
  const std::string leases = server_->Ctl({"lease", "list"});
  const std::string lease = leases.substr(leases.find('\n') + 1, 16);
  server_->Ctl({"lease", "revoke", lease});
  EXPECT_TRUE(AwaitValue(*store_, "nodes/n", "1"));
  EXPECT_TRUE(Await([&] { return server_->Ctl({"get", Key("nodes/n")}).find("nodes/n") != std::string::npos; }));
}

TEST_F(EtcdWeatherTest, NameOfALiveDaemonIsLeftAlone) {
  store_->Announce("nodes/n", "first");
  ASSERT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); }));
  const auto second = Open(server_->Options());
  second->Announce("nodes/n", "second");
  ASSERT_TRUE(Await([&] { return absl::IsAlreadyExists(second->AnnounceStatus()); })) << second->AnnounceStatus();
  EXPECT_THAT(std::string(second->AnnounceStatus().message()), HasSubstr("another daemon keeps nodes/n"));
  EXPECT_THAT(second->Health().warning, HasSubstr("another daemon keeps nodes/n"));
  EXPECT_EQ(ValueOf(*second, "nodes/n"), "first");
  store_.reset();
  EXPECT_TRUE(AwaitValue(*second, "nodes/n", "second")) << "the name is free now";
  EXPECT_TRUE(Await([&] { return second->AnnounceStatus().ok(); })) << second->AnnounceStatus();
}

TEST_F(EtcdWeatherTest, SuccessorInTheSamePlaceReplacesAtOnce) {
  Relay relay(server_->endpoint());
  EtcdOptions options = server_->Options();
  options.endpoints = {relay.endpoint()};
  options.lease_ttl = absl::Seconds(60);
  const auto killed = Open(options);
  killed->Announce("nodes/n", "place 1");
  ASSERT_TRUE(AwaitValue(*store_, "nodes/n", "place 1"));
  relay.Set(Relay::Mode::kStall);
  options.endpoints = {server_->endpoint()};
  options.may_replace = [](absl::string_view key, absl::string_view value) { return key == "nodes/n" && value == "place 1"; };
  const auto successor = Open(options);
  successor->Announce("nodes/n", "place 1 again");
  EXPECT_TRUE(AwaitValue(*store_, "nodes/n", "place 1 again"));
}

TEST_F(EtcdWeatherTest, WipedEtcdIsToldAndTakenAsItIs) {
  for (int i = 0; i < 20; ++i) Put(*store_, "policies/a", absl::StrCat(i));
  store_->Announce("nodes/n", "n");
  ASSERT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); }));
  server_->Kill();
  server_->Wipe();
  ASSERT_TRUE(server_->Start()) << server_->Log();
  EXPECT_TRUE(AwaitValue(*store_, "policies/a", "(none)"));
  EXPECT_TRUE(AwaitReachable(*store_));
  EXPECT_THAT(store_->Health().warning, HasSubstr("its revision went back from 2"));
  EXPECT_TRUE(AwaitValue(*store_, "nodes/n", "n")) << "announced anew";
  EXPECT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); }));
  for (int i = 0; i < 25; ++i) Put(*store_, "policies/b", absl::StrCat(i));
  EXPECT_TRUE(Await([&] { return store_->Health().warning.empty(); })) << "it has come beyond the old revision";
}

TEST_F(EtcdWeatherTest, ThousandKeysAreReadInPages) {
  for (int i = 0; i < 1000; ++i) Put(*store_, absl::StrCat("policies/", i), std::string(100, 'x'));
  const auto other = Open(server_->Options());
  EXPECT_TRUE(Await([&] { return other->Health().key_count == 1000; }));
  EXPECT_EQ(other->List("policies/").size(), 1000u);
}

TEST_F(EtcdWeatherTest, LargeValuesAreReadInSmallerPages) {
  for (int i = 0; i < 300; ++i) Put(*store_, absl::StrCat("policies/", i), std::string(kMaxStoreValueBytes, 'x'));
  const auto other = Open(server_->Options());
  EXPECT_TRUE(Await([&] { return other->Health().key_count == 300; })) << other->Health().trouble;
}

TEST_F(EtcdWeatherTest, ForeignAndHostileValuesAreLeftOut) {
  Put(*store_, "policies/a", "1");
  EtcdOptions raw_options = server_->Options();
  raw_options.prefix = "/";  // sees and writes everything below
  const auto raw = Open(raw_options);
  Put(*raw, "other/key", "not ours");
  Put(*raw, "gradgate/v10/key", "not ours");
  server_->Ctl({"put", Key("policies/bad\x1b[31m"), "x"});
  server_->Ctl({"put", Key(std::string(kMaxStoreKeyBytes + 1, 'k')), "x"});
  server_->Ctl({"put", Key("policies/long"), "x"});
  ASSERT_TRUE(AwaitValue(*store_, "policies/long", "x"));
  server_->Ctl({"put", Key("policies/long"), std::string(100'000, 'x')});
  Put(*raw, "gradgate/v1/policies/z", "1");
  EXPECT_TRUE(AwaitValue(*store_, "policies/z", "1"));
  EXPECT_EQ(store_->List("").size(), 2u) << "policies/a and policies/z";
  EXPECT_EQ(store_->Health().dropped_count, 3u);
  EXPECT_THAT(store_->Health().warning, HasSubstr("3 values under the prefix are left out"));
  const auto other = Open(server_->Options());
  EXPECT_TRUE(AwaitValue(*other, "policies/z", "1"));
  EXPECT_EQ(other->List("").size(), 2u);
  EXPECT_EQ(other->Health().dropped_count, 3u);
}

TEST_F(EtcdWeatherTest, EndsAtOnceWhateverEtcdDoes) {
  for (const bool frozen : {false, true}) {
    store_ = Open(server_->Options());
    ASSERT_TRUE(AwaitReachable(*store_));
    store_->Announce("nodes/n", "n");
    if (frozen) server_->Freeze();
    const absl::Time begin = absl::Now();
    store_.reset();
    EXPECT_LT(absl::Now() - begin, absl::Seconds(2));
  }
  server_->Kill();
  const absl::Time begin = absl::Now();
  Open(server_->Options()).reset();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2));
}

}  // namespace
}  // namespace gradgate
