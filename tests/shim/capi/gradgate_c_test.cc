// The C interface itself: arguments, growing structs, errors, the environment, real transports.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gradgate/gradgate.h"

namespace {

using testing::HasSubstr;

// Sizes and last fields of version 1.0; a field is only ever appended, with a new minor.
static_assert(sizeof(gg_error) == 1024 && offsetof(gg_error, message) == 8);
static_assert(sizeof(gg_store_options) == 24 && offsetof(gg_store_options, deadline_ns) == 16);
static_assert(sizeof(gg_store_callbacks) == 32 && offsetof(gg_store_callbacks, get) == 24);
static_assert(sizeof(gg_gloo_options) == 48 && offsetof(gg_gloo_options, deadline_ns) == 40);
static_assert(sizeof(gg_tensor) == 32 && offsetof(gg_tensor, dtype) == 24);
static_assert(sizeof(gg_session_options) == 120 && offsetof(gg_session_options, log_user) == 112);
static_assert(sizeof(gg_micro_step) == 16 && offsetof(gg_micro_step, item_count) == 8);
static_assert(sizeof(gg_window) == 56 && offsetof(gg_window, item_count) == 40 && offsetof(gg_window, policy_offered) == 52);
static_assert(sizeof(gg_stats) == 224 && offsetof(gg_stats, window_ns) == 184);
static_assert(sizeof(gg_collective_stats) == 112 && offsetof(gg_collective_stats, duration_ns) == 104);

gg_session_options Alone() {
  gg_session_options options = GG_SESSION_OPTIONS_INIT;
  options.daemon_dir = "";
  return options;
}

std::string CreateError(const gg_session_options& options, gg_status_t code) {
  gg_session* session = nullptr;
  gg_error error{};
  EXPECT_EQ(gg_session_create(&options, &session, &error), code);
  EXPECT_EQ(error.code, code);
  EXPECT_EQ(session, nullptr);
  return error.message;
}

TEST(GradgateC, VersionAndNames) {
  EXPECT_EQ(gg_abi_version(), uint32_t{GG_ABI_MAJOR << 16 | GG_ABI_MINOR});
  EXPECT_STREQ(gg_status_name(GG_ABORTED), "ABORTED");
  EXPECT_STREQ(gg_status_name(77), "UNKNOWN");
}

TEST(GradgateC, NullIsRefusedAndDestroyingNullIsFine) {
  gg_error error{};
  EXPECT_EQ(gg_session_create(nullptr, nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_session_create(nullptr, nullptr, nullptr), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_micro_step_begin(nullptr, nullptr, nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_gradient_ready(nullptr, 0, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_micro_step_end(nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_micro_step_abandon(nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_step_begin(nullptr, nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_flush(nullptr, 0, nullptr, nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_stats_get(nullptr, nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_collective_stats_get(nullptr, 0, 0, nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_session_close(nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_store_open(nullptr, nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_transport_open_gloo(nullptr, nullptr, &error), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_session_bucket_count(nullptr), 0u);
  gg_session_destroy(nullptr);
  gg_transport_destroy(nullptr);
  gg_store_destroy(nullptr);
}

TEST(GradgateC, BadOptionsNameTheValue) {
  gg_session_options options = Alone();
  options.mode = 7;
  EXPECT_THAT(CreateError(options, GG_INVALID_ARGUMENT), HasSubstr("mode is 7"));
  options = Alone();
  options.world_size = 2;
  EXPECT_THAT(CreateError(options, GG_INVALID_ARGUMENT), HasSubstr("needs a transport"));
  options = Alone();
  options.deadline_ns = -1;
  EXPECT_THAT(CreateError(options, GG_INVALID_ARGUMENT), HasSubstr("negative"));
  options = Alone();
  options.job_name = "a/b";
  EXPECT_THAT(CreateError(options, GG_INVALID_ARGUMENT), HasSubstr("\"a/b\""));
  const gg_tensor tensor = {"head.weight", nullptr, 0, GG_FLOAT32, 0};
  options = Alone();
  options.tensors = &tensor;
  options.tensor_count = 1;
  EXPECT_THAT(CreateError(options, GG_INVALID_ARGUMENT), HasSubstr("\"head.weight\" has element_count 0"));
  options.tensors = nullptr;
  EXPECT_THAT(CreateError(options, GG_INVALID_ARGUMENT), HasSubstr("tensors is NULL"));
  options = Alone();
  options.struct_size = 0;
  EXPECT_THAT(CreateError(options, GG_INVALID_ARGUMENT), HasSubstr("struct_size is 0"));
}

TEST(GradgateC, EnvironmentIsCheckedToo) {
  setenv("GRADGATE", "maybe", 1);
  EXPECT_THAT(CreateError(Alone(), GG_INVALID_ARGUMENT), HasSubstr("GRADGATE=maybe is not known; use off, audit or enforce"));
  unsetenv("GRADGATE");
}

TEST(GradgateC, ALaunchersJobNameIsMadeGood) {
  setenv("GRADGATE_JOB", ("a/b=c\n" + std::string(200, 'x')).c_str(), 1);
  gg_session* session = nullptr;
  gg_error error{};
  const gg_session_options options = Alone();
  EXPECT_EQ(gg_session_create(&options, &session, &error), GG_OK) << error.message;
  gg_session_destroy(session);
  unsetenv("GRADGATE_JOB");
}

TEST(GradgateC, OlderAndNewerStructsAreTakenIn) {
  // Newer: an unknown tail of zeros is fine, a set one is not.
  struct {
    gg_session_options known;
    uint64_t unknown;
  } newer = {Alone(), 0};
  newer.known.struct_size = sizeof(newer);
  gg_session* session = nullptr;
  gg_error error{};
  ASSERT_EQ(gg_session_create(&newer.known, &session, &error), GG_OK);
  gg_session_destroy(session);
  newer.unknown = 1;
  EXPECT_THAT(CreateError(newer.known, GG_UNIMPLEMENTED), HasSubstr("does not know"));
  // Older: ends after `windows`; what it does not have is default, whatever lies behind it.
  gg_session_options older = Alone();
  older.accumulate = 1;
  older.struct_size = offsetof(gg_session_options, divide);
  older.divide = 99;
  older.daemon_dir = nullptr;
  setenv("GRADGATE_DIR", "/nonexistent", 1);
  ASSERT_EQ(gg_session_create(&older, &session, &error), GG_OK) << error.message;
  unsetenv("GRADGATE_DIR");
  // Out: only what the caller knows is written.
  gg_stats stats = GG_STATS_INIT;
  stats.struct_size = offsetof(gg_stats, steps);
  stats.steps = 12345;
  uint32_t boundary = 0;
  ASSERT_EQ(gg_micro_step_begin(session, nullptr, &boundary, &error), GG_OK);
  EXPECT_EQ(boundary, 1u);
  ASSERT_EQ(gg_micro_step_end(session, &error), GG_OK);
  ASSERT_EQ(gg_step_begin(session, nullptr, &error), GG_OK);
  ASSERT_EQ(gg_stats_get(session, &stats, &error), GG_OK);
  EXPECT_EQ(stats.micro_steps, 1u);
  EXPECT_EQ(stats.steps, 12345u);
  gg_session_destroy(session);
}

TEST(GradgateC, LongErrorsAreCutAtACharacter) {
  std::string name;
  for (int i = 0; i < 600; ++i) name += "\xc3\xa9";
  gg_store_options options = GG_STORE_OPTIONS_INIT;
  options.url = name.c_str();
  gg_store* store = nullptr;
  gg_error error{};
  EXPECT_EQ(gg_store_open(&options, &store, &error), GG_INVALID_ARGUMENT);
  const std::string message = error.message;
  EXPECT_GE(message.size(), sizeof(error.message) - 3);
  EXPECT_EQ(message.size() - message.find("\xc3"), 2 * ((message.size() - message.find("\xc3")) / 2));
}

TEST(GradgateC, TheLongestDeadlineIsNoError) {
  gg_session_options options = Alone();
  options.accumulate = 1;
  options.deadline_ns = options.handshake_deadline_ns = INT64_MAX;
  gg_session* session = nullptr;
  gg_error error{};
  uint32_t boundary = 0;
  ASSERT_EQ(gg_session_create(&options, &session, &error), GG_OK) << error.message;
  gg_micro_step step = GG_MICRO_STEP_INIT;
  step.item_count = GG_MAX_ITEM_COUNT + 1;
  EXPECT_EQ(gg_micro_step_begin(session, &step, &boundary, &error), GG_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("2^40"));
  gg_session_destroy(session);
}

// Under a limit on file sizes the page cannot be made; the trainer must not get SIGXFSZ for it.
TEST(GradgateC, ALimitOnFileSizesIsAWarning) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {1024, 1024};
    setrlimit(RLIMIT_FSIZE, &limit);
    gg_session* session = nullptr;
    const gg_session_options options = Alone();
    _exit(gg_session_create(&options, &session, nullptr) == GG_OK ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(GradgateC, StoreUrlsAreChecked) {
  gg_store* store = nullptr;
  gg_error error{};
  for (const char* url :
       {"", "file:relative", "file:///", "tcp://host", "tcp://:1", "tcp://host:0", "tcp://host:1x", "etcd://x"}) {
    gg_store_options options = GG_STORE_OPTIONS_INIT;
    options.url = url;
    EXPECT_EQ(gg_store_open(&options, &store, &error), GG_INVALID_ARGUMENT) << url;
    EXPECT_THAT(error.message, HasSubstr("store url")) << url;
  }
}

// Two ranks over Gloo and a file store, as threads of this process.
TEST(GradgateC, TwoRanksOverGloo) {
  const std::string directory = testing::TempDir() + "gradgate_c_test_" + std::to_string(::getpid());
  std::array<std::thread, 2> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks[rank] = std::thread([&directory, rank] {
      gg_error error{};
      const std::string url = "file://" + directory;
      gg_store_options store_options = GG_STORE_OPTIONS_INIT;
      store_options.url = url.c_str();
      gg_store* store = nullptr;
      ASSERT_EQ(gg_store_open(&store_options, &store, &error), GG_OK) << error.message;
      gg_gloo_options gloo = GG_GLOO_OPTIONS_INIT;
      gloo.rank = rank;
      gloo.world_size = 2;
      gloo.store = store;
      gloo.interface_name = "lo";
      gloo.deadline_ns = 20'000'000'000;
      gg_transport* transport = nullptr;
      ASSERT_EQ(gg_transport_open_gloo(&gloo, &transport, &error), GG_OK) << error.message;
      double own[3] = {0, 0, 0};
      const gg_tensor tensors[2] = {{"a", own, 3, GG_FLOAT64, 0}, {"b", nullptr, 2, GG_FLOAT32, 0}};
      gg_session_options options = Alone();
      options.accumulate = 2;
      options.tensors = tensors;
      options.tensor_count = 2;
      options.store = store;
      options.transport = transport;
      options.deadline_ns = 20'000'000'000;
      gg_session* session = nullptr;
      ASSERT_EQ(gg_session_create(&options, &session, &error), GG_OK) << error.message;
      EXPECT_EQ(gg_session_bucket_count(session), 2u);
      void* view = nullptr;
      ASSERT_EQ(gg_session_gradient(session, 1, &view, &error), GG_OK);
      for (int i = 0; i < 2; ++i) {
        uint32_t boundary = 0;
        ASSERT_EQ(gg_micro_step_begin(session, nullptr, &boundary, &error), GG_OK);
        own[2] += rank + 1;
        static_cast<float*>(view)[1] += 4;
        ASSERT_EQ(gg_gradient_ready(session, 1, &error), GG_OK);
        ASSERT_EQ(gg_gradient_ready(session, 0, &error), GG_OK);
        ASSERT_EQ(gg_micro_step_end(session, &error), GG_OK) << error.message;
      }
      gg_window window = GG_WINDOW_INIT;
      ASSERT_EQ(gg_step_begin(session, &window, &error), GG_OK) << error.message;
      EXPECT_EQ(own[2], 3.0);
      EXPECT_EQ(static_cast<float*>(view)[1], 8.0f);
      gg_collective_stats collectives = GG_COLLECTIVE_STATS_INIT;
      ASSERT_EQ(gg_collective_stats_get(session, GG_GROUP_DP, GG_OP_ALL_REDUCE, &collectives, &error), GG_OK);
      EXPECT_EQ(collectives.gradient_issued, 2u);
      EXPECT_EQ(collectives.ours_issued, 1u);
      EXPECT_EQ(collectives.gradient_bytes, 3 * 8u + 2 * 4u);
      EXPECT_EQ(collectives.completed, 3u);
      EXPECT_EQ(gg_collective_stats_get(session, 9, 0, &collectives, &error), GG_INVALID_ARGUMENT);
      // A child that destroys everything it inherited harms nobody: the next window is reduced as ever.
      const pid_t child = fork();
      if (child == 0) {
        gg_session_destroy(session);
        gg_transport_destroy(transport);
        gg_store_destroy(store);
        _exit(0);
      }
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
      for (int i = 0; i < 2; ++i) {
        uint32_t boundary = 0;
        ASSERT_EQ(gg_micro_step_begin(session, nullptr, &boundary, &error), GG_OK);
        ASSERT_EQ(gg_micro_step_end(session, &error), GG_OK) << error.message;
      }
      ASSERT_EQ(gg_step_begin(session, nullptr, &error), GG_OK) << error.message;
      ASSERT_EQ(gg_session_close(session, &error), GG_OK);
      gg_session_destroy(session);
      gg_transport_destroy(transport);
      gg_store_destroy(store);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::filesystem::remove_all(directory);
}

// A store of the caller's that refuses everything: its failure is ours, by name.
TEST(GradgateC, CallersStoreThatFailsIsTold) {
  gg_store_callbacks callbacks = GG_STORE_CALLBACKS_INIT;
  gg_error error{};
  gg_store* store = nullptr;
  EXPECT_EQ(gg_store_create(&callbacks, &store, &error), GG_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("callbacks.set"));
  callbacks.set = [](void*, const char*, const void*, size_t, int64_t) -> gg_status_t { return GG_UNAVAILABLE; };
  callbacks.get = [](void*, const char*, void*, size_t, size_t*, int64_t) -> gg_status_t { return GG_NOT_FOUND; };
  ASSERT_EQ(gg_store_create(&callbacks, &store, &error), GG_OK);
  gg_gloo_options gloo = GG_GLOO_OPTIONS_INIT;
  gloo.world_size = 2;
  gloo.store = store;
  gloo.interface_name = "lo";
  gloo.deadline_ns = 1'000'000'000;
  gg_transport* transport = nullptr;
  EXPECT_EQ(gg_transport_open_gloo(&gloo, &transport, &error), GG_UNAVAILABLE);
  EXPECT_THAT(error.message, HasSubstr("the caller's store"));
  gg_store_destroy(store);
}

}  // namespace
