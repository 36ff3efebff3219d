// The C interface of the ledger: arguments, structs, environment, several ledgers in one process, fork.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gradgate/gradgate.h"

namespace {

using testing::HasSubstr;

static_assert(sizeof(gg_ledger_options) == 112 && offsetof(gg_ledger_options, log_user) == 104);
static_assert(sizeof(gg_place) == 24 && offsetof(gg_place, mode) == 20);
static_assert(sizeof(gg_vote) == 56 && offsetof(gg_vote, staged) == 48);
static_assert(sizeof(gg_verdict) == 88 && offsetof(gg_verdict, staged) == 80);
static_assert(sizeof(gg_policy) == 48 && offsetof(gg_policy, adopted_window) == 40);
static_assert(sizeof(gg_window_end) == 64 && offsetof(gg_window_end, wait_ns) == 56);
static_assert(sizeof(gg_role_stats) == 48 && offsetof(gg_role_stats, declared_extra) == 40);

gg_ledger_options Alone() {
  gg_ledger_options options = GG_LEDGER_OPTIONS_INIT;
  options.accumulate = 2;
  options.daemon_dir = "";
  return options;
}

gg_ledger* Create(const gg_ledger_options& options) {
  gg_ledger* ledger = nullptr;
  gg_error error{};
  EXPECT_EQ(gg_ledger_create(&options, &ledger, &error), GG_OK) << error.message;
  return ledger;
}

std::string CreateError(const gg_ledger_options& options) {
  gg_ledger* ledger = nullptr;
  gg_error error{};
  EXPECT_EQ(gg_ledger_create(&options, &ledger, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(ledger, nullptr);
  return error.message;
}

TEST(LedgerC, BadOptionsAreNamedWithTheRemedy) {
  gg_ledger_options options = Alone();
  options.mode = 5;
  EXPECT_THAT(CreateError(options), HasSubstr("mode is 5"));
  options = Alone();
  options.roles = 16;
  EXPECT_THAT(CreateError(options), HasSubstr("roles is 16; use bits 1 << GG_GROUP_"));
  options = Alone();
  options.mode = GG_MODE_WINDOW_REPLICA;
  options.roles = 1u << GG_GROUP_DP;
  EXPECT_THAT(CreateError(options), HasSubstr("needs a shard group"));
  options = Alone();
  options.world_size = 2;
  EXPECT_THAT(CreateError(options), HasSubstr("more than one rank needs a store"));
  for (const char* facts : {"torch", "=2", "a=b=c", "a=1\nb\n"}) {
    options = Alone();
    options.facts = facts;
    EXPECT_THAT(CreateError(options), HasSubstr("each is name=value")) << facts;
  }
  for (const char* scope : {"a b", "a/b", "x=1", "123456789012345678901234567890123"}) {
    options = Alone();
    options.scope = scope;
    EXPECT_THAT(CreateError(options), HasSubstr("scope")) << scope;
  }
}

TEST(LedgerC, SessionsRefuseTheLedgersModesByName) {
  for (const gg_mode mode : {GG_MODE_WINDOW_REPLICA, GG_MODE_AUTO}) {
    gg_session_options options = GG_SESSION_OPTIONS_INIT;
    options.mode = mode;
    gg_session* session = nullptr;
    gg_error error{};
    EXPECT_EQ(gg_session_create(&options, &session, &error), GG_INVALID_ARGUMENT);
    EXPECT_THAT(error.message, HasSubstr("window_replica and auto are for ledgers alone"));
  }
}

TEST(LedgerC, NullIsRefused) {
  gg_error error{};
  uint32_t number = 0;
  int64_t words[GG_VOTE_CAPACITY];
  char text[8];
  gg_vote vote = GG_VOTE_INIT;
  gg_verdict verdict = GG_VERDICT_INIT;
  gg_window_end end = GG_WINDOW_END_INIT;
  gg_place place = GG_PLACE_INIT;
  gg_stats stats = GG_STATS_INIT;
  gg_role_stats role = GG_ROLE_STATS_INIT;
  gg_collective_stats cell = GG_COLLECTIVE_STATS_INIT;
  EXPECT_EQ(gg_ledger_create(nullptr, nullptr, &error), GG_INVALID_ARGUMENT);
  for (const gg_status_t status : {gg_ledger_micro_step_begin(nullptr, 0, &number, &error),
                                   gg_ledger_micro_step_end(nullptr, &error),
                                   gg_ledger_micro_step_abandon(nullptr, &error),
                                   gg_ledger_place(nullptr, &place, &error),
                                   gg_ledger_vote(nullptr, &vote, words, 64, &number, &error),
                                   gg_ledger_verdict(nullptr, words, 32, &verdict, &error),
                                   gg_ledger_describe(nullptr, words, 16, text, sizeof(text), &error),
                                   gg_ledger_arrived(nullptr, &error),
                                   gg_ledger_missing(nullptr, text, sizeof(text), &error),
                                   gg_ledger_fail(nullptr, "x", &error),
                                   gg_ledger_late_begin(nullptr, &error),
                                   gg_ledger_window_close(nullptr, &end, nullptr, &error),
                                   gg_ledger_set_mode(nullptr, GG_MODE_WINDOW, &error),
                                   gg_ledger_warn(nullptr, "a", "b", &error),
                                   gg_ledger_predict(nullptr, 4, &error),
                                   gg_ledger_declare_extra(nullptr, 0, 1, &error),
                                   gg_ledger_role_stats_get(nullptr, 0, &role, &error),
                                   gg_ledger_stats_get(nullptr, &stats, &error),
                                   gg_ledger_collective_stats_get(nullptr, 0, 0, &cell, &error),
                                   gg_ledger_close(nullptr, &error)}) {
    EXPECT_EQ(status, GG_INVALID_ARGUMENT);
    EXPECT_STREQ(error.message, "ledger is NULL");
  }
  EXPECT_EQ(gg_ledger_enforcement(nullptr), 0u);
  EXPECT_EQ(gg_ledger_issued(nullptr, 0), 0u);
  EXPECT_EQ(gg_ledger_trainer_issued(nullptr, 0), 0u);
  EXPECT_EQ(gg_ledger_collective_issued(nullptr, 0, 0, 0, 1, 1), 0);
  gg_ledger_collective_done(nullptr, 0, 0, 0, 0, 0);
  gg_ledger_destroy(nullptr);
}

TEST(LedgerC, BadArgumentsAreRefusedAndCountNothing) {
  gg_ledger* ledger = Create(Alone());
  gg_error error{};
  uint32_t number = 7;
  int64_t words[GG_VOTE_CAPACITY] = {};
  EXPECT_EQ(gg_ledger_micro_step_begin(ledger, 3, &number, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_ledger_micro_step_begin(ledger, 0, nullptr, &error), GG_INVALID_ARGUMENT);
  gg_vote vote = GG_VOTE_INIT;
  vote.discard = 2;
  EXPECT_EQ(gg_ledger_vote(ledger, &vote, words, GG_VOTE_CAPACITY, &number, &error), GG_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "vote.discard is 2; it is 0 or 1");
  vote.discard = 0;
  EXPECT_EQ(gg_ledger_vote(ledger, &vote, words, 3, &number, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(number, 7u) << "outputs are untouched on failure";
  gg_verdict verdict = GG_VERDICT_INIT;
  EXPECT_EQ(gg_ledger_verdict(ledger, words, 5, &verdict, &error), GG_INVALID_ARGUMENT);
  char text[4] = "abc";
  EXPECT_EQ(gg_ledger_describe(ledger, words, 15, text, sizeof(text), &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_ledger_missing(ledger, text, 0, &error), GG_INVALID_ARGUMENT);
  gg_window_end end = GG_WINDOW_END_INIT;
  end.wait_ns = -1;
  EXPECT_EQ(gg_ledger_window_close(ledger, &end, nullptr, &error), GG_INVALID_ARGUMENT);
  for (const gg_mode mode : {GG_MODE_DEFAULT, GG_MODE_AUTO}) {
    EXPECT_EQ(gg_ledger_set_mode(ledger, mode, &error), GG_INVALID_ARGUMENT);
  }
  EXPECT_EQ(gg_ledger_declare_extra(ledger, 4, 1, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_ledger_collective_issued(ledger, 4, 0, 0, 1, 1), 0);
  EXPECT_EQ(gg_ledger_collective_issued(ledger, 0, 11, 0, 1, 1), 0);
  EXPECT_EQ(gg_ledger_collective_issued(ledger, 0, 0, 3, 1, 1), 0);
  gg_ledger_collective_done(ledger, 0, 0, 0, 1, 3);
  EXPECT_EQ(gg_ledger_issued(ledger, 4), 0u);
  EXPECT_EQ(gg_ledger_trainer_issued(ledger, 4), 0u);
  gg_stats stats = GG_STATS_INIT;
  ASSERT_EQ(gg_ledger_stats_get(ledger, &stats, &error), GG_OK);
  EXPECT_EQ(stats.gradient_collectives + stats.micro_steps + stats.windows_full + stats.ballots, 0u);
  gg_ledger_destroy(ledger);
}

TEST(LedgerC, OneWindowAlone) {
  gg_ledger* ledger = Create(Alone());
  EXPECT_EQ(gg_ledger_enforcement(ledger), uint32_t{GG_ENFORCEMENT_ENFORCE});
  gg_error error{};
  uint32_t closes = 9, count = 0;
  for (uint32_t i = 0; i < 2; ++i) {
    ASSERT_EQ(gg_ledger_micro_step_begin(ledger, GG_LAST_BY_COUNT, &closes, &error), GG_OK);
    EXPECT_EQ(closes, i);
    ASSERT_EQ(gg_ledger_micro_step_end(ledger, &error), GG_OK);
  }
  gg_place place = GG_PLACE_INIT;
  ASSERT_EQ(gg_ledger_place(ledger, &place, &error), GG_OK);
  EXPECT_EQ(place.micro_steps, 2u);
  EXPECT_EQ(place.mode, uint32_t{GG_MODE_WINDOW});
  int64_t words[GG_VOTE_CAPACITY];
  gg_vote vote = GG_VOTE_INIT;
  vote.contributes = 1;
  ASSERT_EQ(gg_ledger_vote(ledger, &vote, nullptr, 0, &count, &error), GG_OK);
  const uint32_t told = count;
  ASSERT_EQ(gg_ledger_vote(ledger, &vote, words, GG_VOTE_CAPACITY, &count, &error), GG_OK);
  EXPECT_EQ(count, told);
  gg_verdict verdict = GG_VERDICT_INIT;
  ASSERT_EQ(gg_ledger_verdict(ledger, words, count, &verdict, &error), GG_OK);
  EXPECT_EQ(verdict.differs, 0u);
  EXPECT_EQ(verdict.max_micro_steps, 2u);
  EXPECT_EQ(verdict.all_contribute, 1u);
  EXPECT_EQ(verdict.min_headroom_bytes, GG_HEADROOM_UNKNOWN);
  gg_window_end end = GG_WINDOW_END_INIT;
  end.stepped = 1;
  end.min_micro_steps = end.max_micro_steps = 2;
  end.item_count_local = 5;
  end.item_count_global = 9;
  gg_window window = GG_WINDOW_INIT;
  ASSERT_EQ(gg_ledger_window_close(ledger, &end, &window, &error), GG_OK);
  EXPECT_EQ(window.kind, uint32_t{GG_WINDOW_FULL});
  EXPECT_EQ(window.item_count, 9);
  gg_stats stats = GG_STATS_INIT;
  ASSERT_EQ(gg_ledger_stats_get(ledger, &stats, &error), GG_OK);
  EXPECT_EQ(stats.windows_full, 1u);
  EXPECT_EQ(stats.steps, 1u);
  EXPECT_EQ(stats.items, 5u);
  EXPECT_EQ(stats.ballots, 0u) << "there is nobody to ask";
  EXPECT_EQ(gg_ledger_close(ledger, &error), GG_OK);
  gg_ledger_destroy(ledger);
}

TEST(LedgerC, AnOlderCallersStructsAreFilledAsFarAsTheyGo) {
  gg_ledger* ledger = Create(Alone());
  gg_error error{};
  gg_stats stats = GG_STATS_INIT;
  stats.struct_size = 192;  // of 1.0
  stats.overrides = 77;
  EXPECT_EQ(gg_ledger_stats_get(ledger, &stats, &error), GG_OK);
  EXPECT_EQ(stats.struct_size, 192u);
  EXPECT_EQ(stats.overrides, 77u);
  gg_ledger_destroy(ledger);
}

// Words from elsewhere may be anything.
TEST(LedgerC, WordsThatNoRankMeansAreReadAsTheNearestThatOneCould) {
  gg_ledger* ledger = Create(Alone());
  gg_error error{};
  int64_t words[32];
  std::fill(std::begin(words), std::end(words), INT64_MIN);
  gg_verdict verdict = GG_VERDICT_INIT;
  ASSERT_EQ(gg_ledger_verdict(ledger, words, 32, &verdict, &error), GG_OK);
  EXPECT_EQ(verdict.max_micro_steps, 0u);
  std::fill(std::begin(words), std::end(words), INT64_MAX);
  ASSERT_EQ(gg_ledger_verdict(ledger, words, 32, &verdict, &error), GG_OK);
  EXPECT_EQ(verdict.max_micro_steps, UINT32_MAX);
  EXPECT_EQ(verdict.min_micro_steps, 0u);
  EXPECT_EQ(verdict.differs, 1u);
  gg_ledger_destroy(ledger);
}

// A store of the caller's, shared by threads that stand for ranks.
struct SharedStore {
  std::mutex mutex;
  std::map<std::string, std::string> values;

  static gg_status_t Set(void* user, const char* key, const void* value, size_t bytes, int64_t) {
    auto* self = static_cast<SharedStore*>(user);
    const std::lock_guard lock(self->mutex);
    self->values[key] = std::string(static_cast<const char*>(value), bytes);
    return GG_OK;
  }
  static gg_status_t Get(void* user, const char* key, void* buffer, size_t capacity, size_t* bytes, int64_t deadline_ns) {
    auto* self = static_cast<SharedStore*>(user);
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(deadline_ns);
    do {
      {
        const std::lock_guard lock(self->mutex);
        const auto found = self->values.find(key);
        if (found != self->values.end()) {
          *bytes = found->second.size();
          std::memcpy(buffer, found->second.data(), std::min(capacity, *bytes));
          return GG_OK;
        }
      }
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
    return GG_NOT_FOUND;
  }
  gg_store* Open() {
    gg_store_callbacks callbacks = GG_STORE_CALLBACKS_INIT;
    callbacks.user = this;
    callbacks.set = Set;
    callbacks.get = Get;
    gg_store* store = nullptr;
    EXPECT_EQ(gg_store_create(&callbacks, &store, nullptr), GG_OK);
    return store;
  }
};

TEST(LedgerC, SeveralLedgersOfOneProcessAreToldApartByTheirScope) {
  SharedStore shared;
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      std::vector<gg_ledger*> ledgers;
      std::vector<gg_store*> stores;
      for (const char* scope : {"", "#2"}) {
        gg_ledger_options options = Alone();
        options.rank = rank;
        options.world_size = 2;
        options.roles = 1u << GG_GROUP_DP;
        options.scope = scope;
        stores.push_back(shared.Open());
        options.store = stores.back();
        ledgers.push_back(Create(options));
      }
      for (gg_ledger* ledger : ledgers) gg_ledger_destroy(ledger);
      for (gg_store* store : stores) gg_store_destroy(store);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(shared.values.count("gradgate/0/0/hello/0"), 1u);
  EXPECT_THAT(shared.values["gradgate/0/0/#2/hello/1"], HasSubstr("job=\n"));
}

TEST(LedgerC, EnvironmentIsReadAsBySessions) {
  setenv("GRADGATE", "audit", 1);
  gg_ledger_options options = Alone();
  gg_ledger* ledger = Create(options);
  EXPECT_EQ(gg_ledger_enforcement(ledger), uint32_t{GG_ENFORCEMENT_AUDIT});
  gg_place place = GG_PLACE_INIT;
  ASSERT_EQ(gg_ledger_place(ledger, &place, nullptr), GG_OK);
  EXPECT_EQ(place.mode, uint32_t{GG_MODE_EVERY_MICRO_STEP});
  gg_ledger_destroy(ledger);
  setenv("GRADGATE", "maybe", 1);
  EXPECT_THAT(CreateError(options), HasSubstr("GRADGATE=maybe is not known"));
  unsetenv("GRADGATE");
}

TEST(LedgerC, TextIsCutAtACharacter) {
  gg_ledger* ledger = Create(Alone());
  int64_t row[16] = {};
  char text[5] = "xxxx";
  ASSERT_EQ(gg_ledger_describe(ledger, row, 16, text, sizeof(text), nullptr), GG_OK);
  EXPECT_STREQ(text, "") << "one rank never differs";
  gg_ledger_destroy(ledger);
}

TEST(LedgerC, AForkedChildsLedgerIsDeadAndReachesNothing) {
  gg_ledger* ledger = Create(Alone());
  uint32_t closes = 0;
  ASSERT_EQ(gg_ledger_micro_step_begin(ledger, 0, &closes, nullptr), GG_OK);
  const pid_t child = fork();
  if (child == 0) {
    gg_error error{};
    bool good = gg_ledger_micro_step_end(ledger, &error) == GG_FAILED_PRECONDITION;
    good &= std::strstr(error.message, "belongs to the parent process") != nullptr;
    good &= gg_ledger_fail(ledger, "x", nullptr) == GG_FAILED_PRECONDITION;
    gg_ledger_collective_issued(ledger, 0, 0, 0, 100, 1);
    gg_ledger_destroy(ledger);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(gg_ledger_micro_step_end(ledger, nullptr), GG_OK);
  gg_stats stats = GG_STATS_INIT;
  ASSERT_EQ(gg_ledger_stats_get(ledger, &stats, nullptr), GG_OK);
  EXPECT_EQ(stats.gradient_collectives, 0u);
  EXPECT_EQ(stats.micro_steps, 1u);
  gg_ledger_destroy(ledger);
}

}  // namespace
