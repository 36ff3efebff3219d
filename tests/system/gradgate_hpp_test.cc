// gradgate.hpp over the real library, in one process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "gradgate/gradgate.hpp"

namespace {

using testing::AllOf;
using testing::HasSubstr;

const gg_tensor kTensors[] = {gradgate::View<float>("a", 3), gradgate::View<double>("b", 2)};

gradgate::Session Alone(gradgate::SessionOptions options = {}) {
  options.daemon_dir = "";
  return gradgate::Session(options, kTensors);
}

template <typename Call>
gradgate::Error Failure(Call call) {
  try {
    call();
  } catch (const gradgate::Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {GG_OK, ""};
}

TEST(Abi, RefusesAnotherMajorAndAnOlderMinorNamingBoth) {
  EXPECT_NO_THROW(gradgate::CheckAbi());
  EXPECT_NO_THROW(gradgate::CheckAbi(GG_ABI_MAJOR << 16 | (GG_ABI_MINOR + 1)));
  const gradgate::Error error = Failure([] { gradgate::CheckAbi((GG_ABI_MAJOR + 6) << 16 | 5); });
  EXPECT_EQ(error.code(), GG_FAILED_PRECONDITION);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(GG_ABI_MAJOR + 6) + ".5"),
                                  HasSubstr(std::to_string(GG_ABI_MAJOR) + "." + std::to_string(GG_ABI_MINOR))));
  EXPECT_THROW(gradgate::CheckAbi((GG_ABI_MAJOR << 16 | GG_ABI_MINOR) - 1), gradgate::Error);
}

TEST(Session, AccumulatesAndSteps) {
  gradgate::Session session = Alone({.accumulate = 2});
  for (int step = 0; step < 2; ++step) {
    auto micro = session.micro_step();
    EXPECT_EQ(micro.boundary(), step == 1);
    session.gradient<float>(0)[1] += 4;
    session.gradient<double>(1)[0] += 8;
    micro.gradient_ready(1);
    micro.gradient_ready(0);
  }
  const gg_window window = session.step();
  EXPECT_EQ(window.kind, GG_WINDOW_FULL);
  EXPECT_EQ(window.micro_steps, 2u);
  EXPECT_THAT(session.gradient<float>(0), testing::ElementsAre(0, 8, 0));
  EXPECT_THAT(session.gradient<double>(1), testing::ElementsAre(16, 0));
  EXPECT_EQ(session.stats().steps, 1u);
  EXPECT_EQ(session.stats().micro_steps, 2u);
  session.close();
}

TEST(Session, ItemsDivideTheSum) {
  gradgate::Session session = Alone({.accumulate = 2, .divide = GG_DIVIDE_ITEMS});
  for (const int64_t items : {3, 5}) {
    auto micro = session.micro_step({.items = items});
    session.gradient<float>(0)[0] += static_cast<float>(items) * 2;
  }
  EXPECT_EQ(session.step().item_count, 8);
  EXPECT_EQ(session.gradient<float>(0)[0], 2);
}

TEST(Session, OwnMemoryIsUsed) {
  std::vector<float> mine(4);
  const gg_tensor tensors[] = {gradgate::Own("mine", std::span<float>(mine))};
  gradgate::Session session({.daemon_dir = ""}, tensors);
  EXPECT_EQ(session.gradient<float>(0).data(), mine.data());
  EXPECT_EQ(session.gradient<float>(0).size(), 4u);
}

TEST(Session, WrongTensorOrTypeIsTold) {
  const gradgate::Session session = Alone();
  EXPECT_EQ(Failure([&] { session.gradient<float>(2); }).code(), GG_INVALID_ARGUMENT);
  const gradgate::Error error = Failure([&] { session.gradient<double>(0); });
  EXPECT_EQ(error.code(), GG_INVALID_ARGUMENT);
  EXPECT_STREQ(error.what(), "tensor 0 was registered as float: ask for that");
}

TEST(Session, FlushTellsWhetherThereWasAPartialWindow) {
  gradgate::Session session = Alone({.accumulate = 4});
  EXPECT_FALSE(session.flush().has_value());
  session.micro_step().end();
  const std::optional<gg_window> window = session.flush();
  ASSERT_TRUE(window.has_value());
  EXPECT_EQ(window->kind, GG_WINDOW_PARTIAL);
}

TEST(Session, Moves) {
  gradgate::Session first = Alone();
  gradgate::Session second = std::move(first);
  second.micro_step().end();
  EXPECT_EQ(second.step().micro_steps, 1u);
}

TEST(Session, OptionsAreChecked) {
  const gradgate::Error error = Failure([] { Alone({.mode = 99}); });
  EXPECT_EQ(error.code(), GG_INVALID_ARGUMENT);
  EXPECT_STREQ(error.code_name(), "INVALID_ARGUMENT");
  EXPECT_THAT(error.what(), HasSubstr("99"));
}

TEST(Store, UrlIsChecked) {
  EXPECT_EQ(Failure([] { gradgate::Store({.url = "ftp://x"}); }).code(), GG_INVALID_ARGUMENT);
}

TEST(MicroStep, EndsWithItsScope) {
  gradgate::Session session = Alone({.accumulate = 4});
  { auto micro = session.micro_step(); }
  { auto micro = session.micro_step(); }
  EXPECT_EQ(session.step().micro_steps, 2u);
}

TEST(MicroStep, EndsOnce) {
  gradgate::Session session = Alone();
  {
    auto micro = session.micro_step();
    micro.end();
    micro.end();
  }
  EXPECT_EQ(session.step().micro_steps, 1u);
}

TEST(MicroStep, OneAtATime) {
  gradgate::Session session = Alone({.accumulate = 4});
  auto micro = session.micro_step();
  EXPECT_EQ(Failure([&] { session.micro_step(); }).code(), GG_FAILED_PRECONDITION);
  EXPECT_EQ(Failure([&] { session.step(); }).code(), GG_FAILED_PRECONDITION);
}

// As after a batch that did not fit into memory.
TEST(MicroStep, LeftByAnExceptionItCanBeTriedAgain) {
  gradgate::Session session = Alone({.accumulate = 2});
  session.micro_step().end();
  try {
    auto micro = session.micro_step();
    throw std::runtime_error("out of memory");
  } catch (const std::runtime_error&) {
  }
  session.micro_step().end();
  const gg_window window = session.step();
  EXPECT_EQ(window.micro_steps, 2u);
  EXPECT_EQ(window.kind, GG_WINDOW_FULL);
}

TEST(MicroStep, LeftByAnExceptionWithGradientsToldNothingGoesOn) {
  gradgate::Session session = Alone({.accumulate = 2});
  try {
    auto micro = session.micro_step();
    micro.gradient_ready(0);
    throw std::runtime_error("out of memory");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(Failure([&] { session.micro_step(); }).code(), GG_FAILED_PRECONDITION);
  EXPECT_EQ(Failure([&] { session.step(); }).code(), GG_FAILED_PRECONDITION);
}

// In a forked child every call fails, so ending the micro-step does too: not there and then, but in the next call.
TEST(MicroStep, FailureAtTheEndOfAScopeIsThrownByTheNextCall) {
  gradgate::Session session = Alone();
  const pid_t parent = getpid();
  pid_t child = -1;
  {
    auto micro = session.micro_step();
    child = fork();
  }
  if (getpid() != parent) {
    int told = 0;
    for (int i = 0; i < 2; ++i) {
      try {
        session.close();
      } catch (const gradgate::Error& error) {
        told += error.code() == GG_FAILED_PRECONDITION;
      }
    }
    _exit(told);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 2) << "once what was kept, once the call's own";
  EXPECT_EQ(session.step().micro_steps, 1u) << "the parent goes on";
}

TEST(MicroStep, GradientsAreToldOnce) {
  gradgate::Session session = Alone();
  auto micro = session.micro_step();
  micro.gradient_ready(0);
  EXPECT_EQ(Failure([&] { micro.gradient_ready(0); }).code(), GG_FAILED_PRECONDITION);
  EXPECT_EQ(Failure([&] { micro.gradient_ready(7); }).code(), GG_INVALID_ARGUMENT);
}

TEST(Log, ReceivesWarningsWithTheirReason) {
  std::vector<std::string> told;
  gradgate::Session session = Alone(
      {.accumulate = 2, .log = [&](gg_severity, std::string_view reason, std::string_view) { told.emplace_back(reason); }});
  session.micro_step().end();
  session.close();  // the window is open
  EXPECT_EQ(told.size(), 1u);
  EXPECT_EQ(session.stats().warnings, 1u);
}

}  // namespace
