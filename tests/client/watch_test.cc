// SyncStatsClient::WatchWindows: how a watch ends.

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/sync_stats_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/samples.h"

namespace gradgate::client {
namespace {

using gradgate::testing::FakeDaemon;
using gradgate::testing::kLongestWait;
using gradgate::testing::SampleJob;
using gradgate::testing::SampleWindow;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kShort = absl::Milliseconds(100);
constexpr absl::Duration kLong = absl::Seconds(20);

v1::WatchWindowsResponse WindowMessage(int64_t index) {
  v1::WatchWindowsResponse message;
  *message.mutable_window() = SampleWindow(index);
  return message;
}

v1::WatchWindowsResponse EndMessage() {
  v1::WatchWindowsResponse message;
  *message.mutable_ended_job() = SampleJob("digits");
  return message;
}

class Watch : public ::testing::Test {
 protected:
  Watch() {
    daemon_.stats["digits"];
    daemon_.watch_script = {WindowMessage(5), WindowMessage(6)};
  }

  absl::Status Run(absl::Duration timeout, const WatchOptions& options = {}) {
    auto client = SyncStatsClient::Create({daemon_.target(), timeout, {}});
    EXPECT_TRUE(client.ok()) << client.status();
    return (*client)->WatchWindows("digits", options, [&](const v1::WatchWindowsResponse& message) {
      if (message.has_window()) seen_.push_back(message.window().window_index());
      if (seen_.size() == 2 && !both_.HasBeenNotified()) both_.Notify();
      return seen_.size() < stop_after_;
    });
  }

  FakeDaemon daemon_;
  std::vector<int64_t> seen_;
  size_t stop_after_ = 1000;
  absl::Notification both_;  // two windows were seen
};

TEST_F(Watch, EndsWithTheJob) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;  // the stream itself stays open
  daemon_.watch_script.push_back(EndMessage());
  EXPECT_EQ(Run(kLong), absl::OkStatus());
  EXPECT_THAT(seen_, ElementsAre(5, 6));
  EXPECT_EQ(daemon_.watch_first_index, -1);
}

TEST_F(Watch, AsksForTheFirstWindow) {
  daemon_.watch_script = {EndMessage()};
  WatchOptions options;
  options.first_window_index = 0;
  EXPECT_EQ(Run(kLong, options), absl::OkStatus());
  EXPECT_EQ(daemon_.watch_first_index, 0);
}

TEST_F(Watch, EndsWhenTheCallbackHasEnough) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;
  stop_after_ = 1;
  EXPECT_EQ(Run(kLong), absl::OkStatus());
  EXPECT_THAT(seen_, ElementsAre(5));
}

TEST_F(Watch, DaemonThatEndsItBeforeTheJobIsAnError) {
  const absl::Status status = Run(kLong);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ended the watch of job \"digits\" before the job ended"));
  EXPECT_THAT(seen_, ElementsAre(5, 6));
}

TEST_F(Watch, DaemonThatGoesAwayIsAnError) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;
  std::thread stopper([&] {
    EXPECT_TRUE(both_.WaitForNotificationWithTimeout(kLongestWait));
    daemon_.Stop();
  });
  const absl::Status status = Run(kLong);
  stopper.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST_F(Watch, CanBeCancelledFromAnotherThread) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;
  Cancellation cancel;
  WatchOptions options;
  options.cancel = &cancel;
  std::thread canceller([&] {
    EXPECT_TRUE(both_.WaitForNotificationWithTimeout(kLongestWait));
    cancel.Cancel();
  });
  const absl::Time start = absl::Now();
  const absl::Status status = Run(kLongestWait, options);
  canceller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("watch of job \"digits\" was cancelled"));
  EXPECT_LT(absl::Now() - start, kLongestWait / 2);
}

TEST_F(Watch, CancelledBeforeItBeginsEndsAtOnce) {
  daemon_.Hang();
  Cancellation cancel;
  cancel.Cancel();
  WatchOptions options;
  options.cancel = &cancel;
  EXPECT_EQ(Run(kLongestWait, options).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(seen_.empty());
}

TEST_F(Watch, EndsAtItsLimit) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;
  WatchOptions options;
  options.limit = 3 * kShort;
  const absl::Status status = Run(kLong, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "watch of job \"digits\" reached its limit of 300ms");
}

TEST_F(Watch, SilenceIsFineWhileTheDaemonAnswersQuestions) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;
  daemon_.after_hold = {WindowMessage(7), EndMessage()};
  std::thread releaser([&] {
    const absl::Time deadline = absl::Now() + kLongestWait;
    while (daemon_.list_jobs_calls < 2 && absl::Now() < deadline) std::this_thread::yield();
    daemon_.Release();
  });
  const absl::Status status = Run(absl::Milliseconds(250));
  releaser.join();
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_THAT(seen_, ElementsAre(5, 6, 7));
}

TEST_F(Watch, SilenceOfADaemonThatDoesNotAnswerEndsIt) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;
  std::thread hanger([&] {
    EXPECT_TRUE(both_.WaitForNotificationWithTimeout(kLongestWait));
    daemon_.Hang();
  });
  const absl::Status status = Run(absl::Milliseconds(250));
  hanger.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not answer within 250ms"));
}

}  // namespace
}  // namespace gradgate::client
