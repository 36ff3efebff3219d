// Policies through the C interface of ledgers and sessions: structs, wrong answers, closed and forked handles.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "gradgate/gradgate.h"
#include "tests/shim/capi/policy_ranks.h"

namespace gradgate::test {
namespace {

using ::testing::HasSubstr;

class PolicyCTest : public ::testing::Test {
 protected:
  gg_ledger* Ledger() {
    gg_ledger_options options = GG_LEDGER_OPTIONS_INIT;
    const std::string directory = ranks_.directory(0);
    options.accumulate = 1;
    options.daemon_dir = directory.c_str();
    gg_ledger* ledger = nullptr;
    gg_error error{};
    EXPECT_EQ(gg_ledger_create(&options, &ledger, &error), GG_OK) << error.message;
    return ledger;
  }

  static gg_window Window(gg_ledger* ledger) {
    gg_error error{};
    uint32_t closes = 0;
    EXPECT_EQ(gg_ledger_micro_step_begin(ledger, GG_LAST_YES, &closes, &error), GG_OK) << error.message;
    EXPECT_EQ(gg_ledger_micro_step_end(ledger, &error), GG_OK) << error.message;
    gg_window_end end = GG_WINDOW_END_INIT;
    end.stepped = end.min_micro_steps = end.max_micro_steps = 1;
    gg_window window = GG_WINDOW_INIT;
    EXPECT_EQ(gg_ledger_window_close(ledger, &end, &window, &error), GG_OK) << error.message;
    return window;
  }

  static gg_policy Offered(gg_ledger* ledger) {
    gg_policy policy = GG_POLICY_INIT;
    EXPECT_EQ(gg_ledger_policy_offered(ledger, &policy, nullptr), GG_OK);
    return policy;
  }
  static gg_policy InForce(gg_ledger* ledger) {
    gg_policy policy = GG_POLICY_INIT;
    EXPECT_EQ(gg_ledger_policy_get(ledger, &policy, nullptr), GG_OK);
    return policy;
  }

  static link::PolicyFrame Full(uint64_t version) {
    link::PolicyFrame frame = Policy(version, GG_MODE_WINDOW);
    frame.wire_type = GG_WIRE_BF16;
    frame.reshard = GG_RESHARD_WINDOW;
    frame.enforcement = GG_ENFORCEMENT_AUDIT;
    frame.bucket_bytes = 8192;
    return Sealed(frame);
  }

  PolicyRanks ranks_{1};
};

TEST_F(PolicyCTest, OfferedAnsweredAndInForce) {
  gg_ledger* const ledger = Ledger();
  EXPECT_EQ(Offered(ledger).version, 0u);
  EXPECT_EQ(InForce(ledger).version, 0u);
  ranks_.Offer(0, Full(5));
  gg_window window = Window(ledger);
  EXPECT_EQ(window.policy_offered, 1u);
  EXPECT_EQ(window.policy_adopted, 0u);
  const gg_policy offered = Offered(ledger);
  EXPECT_EQ(offered.struct_size, sizeof(gg_policy));
  EXPECT_EQ(offered.version, 5u);
  EXPECT_EQ(offered.mode, GG_MODE_WINDOW);
  EXPECT_EQ(offered.wire, GG_WIRE_BF16);
  EXPECT_EQ(offered.reshard, GG_RESHARD_WINDOW);
  EXPECT_EQ(offered.enforcement, GG_ENFORCEMENT_AUDIT);
  EXPECT_EQ(offered.bucket_bytes, 8192u);
  EXPECT_EQ(offered.adopted_window, 0u);
  EXPECT_EQ(gg_ledger_policy_answer(ledger, 5, GG_REJECTION_NONE, nullptr), GG_OK);
  EXPECT_EQ(Offered(ledger).version, 0u);
  window = Window(ledger);
  EXPECT_EQ(window.policy_offered, 0u);
  EXPECT_EQ(window.policy_adopted, 1u);
  EXPECT_EQ(InForce(ledger).version, 5u);
  EXPECT_EQ(InForce(ledger).bucket_bytes, 8192u);
  EXPECT_EQ(InForce(ledger).adopted_window, 2u);
  EXPECT_EQ(gg_ledger_enforcement(ledger), static_cast<gg_enforcement>(GG_ENFORCEMENT_AUDIT));
  gg_ledger_destroy(ledger);
}

TEST_F(PolicyCTest, WrongAnswersChangeNothing) {
  gg_ledger* const ledger = Ledger();
  ranks_.Offer(0, Full(5));
  Window(ledger);
  gg_error error{};
  for (const gg_rejection rejection : {9u, 77u, ~0u}) {
    EXPECT_EQ(gg_ledger_policy_answer(ledger, 5, rejection, &error), GG_INVALID_ARGUMENT);
    EXPECT_THAT(error.message, HasSubstr("rejection is " + std::to_string(rejection) + "; use a GG_REJECTION_ constant"));
  }
  EXPECT_EQ(gg_ledger_policy_answer(ledger, 4, GG_REJECTION_NONE, &error), GG_FAILED_PRECONDITION);
  EXPECT_THAT(error.message, HasSubstr("policy version 4 is not the one that waits"));
  EXPECT_EQ(Offered(ledger).version, 5u);
  EXPECT_EQ(gg_ledger_policy_answer(ledger, 5, GG_REJECTION_FIXED, &error), GG_OK);
  EXPECT_EQ(gg_ledger_policy_answer(ledger, 5, GG_REJECTION_NONE, &error), GG_FAILED_PRECONDITION);
  EXPECT_EQ(Window(ledger).policy_adopted, 0u);
  EXPECT_EQ(Window(ledger).policy_adopted, 0u);
  gg_ledger_destroy(ledger);
}

TEST_F(PolicyCTest, NullIsRefused) {
  gg_policy policy = GG_POLICY_INIT;
  EXPECT_EQ(gg_ledger_policy_offered(nullptr, &policy, nullptr), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_ledger_policy_get(nullptr, &policy, nullptr), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_ledger_policy_answer(nullptr, 1, GG_REJECTION_NONE, nullptr), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_policy_get(nullptr, &policy, nullptr), GG_INVALID_ARGUMENT);
  gg_ledger* const ledger = Ledger();
  EXPECT_EQ(gg_ledger_policy_offered(ledger, nullptr, nullptr), GG_INVALID_ARGUMENT);
  EXPECT_EQ(gg_ledger_policy_get(ledger, nullptr, nullptr), GG_INVALID_ARGUMENT);
  policy.struct_size = 3;
  EXPECT_EQ(gg_ledger_policy_get(ledger, &policy, nullptr), GG_INVALID_ARGUMENT);
  gg_ledger_destroy(ledger);
}

TEST_F(PolicyCTest, ClosedLedgersTakeNoAnswer) {
  gg_ledger* const ledger = Ledger();
  ranks_.Offer(0, Full(5));
  Window(ledger);
  EXPECT_EQ(gg_ledger_close(ledger, nullptr), GG_OK);
  gg_error error{};
  EXPECT_EQ(gg_ledger_policy_answer(ledger, 5, GG_REJECTION_NONE, &error), GG_FAILED_PRECONDITION);
  EXPECT_THAT(error.message, HasSubstr("closed"));
  EXPECT_EQ(InForce(ledger).version, 0u) << "reads stay";
  gg_ledger_destroy(ledger);
}

TEST_F(PolicyCTest, AForkedChildsLedgerTakesNoAnswer) {
  gg_ledger* const ledger = Ledger();
  ranks_.Offer(0, Full(5));
  Window(ledger);
  const pid_t child = fork();
  if (child == 0) {
    gg_policy policy = GG_POLICY_INIT;
    const bool refused = gg_ledger_policy_answer(ledger, 5, GG_REJECTION_NONE, nullptr) == GG_FAILED_PRECONDITION;
    const bool readable = gg_ledger_policy_get(ledger, &policy, nullptr) == GG_OK;
    _exit(refused && readable ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(gg_ledger_policy_answer(ledger, 5, GG_REJECTION_NONE, nullptr), GG_OK) << "the parent goes on";
  gg_ledger_destroy(ledger);
}

// Programs built against earlier versions: gg_window had 48 bytes before 1.3, and what lies behind is not touched.
TEST_F(PolicyCTest, StructsOfFormerSizesWork) {
  gg_ledger* const ledger = Ledger();
  ranks_.Offer(0, Full(5));
  uint32_t closes = 0;
  ASSERT_EQ(gg_ledger_micro_step_begin(ledger, GG_LAST_YES, &closes, nullptr), GG_OK);
  ASSERT_EQ(gg_ledger_micro_step_end(ledger, nullptr), GG_OK);
  gg_window_end end = GG_WINDOW_END_INIT;
  end.stepped = end.min_micro_steps = end.max_micro_steps = 1;
  static_assert(offsetof(gg_window, policy_adopted) == 48);
  gg_window window;
  std::memset(&window, 0x5a, sizeof(window));
  window.struct_size = 48;
  ASSERT_EQ(gg_ledger_window_close(ledger, &end, &window, nullptr), GG_OK);
  EXPECT_EQ(window.struct_size, 48u);
  EXPECT_EQ(window.micro_steps, 1u);
  EXPECT_EQ(window.item_count, 0);
  EXPECT_EQ(window.policy_adopted, 0x5a5a5a5au) << "untouched";
  EXPECT_EQ(window.policy_offered, 0x5a5a5a5au);

  struct Larger {
    gg_policy policy;
    uint64_t more;
  } larger;
  std::memset(&larger, 0x5a, sizeof(larger));
  larger.policy.struct_size = sizeof(larger);
  ASSERT_EQ(gg_ledger_policy_offered(ledger, &larger.policy, nullptr), GG_OK);
  EXPECT_EQ(larger.policy.version, 5u);
  gg_policy smaller;
  std::memset(&smaller, 0x5a, sizeof(smaller));
  smaller.struct_size = offsetof(gg_policy, version);
  ASSERT_EQ(gg_ledger_policy_offered(ledger, &smaller, nullptr), GG_OK);
  EXPECT_EQ(smaller.bucket_bytes, 8192u);
  EXPECT_EQ(smaller.version, 0x5a5a5a5a5a5a5a5aull);
  gg_ledger_destroy(ledger);
}

TEST_F(PolicyCTest, ASessionTellsItsPolicyAndBuckets) {
  const std::string directory = ranks_.directory(0);
  float memory[2][1024] = {};
  gg_tensor tensors[2] = {};
  for (int i = 0; i < 2; ++i) {
    tensors[i].name = i == 0 ? "a" : "b";
    tensors[i].element_count = 1024;
    tensors[i].dtype = GG_FLOAT32;
    tensors[i].gradient = memory[i];
  }
  gg_session_options options = GG_SESSION_OPTIONS_INIT;
  options.accumulate = 1;
  options.daemon_dir = directory.c_str();
  options.tensors = tensors;
  options.tensor_count = 2;
  gg_session* session = nullptr;
  gg_error error{};
  ASSERT_EQ(gg_session_create(&options, &session, &error), GG_OK) << error.message;
  EXPECT_EQ(gg_session_bucket_count(session), 1u);
  link::PolicyFrame frame = Policy(5, GG_MODE_EVERY_MICRO_STEP);
  frame.bucket_bytes = 4096;
  ranks_.Offer(0, Sealed(frame));
  gg_window window = GG_WINDOW_INIT;
  for (uint32_t i = 0; i < 2; ++i) {
    uint32_t boundary = 0;
    ASSERT_EQ(gg_micro_step_begin(session, nullptr, &boundary, &error), GG_OK) << error.message;
    ASSERT_EQ(gg_micro_step_end(session, &error), GG_OK) << error.message;
    ASSERT_EQ(gg_step_begin(session, &window, &error), GG_OK) << error.message;
    EXPECT_EQ(window.policy_adopted, i);
    EXPECT_EQ(window.policy_offered, 0u) << "sessions answer by themselves";
  }
  gg_policy policy = GG_POLICY_INIT;
  ASSERT_EQ(gg_policy_get(session, &policy, &error), GG_OK) << error.message;
  EXPECT_EQ(policy.version, 5u);
  EXPECT_EQ(policy.mode, GG_MODE_EVERY_MICRO_STEP);
  EXPECT_EQ(policy.bucket_bytes, 4096u);
  EXPECT_EQ(policy.adopted_window, 2u);
  EXPECT_EQ(gg_session_bucket_count(session), 2u);
  gg_session_destroy(session);
}

}  // namespace
}  // namespace gradgate::test
