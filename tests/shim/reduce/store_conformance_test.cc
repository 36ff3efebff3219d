// What every store does.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shim/reduce/clock.h"
#include "shim/reduce/file_store.h"
#include "shim/reduce/tcp_store.h"
#include "tests/shim/reduce/temporary_directory.h"

namespace gradgate {
namespace {

constexpr int64_t kLong = 30'000'000'000;
constexpr int64_t kShort = 50'000'000;

// Two clients of one store.
struct Pair {
  TemporaryDirectory directory;
  std::unique_ptr<Store> first, second;
};

void OpenFile(Pair* pair) {
  pair->first = std::make_unique<FileStore>(pair->directory.path() + "/not/yet/there");
  pair->second = std::make_unique<FileStore>(pair->directory.path() + "/not/yet/there");
}

void OpenTcp(Pair* pair) {
  uint16_t port = 0;
  Status status = TcpStore::Open("localhost", 0, true, kLong, &pair->first, &port);
  ASSERT_TRUE(status.ok()) << status.message();
  status = TcpStore::Open("localhost", port, false, kLong, &pair->second);
  ASSERT_TRUE(status.ok()) << status.message();
}

struct Kind {
  const char* name;
  void (*open)(Pair*);
};

class StoreTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(GetParam().open(&pair_)); }
  Pair pair_;
};

TEST_P(StoreTest, KeysAndValuesOutsideTheLimitsAreRefusedByName) {
  std::string value;
  for (const std::string& key :
       {std::string(), std::string(201, 'k'), std::string("a b"), std::string("a\n"), std::string("\xc3\xa9")}) {
    const Status set = pair_.first->Set(key, "v", kLong);
    EXPECT_EQ(set.code(), Code::kInvalidArgument) << key;
    EXPECT_NE(set.message().find(key.substr(0, 64)), std::string::npos) << set.message();
    EXPECT_EQ(pair_.first->Get(key, kLong, &value).code(), Code::kInvalidArgument) << key;
  }
  EXPECT_EQ(pair_.first->Set("k", std::string(65537, 'v'), kLong).code(), Code::kInvalidArgument);
  EXPECT_EQ(pair_.first->Set("k", "v", 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(pair_.first->Get("k", -1, &value).code(), Code::kInvalidArgument);
  EXPECT_EQ(pair_.first->Get("k", kShort, &value).code(), Code::kNotFound) << "nothing of it was stored";
}

TEST_P(StoreTest, AMissingKeyIsNotFoundAfterItsTimeoutAndTheStoreWorksOn) {
  std::string value = "before";
  for (int round = 0; round < 3; ++round) {
    const int64_t begin_ns = MonotonicNs();
    const Status status = pair_.second->Get("missing", kShort, &value);
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_NE(status.message().find("'missing'"), std::string::npos) << status.message();
    EXPECT_GE(MonotonicNs() - begin_ns, kShort);
    EXPECT_LT(MonotonicNs() - begin_ns, kLong);
    EXPECT_EQ(value, "before");
  }
  ASSERT_TRUE(pair_.second->Set("missing", "there", kLong).ok());
  ASSERT_TRUE(pair_.second->Get("missing", kLong, &value).ok());
  EXPECT_EQ(value, "there");
}

TEST_P(StoreTest, ValuesOfAnyBytesAndSizesComeBack) {
  std::string all;
  for (int i = 0; i < 65536; ++i) all.push_back(static_cast<char>(i * 7));
  for (const std::string& value : {std::string(), std::string("\0\n\xff", 3), all}) {
    ASSERT_TRUE(pair_.first->Set("key", value, kLong).ok()) << "set replaces";
    std::string got = "x";
    ASSERT_TRUE(pair_.second->Get("key", kLong, &got).ok());
    EXPECT_TRUE(got == value) << value.size();
  }
}

TEST_P(StoreTest, KeysThatLookLikePathsOrAreLongStayApart) {
  const std::vector<std::string> keys = {"a",
                                         "A",
                                         "a/b",
                                         "a/b/c",
                                         "..",
                                         "../a",
                                         ".",
                                         "%41",
                                         "%2F",
                                         "k.a",
                                         "a%2Fb",
                                         "~",
                                         "/etc/gg",
                                         "a\\b",
                                         "*",
                                         std::string(200, 'x'),
                                         std::string(199, 'x'),
                                         std::string(200, '/'),
                                         std::string(67, '/'),
                                         std::string(66, '/')};
  for (const std::string& key : keys) ASSERT_TRUE(pair_.first->Set(key, "value of " + key, kLong).ok()) << key;
  for (const std::string& key : keys) {
    std::string value;
    ASSERT_TRUE(pair_.second->Get(key, kLong, &value).ok()) << key;
    EXPECT_EQ(value, "value of " + key);
  }
}

TEST_P(StoreTest, AWaitingGetSeesALaterSet) {
  std::string value;
  Status status;
  std::thread waiter([&] { status = pair_.second->Get("later", kLong, &value); });
  ASSERT_TRUE(pair_.first->Set("other", "1", kLong).ok());
  ASSERT_TRUE(pair_.first->Set("later", "2", kLong).ok());
  waiter.join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(value, "2");
}

TEST_P(StoreTest, ThreadsShareAClientAndSeeWholeValuesOnly) {
  std::vector<std::thread> threads;
  ASSERT_TRUE(pair_.first->Set("key", std::string(20000, 'a'), kLong).ok());
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Store* store = t % 2 == 0 ? pair_.first.get() : pair_.second.get();
      for (int i = 0; i < 100; ++i) {
        std::string value;
        EXPECT_TRUE(store->Set("key", std::string(20000 - static_cast<size_t>(t), static_cast<char>('a' + t)), kLong).ok());
        EXPECT_TRUE(store->Get("key", kLong, &value).ok());
        ASSERT_FALSE(value.empty());
        EXPECT_TRUE(value == std::string(20000 - static_cast<size_t>(value[0] - 'a'), value[0])) << "torn";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(All, StoreTest, testing::Values(Kind{"File", &OpenFile}, Kind{"Tcp", &OpenTcp}),
                         [](const testing::TestParamInfo<Kind>& kind) { return kind.param.name; });

}  // namespace
}  // namespace gradgate
