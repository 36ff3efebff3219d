// The rules by which the copy follows etcd.

#include "daemon/store/etcd/etcd_copy.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/store/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kCluster = 5;

etcdserverpb::KeyValue Pair(const std::string& key, const std::string& value, int64_t revision) {
  etcdserverpb::KeyValue pair;
  pair.set_key("/p/" + key);
  pair.set_value(value);
  pair.set_mod_revision(revision);
  return pair;
}
void AddPut(etcdserverpb::WatchResponse& response, const std::string& key, const std::string& value, int64_t revision) {
  *response.add_events()->mutable_kv() = Pair(key, value, revision);
}
void AddRemoval(etcdserverpb::WatchResponse& response, const std::string& key, int64_t revision) {
  AddPut(response, key, "", revision);
  response.mutable_events()->rbegin()->set_type(1);
}

class EtcdCopyTest : public ::testing::Test {
 protected:
  std::vector<std::string> ReadAs(const std::vector<etcdserverpb::KeyValue>& pairs, int64_t revision,
                                  uint64_t cluster = kCluster) {
    copy_.Begin();
    for (const auto& pair : pairs) copy_.Read(pair);
    return copy_.Finish(revision, cluster);
  }
  std::vector<std::string> Put(const std::string& key, const std::string& value, int64_t revision) {
    etcdserverpb::WatchResponse response;
    AddPut(response, key, value, revision);
    return copy_.Apply(response);
  }
  std::vector<std::string> Remove(const std::string& key, int64_t revision) {
    etcdserverpb::WatchResponse response;
    AddRemoval(response, key, revision);
    return copy_.Apply(response);
  }
  std::string ValueOf(const std::string& key) {
    const auto* entry = copy_.Find(key);
    return entry == nullptr ? "(none)" : entry->value;
  }

  EtcdCopy copy_{"/p/"};
};

TEST_F(EtcdCopyTest, ReadingTellsWhatIsDifferent) {
  EXPECT_THAT(ReadAs({Pair("a", "1", 2), Pair("b", "1", 3)}, 4), UnorderedElementsAre("a", "b"));
  EXPECT_THAT(ReadAs({Pair("a", "1", 2), Pair("b", "2", 6), Pair("c", "1", 5)}, 7), UnorderedElementsAre("b", "c"));
  EXPECT_THAT(ReadAs({Pair("b", "2", 6)}, 9), UnorderedElementsAre("a", "c"));
  EXPECT_THAT(ReadAs({Pair("b", "2", 6)}, 9), IsEmpty());
  EXPECT_EQ(copy_.revision(), 9);
  EXPECT_EQ(copy_.change_count(), 6u);
  EXPECT_EQ(copy_.byte_count(), 2u);
}

TEST_F(EtcdCopyTest, UnfinishedReadingLeavesNoTrace) {
  ReadAs({Pair("a", "1", 2)}, 4);
  copy_.Begin();
  copy_.Read(Pair("b", "1", 3));
  EXPECT_EQ(ValueOf("b"), "(none)");
  EXPECT_THAT(ReadAs({Pair("a", "1", 2)}, 5), IsEmpty());
}

TEST_F(EtcdCopyTest, EventsOfThePastBringNothingBack) {
  ReadAs({}, 10);
  EXPECT_THAT(Put("removed", "1", 9), IsEmpty());
  EXPECT_THAT(Put("removed", "1", 10), IsEmpty());
  EXPECT_THAT(Put("new", "1", 11), ElementsAre("new"));
}

TEST_F(EtcdCopyTest, OwnWritesAheadOfTheWatchAreSeenOnce) {
  ReadAs({}, 10);
  EXPECT_TRUE(copy_.Wrote("a", "1", 12, 0));
  EXPECT_EQ(ValueOf("a"), "1");
  EXPECT_THAT(Put("b", "x", 11), ElementsAre("b")) << "what came before it is not lost";
  EXPECT_THAT(Put("a", "1", 12), IsEmpty());
  EXPECT_THAT(Put("a", "2", 13), ElementsAre("a"));
  EXPECT_FALSE(copy_.Wrote("a", "late", 12, 0)) << "its answer came after the watch";
  EXPECT_EQ(ValueOf("a"), "2");
}

TEST_F(EtcdCopyTest, OlderEventDoesNotUndoAnOwnWrite) {
  ReadAs({Pair("a", "0", 9)}, 10);
  EXPECT_TRUE(copy_.Wrote("a", "mine", 14, 0));
  EXPECT_THAT(Put("a", "theirs", 12), IsEmpty());
  EXPECT_THAT(Remove("a", 13), IsEmpty());
  EXPECT_EQ(ValueOf("a"), "mine");
}

TEST_F(EtcdCopyTest, OwnRemovalIsNotUndoneByWhatWasBefore) {
  ReadAs({Pair("a", "0", 9)}, 10);
  EXPECT_TRUE(copy_.Removed("a", 12));
  EXPECT_THAT(Put("a", "before", 11), IsEmpty());
  EXPECT_EQ(ValueOf("a"), "(none)");
  EXPECT_THAT(Remove("a", 12), IsEmpty());
  EXPECT_THAT(Put("a", "after", 13), ElementsAre("a"));
  EXPECT_FALSE(copy_.Removed("a", 12));
}

TEST_F(EtcdCopyTest, OwnWritesSurviveAReadingOfBefore) {
  ReadAs({Pair("b", "0", 8)}, 10);
  copy_.Wrote("a", "1", 14, 0);
  copy_.Removed("b", 15);
  EXPECT_THAT(ReadAs({Pair("b", "0", 8)}, 12), IsEmpty());
  EXPECT_EQ(ValueOf("a"), "1");
  EXPECT_EQ(ValueOf("b"), "(none)");
  EXPECT_THAT(ReadAs({}, 16), ElementsAre("a")) << "somebody has removed it meanwhile";
}

TEST_F(EtcdCopyTest, PiecesOfOneRevisionAllCount) {
  ReadAs({}, 10);
  etcdserverpb::WatchResponse first, second;
  AddPut(first, "a", "1", 11);
  AddPut(first, "b", "1", 12);
  first.set_fragment(true);
  AddPut(second, "c", "1", 12);
  EXPECT_THAT(copy_.Apply(first), ElementsAre("a", "b"));
  EXPECT_EQ(copy_.revision(), 11) << "a break here must bring 12 again";
  EXPECT_THAT(copy_.Apply(second), ElementsAre("c"));
  EXPECT_EQ(copy_.revision(), 12);
}

TEST_F(EtcdCopyTest, RevisionThatWentBackIsToldUntilItIsPassed) {
  ReadAs({Pair("a", "1", 2), Pair("b", "1", 30)}, 50);
  copy_.Wrote("c", "1", 51, 0);
  EXPECT_THAT(ReadAs({Pair("a", "other", 2)}, 3), UnorderedElementsAre("a", "b", "c"));
  EXPECT_EQ(copy_.lost_revision(), 50);
  EXPECT_EQ(copy_.reset_count(), 1u);
  EXPECT_EQ(copy_.revision(), 3);
  EXPECT_THAT(Put("d", "1", 4), ElementsAre("d")) << "it follows from there";
  EXPECT_EQ(copy_.lost_revision(), 50);
  Put("d", "2", 51);
  EXPECT_EQ(copy_.lost_revision(), 0);
}

TEST_F(EtcdCopyTest, AnotherClusterIsToldEvenIfItIsAhead) {
  ReadAs({Pair("a", "1", 2)}, 50);
  EXPECT_THAT(ReadAs({Pair("a", "1", 2)}, 60, kCluster + 1), IsEmpty());
  EXPECT_EQ(copy_.reset_count(), 1u);
}

TEST_F(EtcdCopyTest, WhatIsNotForUsIsLeftOut) {
  etcdserverpb::KeyValue outside;
  outside.set_key("/q/a");
  outside.set_mod_revision(2);
  EXPECT_THAT(ReadAs({outside, Pair("", "1", 2), Pair("a\x1b", "1", 2), Pair("a", "1", 0), Pair(std::string(513, 'k'), "1", 2),
                      Pair("long", std::string(kMaxStoreValueBytes + 1, 'x'), 2), Pair("ok", "1", 2)},
                     5),
              ElementsAre("ok"));
  EXPECT_EQ(copy_.left_out_count(), 6u);
  EXPECT_EQ(copy_.dropped_count(), 6u);
  EXPECT_THAT(Put("ok", std::string(kMaxStoreValueBytes + 1, 'x'), 6), ElementsAre("ok"));
  EXPECT_EQ(ValueOf("ok"), "(none)") << "its former value is no longer true";
  EXPECT_EQ(copy_.dropped_count(), 7u);
  ReadAs({}, 7);
  EXPECT_EQ(copy_.left_out_count(), 0u);
  EXPECT_EQ(copy_.dropped_count(), 7u);
}

TEST_F(EtcdCopyTest, BytesAreBounded) {
  ReadAs({}, 1);
  const std::string large(kMaxStoreValueBytes, 'x');
  int64_t revision = 1;
  while (copy_.dropped_count() == 0) {
    Put(absl::StrCat("key", revision), large, revision + 1);
    ++revision;
  }
  EXPECT_LE(copy_.byte_count(), kMaxStoreBytes);
  EXPECT_GT(copy_.byte_count(), kMaxStoreBytes - 2 * kMaxStoreValueBytes);
  EXPECT_THAT(Put("key1", std::string(kMaxStoreValueBytes, 'y'), ++revision), ElementsAre("key1"))
      << "in the place of the old one";
}

// Against a map that does everything in order.
TEST_F(EtcdCopyTest, AnyOrderOfOwnAnswersEndsTheSame) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    EtcdCopy copy("/p/");
    copy.Begin();
    copy.Finish(1, kCluster);
    std::map<std::string, std::string> truth;
    std::vector<std::function<void()>> answers;
    std::vector<etcdserverpb::WatchResponse> watch;
    for (int64_t revision = 2; revision < 10; ++revision) {
      const std::string key(1, static_cast<char>('a' + random() % 3)), value = absl::StrCat(revision);
      const bool is_removal = random() % 3 == 0 && truth.contains(key);
      etcdserverpb::WatchResponse response;
      if (is_removal) {
        truth.erase(key);
        AddRemoval(response, key, revision);
        answers.emplace_back([&copy, key, revision] { copy.Removed(key, revision); });
      } else {
        truth[key] = value;
        AddPut(response, key, value, revision);
        answers.emplace_back([&copy, key, value, revision] { copy.Wrote(key, value, revision, 0); });
      }
      watch.push_back(response);
      if (random() % 2 == 0) answers.pop_back();  // somebody else's
    }
    std::shuffle(answers.begin(), answers.end(), random);
    size_t next = 0;
    while (next < watch.size() || !answers.empty()) {
      if (!answers.empty() && (next == watch.size() || random() % 2 == 0)) {
        answers.back()();
        answers.pop_back();
      } else {
        copy.Apply(watch[next++]);
      }
    }
    std::map<std::string, std::string> got;
    for (const StoredValue& value : copy.List("")) got[value.key] = value.value;
    ASSERT_EQ(got, truth) << "round " << round;
  }
}

}  // namespace
}  // namespace gradgate
