// What every store does: memory, file and etcd.

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/etcd/etcd_store.h"
#include "daemon/store/file_store.h"
#include "daemon/store/limits.h"
#include "daemon/store/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/store/await.h"
#include "tests/daemon/store/etcd_server.h"
#include "tests/daemon/store/temp_dir.h"

namespace gradgate {
namespace {

using testing::Await;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

// Opens stores of one kind; what was put into one is in the next, unless it is memory.
class Kind {
 public:
  virtual ~Kind() = default;
  virtual std::unique_ptr<Store> Open() = 0;
  virtual bool lasts() const { return true; }
  virtual bool shared() const { return false; }
};

class MemoryKind final : public Kind {
 public:
  std::unique_ptr<Store> Open() override { return std::make_unique<MemoryStore>(); }
  bool lasts() const override { return false; }
};

class FileKind final : public Kind {
 public:
  std::unique_ptr<Store> Open() override {
    auto store = OpenFileStore(directory_ / "store", [](absl::string_view line) { ADD_FAILURE() << line; });
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

 private:
  testing::TempDir directory_;
};

class EtcdKind final : public Kind {
 public:
  std::unique_ptr<Store> Open() override {
    auto store = OpenEtcdStore(server_.Options());
    EXPECT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE(Await([&] { return (*store)->Health().reachable; })) << (*store)->Health().trouble;
    return *std::move(store);
  }
  bool shared() const override { return true; }

 private:
  testing::EtcdServer server_;
};

std::unique_ptr<Kind> MakeKind(const std::string& name) {
  if (name == "memory") return std::make_unique<MemoryKind>();
  if (name == "file") return std::make_unique<FileKind>();
  return std::make_unique<EtcdKind>();
}

class StoreTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "etcd") GG_REQUIRE_ETCD();
    kind_ = MakeKind(GetParam());
    store_ = kind_->Open();
  }

  int64_t Put(const std::string& key, const std::string& value, std::optional<int64_t> expected = std::nullopt) {
    const auto revision = store_->Put(key, value, expected, Soon());
    EXPECT_TRUE(revision.ok()) << revision.status();
    return revision.value_or(0);
  }
  std::vector<std::string> Keys(const std::string& prefix) {
    std::vector<std::string> keys;
    for (const StoredValue& value : store_->List(prefix)) keys.push_back(value.key);
    return keys;
  }

  std::unique_ptr<Kind> kind_;
  std::unique_ptr<Store> store_;
};

TEST_P(StoreTest, BeginsEmptyAndWell) {
  EXPECT_THAT(store_->List(""), IsEmpty());
  const StoreHealth health = store_->Health();
  EXPECT_TRUE(health.reachable);
  EXPECT_EQ(health.shared, kind_->shared());
  EXPECT_EQ(health.trouble, "");
  EXPECT_EQ(health.warning, "");
  EXPECT_EQ(health.key_count, 0);
  EXPECT_EQ(health.error_count, 0u);
}

TEST_P(StoreTest, OwnWritesAreSeenAtOnce) {
  const int64_t revision = Put("policies/a", std::string("\0\xff", 2));
  EXPECT_GE(revision, 1);
  const std::vector<StoredValue> values = store_->List("policies/");
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values[0].key, "policies/a");
  EXPECT_EQ(values[0].value, std::string("\0\xff", 2));
  EXPECT_EQ(values[0].revision, revision);
}

TEST_P(StoreTest, RevisionsGrowOverAllKeys) {
  int64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const int64_t revision = Put(absl::StrCat("policies/", i % 3), absl::StrCat(i));
    EXPECT_GT(revision, last);
    last = revision;
  }
}

TEST_P(StoreTest, ListTakesAPrefixInOrder) {
  for (const char* key : {"policies/b", "nodes/a", "policies/a", "policies", "policiesx/c"}) Put(key, "x");
  EXPECT_THAT(Keys("policies/"), ElementsAre("policies/a", "policies/b"));
  EXPECT_THAT(Keys("policies"), ElementsAre("policies", "policies/a", "policies/b", "policiesx/c"));
  EXPECT_EQ(Keys("").size(), 5u);
  EXPECT_THAT(Keys("z"), IsEmpty());
}

TEST_P(StoreTest, ExpectedRevisionGuardsAKey) {
  const int64_t first = Put("policies/a", "1", 0);
  const auto again = store_->Put("policies/a", "2", 0, Soon());
  EXPECT_TRUE(absl::IsAborted(again.status())) << again.status();
  EXPECT_THAT(again.status().message(), HasSubstr(absl::StrCat("policies/a has revision ", first, ", not 0")));
  const int64_t second = Put("policies/a", "2", first);
  const auto late = store_->Put("policies/a", "3", first, Soon());
  EXPECT_TRUE(absl::IsAborted(late.status())) << late.status();
  EXPECT_EQ(store_->List("policies/a")[0].value, "2");
  EXPECT_EQ(store_->List("policies/a")[0].revision, second);
  const auto missing = store_->Put("policies/b", "1", second, Soon());
  EXPECT_TRUE(absl::IsAborted(missing.status())) << missing.status();
  EXPECT_THAT(missing.status().message(), HasSubstr("policies/b has revision 0"));
}

TEST_P(StoreTest, DeletedKeyIsGoneAndMayComeAgain) {
  const int64_t first = Put("policies/a", "1");
  EXPECT_TRUE(store_->Delete("policies/a", Soon()).ok());
  EXPECT_THAT(store_->List(""), IsEmpty());
  EXPECT_TRUE(store_->Delete("policies/a", Soon()).ok()) << "none is there";
  EXPECT_GT(Put("policies/a", "2", 0), first + 1) << "the removal has a revision too";
}

TEST_P(StoreTest, LimitsAreToldByName) {
  const auto long_value = store_->Put("policies/a", std::string(kMaxStoreValueBytes + 1, 'x'), std::nullopt, Soon());
  EXPECT_TRUE(absl::IsInvalidArgument(long_value.status())) << long_value.status();
  EXPECT_THAT(long_value.status().message(), HasSubstr("the value of policies/a has 65537 bytes, at most 65536"));
  const auto long_key = store_->Put(std::string(kMaxStoreKeyBytes + 1, 'x'), "x", std::nullopt, Soon());
  EXPECT_TRUE(absl::IsInvalidArgument(long_key.status())) << long_key.status();
  for (const std::string& key : {std::string(), std::string("a\nb"), std::string("\xff")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Put(key, "x", std::nullopt, Soon()).status())) << key;
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Delete(key, Soon()))) << key;
  }
  EXPECT_GT(Put(std::string(kMaxStoreKeyBytes, 'x'), std::string(kMaxStoreValueBytes, 'x')), 0);
  EXPECT_GT(store_->Health().error_count, 0u);
}

TEST_P(StoreTest, PastDeadlineWritesNothing) {
  const auto late = store_->Put("policies/a", "1", std::nullopt, absl::Now() - absl::Seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(store_->Delete("policies/a", absl::Now() - absl::Seconds(1))));
  EXPECT_THAT(store_->List(""), IsEmpty());
}

TEST_P(StoreTest, ListenerHearsOfEachKeyAndMayList) {
  std::mutex mutex;
  std::set<std::string> heard;
  std::set<std::thread::id> threads;
  store_->OnChange([&](const std::vector<std::string>& keys) {
    store_->List("policies/");
    std::lock_guard<std::mutex> lock(mutex);
    heard.insert(keys.begin(), keys.end());
    threads.insert(std::this_thread::get_id());
  });
  const auto has = [&](const std::string& key) {
    std::lock_guard<std::mutex> lock(mutex);
    return heard.contains(key);
  };
  Put("policies/a", "1");
  EXPECT_TRUE(Await([&] { return has("policies/a"); }));
  store_->Announce("nodes/n", "1");
  EXPECT_TRUE(Await([&] { return has("nodes/n"); }));
  Put("policies/b", "1");
  EXPECT_TRUE(Await([&] { return has("policies/b"); }));
  {
    std::lock_guard<std::mutex> lock(mutex);
    heard.clear();
  }
  EXPECT_TRUE(store_->Delete("policies/b", Soon()).ok());
  EXPECT_TRUE(Await([&] { return has("policies/b"); }));
  store_.reset();
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST_P(StoreTest, AnnouncedKeyIsThereAndTakesItsLastValue) {
  store_->Announce("nodes/n", "1");
  store_->Announce("nodes/n", "2");
  EXPECT_TRUE(Await([&] {
    const auto values = store_->List("nodes/");
    return values.size() == 1 && values[0].value == "2" && values[0].revision >= 1;
  }));
  EXPECT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); })) << store_->AnnounceStatus();
}

TEST_P(StoreTest, ValuesOutliveTheDaemonAndAnnouncementsDoNot) {
  if (!kind_->lasts()) GTEST_SKIP() << "memory lasts as long as its daemon";
  const int64_t revision = Put("policies/a", "1");
  Put("policies/b", "2");
  EXPECT_TRUE(store_->Delete("policies/b", Soon()).ok());
  store_->Announce("nodes/n", "1");
  ASSERT_TRUE(Await([&] { return store_->AnnounceStatus().ok(); }));
  store_.reset();
  store_ = kind_->Open();
  EXPECT_THAT(Keys(""), ElementsAre("policies/a"));
  EXPECT_EQ(store_->List("policies/")[0].revision, revision);
  EXPECT_GT(Put("policies/c", "3"), revision + 2) << "no revision is given twice";
}

TEST_P(StoreTest, ManyThreadsLoseNoWrite) {
  constexpr int kThreads = 4, kWrites = 25;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::set<int64_t> revisions;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kWrites; ++i) {
        const auto revision = store_->Put(absl::StrCat("policies/", t, "/", i), "x", 0, Soon());
        EXPECT_TRUE(revision.ok()) << revision.status();
        std::lock_guard<std::mutex> lock(mutex);
        revisions.insert(revision.value_or(0));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(revisions.size(), static_cast<size_t>(kThreads * kWrites));
  EXPECT_EQ(Keys("policies/").size(), static_cast<size_t>(kThreads * kWrites));
}

TEST_P(StoreTest, OneOfManyWinsACondition) {
  constexpr int kThreads = 4, kRounds = 10;
  int64_t revision = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    std::vector<absl::StatusOr<int64_t>> results(kThreads, absl::UnknownError(""));
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] { results[t] = store_->Put("policies/a", absl::StrCat(t), revision, Soon()); });
    }
    for (std::thread& thread : threads) thread.join();
    int winners = 0;
    for (const auto& result : results) {
      EXPECT_TRUE(result.ok() || absl::IsAborted(result.status())) << result.status();
      if (result.ok()) revision = *result;
      winners += result.ok() ? 1 : 0;
    }
    EXPECT_EQ(winners, 1);
  }
}

TEST_P(StoreTest, EndsWhileAListenerIsBusy) {
  store_->OnChange([](const std::vector<std::string>&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  for (int i = 0; i < 20; ++i) Put("policies/a", absl::StrCat(i));
  store_.reset();
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest, ::testing::Values("memory", "file", "etcd"),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace gradgate
