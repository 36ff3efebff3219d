// The etcd store against a server that answers wrongly, hangs, closes and floods.

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/etcd/etcd_store.h"
#include "daemon/store/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/await.h"
#include "tests/daemon/store/etcd/fake_etcd.h"

namespace gradgate {
namespace {

using testing::Await;
using testing::FakeEtcd;
using ::testing::HasSubstr;

constexpr char kPrefix[] = "/gradgate/v1/";

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

class MisbehaviourTest : public ::testing::Test {
 protected:
  EtcdOptions Options() {
    EtcdOptions options;
    options.name = "etcd://" + fake_.endpoint();
    options.endpoints = {fake_.endpoint()};
    options.call_timeout = absl::Milliseconds(500);
    options.heartbeat_interval = absl::Milliseconds(100);
    options.heartbeat_timeout = absl::Milliseconds(300);
    options.lease_ttl = absl::Seconds(1);
    options.max_backoff = absl::Milliseconds(300);
    return options;
  }
  Store& Open() {
    auto store = OpenEtcdStore(Options());
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    return *store_;
  }
  bool AwaitReachable() {
    return Await([&] { return store_->Health().reachable; });
  }
  bool AwaitTrouble(const std::string& text) {
    return Await([&] { return store_->Health().trouble.find(text) != std::string::npos; });
  }
  void TearDown() override {
    const absl::Time begin = absl::Now();
    fake_.Release();
    store_.reset();
    EXPECT_LT(absl::Now() - begin, absl::Seconds(3)) << "it ends whatever the server does";
  }

  FakeEtcd fake_;
  std::unique_ptr<Store> store_;
};

TEST_F(MisbehaviourTest, WellBehavedFakeIsReachable) {
  Open();
  EXPECT_TRUE(AwaitReachable()) << store_->Health().trouble;
  store_->Announce("nodes/n", "1");
  EXPECT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); })) << store_->AnnounceStatus();
  EXPECT_EQ(store_->Put("policies/a", "1", 0, Soon()).value_or(0), 2);
}

TEST_F(MisbehaviourTest, NonsenseRevisionIsTold) {
  fake_.range = [](const auto&, etcdserverpb::RangeResponse*) { return grpc::Status::OK; };
  Open();
  EXPECT_TRUE(AwaitTrouble("the answer makes no sense: revision below 1; is it an etcd?")) << store_->Health().trouble;
}

TEST_F(MisbehaviourTest, PagesThatRepeatThemselvesEnd) {
  fake_.range = [](const auto&, etcdserverpb::RangeResponse* response) {
    response->mutable_header()->set_revision(5);
    response->set_more(true);
    etcdserverpb::KeyValue& pair = *response->add_kvs();
    pair.set_key(absl::StrCat(kPrefix, "policies/a"));
    pair.set_mod_revision(3);
    return grpc::Status::OK;
  };
  Open();
  EXPECT_TRUE(AwaitTrouble("keys out of order")) << store_->Health().trouble;
  EXPECT_EQ(store_->List("").size(), 0u) << "nothing of a reading that failed";
}

TEST_F(MisbehaviourTest, KeysOutsideTheRangeAreNonsense) {
  fake_.range = [](const auto&, etcdserverpb::RangeResponse* response) {
    response->mutable_header()->set_revision(5);
    response->add_kvs()->set_key("/other/key");
    return grpc::Status::OK;
  };
  Open();
  EXPECT_TRUE(AwaitTrouble("keys out of order")) << store_->Health().trouble;
}

TEST_F(MisbehaviourTest, EndlessPagesAreCutOff) {
  std::atomic<int64_t> next{0};
  fake_.range = [&](const etcdserverpb::RangeRequest& request, etcdserverpb::RangeResponse* response) {
    if (request.revision() == 0) next = 0;
    response->mutable_header()->set_revision(5);
    response->set_more(true);
    for (int i = 0; i < 20'000; ++i) {
      etcdserverpb::KeyValue& pair = *response->add_kvs();
      pair.set_key(absl::StrCat(kPrefix, "policies/", 1'000'000'000 + next++));
      pair.set_mod_revision(3);
    }
    return grpc::Status::OK;
  };
  Open();
  ASSERT_TRUE(AwaitReachable()) << store_->Health().trouble;
  EXPECT_EQ(store_->Health().key_count, static_cast<int64_t>(kMaxStoreKeys));
  EXPECT_THAT(store_->Health().warning, HasSubstr("are left out"));
  const auto full = store_->Put("policies/new", "1", 0, Soon());
  EXPECT_TRUE(absl::IsResourceExhausted(full.status())) << full.status();
}

TEST_F(MisbehaviourTest, ValueThatIsTooLongToBeReadIsPassedOver) {
  const auto add = [](etcdserverpb::RangeResponse* response, const char* name, size_t size) {
    etcdserverpb::KeyValue& pair = *response->add_kvs();
    pair.set_key(absl::StrCat(kPrefix, name));
    pair.set_value(std::string(size, 'x'));
    pair.set_mod_revision(3);
  };
  fake_.range = [&](const etcdserverpb::RangeRequest& request, etcdserverpb::RangeResponse* response) {
    response->mutable_header()->set_revision(5);
    const std::string giant = absl::StrCat(kPrefix, "policies/b");
    int left = static_cast<int>(request.limit());
    for (const char* name : {"policies/a", "policies/b", "policies/c"}) {
      if (absl::StrCat(kPrefix, name) < request.key()) continue;
      if (left-- == 0) {
        response->set_more(true);
        break;
      }
      add(response, name, absl::StrCat(kPrefix, name) == giant && !request.keys_only() ? 9 << 20 : 1);
    }
    return grpc::Status::OK;
  };
  Open();
  ASSERT_TRUE(AwaitReachable()) << store_->Health().trouble;
  ASSERT_EQ(store_->List("").size(), 2u);
  EXPECT_EQ(store_->List("")[1].key, "policies/c");
  EXPECT_EQ(store_->Health().dropped_count, 1u);
}

TEST_F(MisbehaviourTest, HangingRangeEndsByItsDeadline) {
  fake_.range = [&](const auto&, auto*) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return grpc::Status::OK;
  };
  Open();
  EXPECT_TRUE(AwaitTrouble("Deadline Exceeded")) << store_->Health().trouble;
}

TEST_F(MisbehaviourTest, WatchThatNeverBeginsIsNoticed) {
  fake_.watch = [&](grpc::ServerContext* context, auto*) { return fake_.Hang(context); };
  Open();
  EXPECT_TRUE(AwaitTrouble("nothing was heard for")) << store_->Health().trouble;
  EXPECT_FALSE(store_->Health().reachable);
}

TEST_F(MisbehaviourTest, WatchThatFallsSilentIsNoticed) {
  fake_.watch = [&](grpc::ServerContext* context, FakeEtcd::WatchWriter* stream) {
    etcdserverpb::WatchResponse created;
    created.set_created(true);
    stream->Write(created);
    return fake_.Hang(context);
  };
  Open();
  EXPECT_TRUE(AwaitTrouble("nothing was heard for")) << store_->Health().trouble;
}

TEST_F(MisbehaviourTest, WatchThatEndsAtOnceIsNotHammered) {
  fake_.watch = [&](grpc::ServerContext*, FakeEtcd::WatchWriter* stream) {
    etcdserverpb::WatchResponse created;
    created.set_created(true);
    stream->Write(created);
    return grpc::Status::OK;
  };
  Open();
  EXPECT_TRUE(AwaitTrouble("the watch ended")) << store_->Health().trouble;
  const int before = fake_.range_count();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_LT(fake_.range_count() - before, 12) << "it waits longer each time";
}

TEST_F(MisbehaviourTest, WatchThatIsAlwaysCompactedIsNotHammered) {
  fake_.watch = [&](grpc::ServerContext* context, FakeEtcd::WatchWriter* stream) {
    etcdserverpb::WatchResponse response;
    response.set_created(true);
    stream->Write(response);
    response.set_canceled(true);
    response.set_compact_revision(9);
    stream->Write(response);
    return fake_.Hang(context);
  };
  Open();
  ASSERT_TRUE(Await([&] { return fake_.range_count() > 1; })) << "it reads anew";
  const int before = fake_.range_count();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_LT(fake_.range_count() - before, 12);
}

TEST_F(MisbehaviourTest, RefusedWatchIsToldWithItsReason) {
  fake_.watch = [&](grpc::ServerContext* context, FakeEtcd::WatchWriter* stream) {
    etcdserverpb::WatchResponse response;
    response.set_created(true);
    response.set_canceled(true);
    response.set_cancel_reason("etcdserver: permission denied\x1b[31m");
    stream->Write(response);
    return fake_.Hang(context);
  };
  Open();
  EXPECT_TRUE(AwaitTrouble("the watch was refused: etcdserver: permission denied?[31m; grant the user"))
      << store_->Health().trouble;
}

TEST_F(MisbehaviourTest, FloodOfEventsStaysBounded) {
  fake_.watch = [&](grpc::ServerContext* context, FakeEtcd::WatchWriter* stream) {
    etcdserverpb::WatchResponse created;
    created.set_created(true);
    stream->Write(created);
    for (int64_t i = 2; i < 45'000 && !context->IsCancelled(); ++i) {
      if (!stream->Write(FakeEtcd::Put(absl::StrCat(kPrefix, "policies/", i), "x", i))) break;
    }
    stream->Write(FakeEtcd::Put(absl::StrCat(kPrefix, "policies/2"), "last", 200'000));
    return fake_.Hang(context);
  };
  Store& store = Open();
  store.OnChange([](const auto&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  EXPECT_TRUE(Await([&] { return !store.List("policies/2").empty() && store.Health().dropped_count > 10'000; },
                    std::chrono::seconds(60)));
  EXPECT_LE(store.Health().key_count, static_cast<int64_t>(kMaxStoreKeys));
}

TEST_F(MisbehaviourTest, EventsOfThePastAndOfOthersChangeNothing) {
  fake_.range = [](const auto&, etcdserverpb::RangeResponse* response) {
    response->mutable_header()->set_revision(50);
    etcdserverpb::KeyValue& pair = *response->add_kvs();
    pair.set_key(absl::StrCat(kPrefix, "policies/a"));
    pair.set_value("true");
    pair.set_mod_revision(40);
    return grpc::Status::OK;
  };
  fake_.watch = [&](grpc::ServerContext* context, FakeEtcd::WatchWriter* stream) {
    etcdserverpb::WatchResponse created;
    created.set_created(true);
    stream->Write(created);
    stream->Write(FakeEtcd::Put(absl::StrCat(kPrefix, "policies/a"), "past", 45));
    stream->Write(FakeEtcd::Put(absl::StrCat(kPrefix, "policies/a"), "negative", -1));
    stream->Write(FakeEtcd::Put("/other/policies/a", "foreign", 51));
    stream->Write(FakeEtcd::Put(absl::StrCat(kPrefix, "policies/b"), "end", 52));
    return fake_.Hang(context);
  };
  Open();
  ASSERT_TRUE(Await([&] { return store_->List("").size() == 2; }));
  EXPECT_EQ(store_->List("")[0].value, "true");
}

TEST_F(MisbehaviourTest, LostAnswerOfAConditionalWriteIsFoundOut) {
  std::atomic<int> calls{0};
  fake_.txn = [&](const etcdserverpb::TxnRequest& request, etcdserverpb::TxnResponse* response) {
    if (++calls == 1) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the connection broke after it was written");
    response->mutable_header()->set_revision(9);
    etcdserverpb::KeyValue& pair = *response->add_responses()->mutable_response_range()->add_kvs();
    pair.set_key(request.failure(0).request_range().key());
    pair.set_value("mine");
    pair.set_mod_revision(8);
    return grpc::Status::OK;
  };
  Open();
  const auto mine = store_->Put("policies/a", "mine", 5, Soon());
  EXPECT_EQ(mine.value_or(0), 8) << mine.status();
  calls = 0;
  const auto other = store_->Put("policies/a", "another", 5, Soon());
  EXPECT_TRUE(absl::IsAborted(other.status())) << other.status();
  const auto unbroken = store_->Put("policies/a", "mine", 5, Soon());
  EXPECT_TRUE(absl::IsAborted(unbroken.status())) << "no answer was lost: somebody else wrote the same";
}

TEST_F(MisbehaviourTest, WriteThatSucceedsWithoutRevisionIsAnError) {
  fake_.txn = [&](const auto&, etcdserverpb::TxnResponse* response) {
    response->set_succeeded(true);
    return grpc::Status::OK;
  };
  Open();
  EXPECT_THAT(std::string(store_->Put("policies/a", "1", 0, Soon()).status().message()), HasSubstr("makes no sense"));
}

TEST_F(MisbehaviourTest, LeaseThatIsNeverProlongedEndsTheSession) {
  fake_.keep_alive = [&](grpc::ServerContext* context) { return fake_.Hang(context); };
  Open();
  store_->Announce("nodes/n", "1");
  EXPECT_TRUE(AwaitTrouble("the lease was not prolonged")) << store_->Health().trouble;
}

TEST_F(MisbehaviourTest, LeaseThatIsGoneIsReplacedAndTheKeyWrittenAnew) {
  std::atomic<int> grants{0};
  fake_.grant = [&](etcdserverpb::LeaseGrantResponse* response) { response->set_id(++grants); };
  fake_.prolonged_ttl = 0;
  Open();
  store_->Announce("nodes/n", "1");
  ASSERT_TRUE(Await([&] { return grants >= 2; }));
  fake_.prolonged_ttl = 10;
  EXPECT_TRUE(Await([&] { return fake_.txn_count() >= 2 && store_->AnnounceStatus().ok(); })) << store_->AnnounceStatus();
}

TEST_F(MisbehaviourTest, LeaseWithoutANumberIsTold) {
  fake_.grant = [](etcdserverpb::LeaseGrantResponse* response) {
    response->set_id(0);
    response->set_error("no\nlease");
  };
  Open();
  store_->Announce("nodes/n", "1");
  EXPECT_TRUE(AwaitTrouble("etcd made no lease: no?lease")) << store_->Health().trouble;
}

TEST_F(MisbehaviourTest, KeyThatAlwaysChangesIsNotFoughtFor) {
  fake_.txn = [&](const auto&, etcdserverpb::TxnResponse* response) {
    response->mutable_header()->set_revision(9);
    return grpc::Status::OK;
  };
  Open();
  store_->Announce("nodes/n", "1");
  ASSERT_TRUE(Await([&] { return fake_.txn_count() >= 3; }));
  const int before = fake_.txn_count();
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_LE(fake_.txn_count() - before, 12) << store_->Health().trouble;
}

}  // namespace
}  // namespace gradgate
