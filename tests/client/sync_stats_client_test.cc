#include "client/sync_stats_client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/samples.h"

namespace gradgate::client {
namespace {

using google::protobuf::util::MessageDifferencer;
using gradgate::testing::FakeDaemon;
using gradgate::testing::SampleJob;
using gradgate::testing::SampleStats;
using gradgate::testing::SampleWindow;
using gradgate::testing::TempDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kShort = absl::Milliseconds(200);
constexpr absl::Duration kLong = absl::Seconds(20);  // far beyond what anything here takes

std::unique_ptr<SyncStatsClient> Client(const std::string& target, absl::Duration timeout = kLong) {
  auto client = SyncStatsClient::Create({target, timeout, {}});
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

void ExpectStatus(const absl::Status& status, absl::StatusCode code, const ::testing::Matcher<std::string>& message) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), message);
}

// A daemon that is stopped in its tracks: the kernel accepts connections for it, nobody answers.
class FrozenDaemon {
 public:
  FrozenDaemon() : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path().c_str());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
  }
  ~FrozenDaemon() { close(fd_); }
  std::string path() const { return directory_.path() + "/api.sock"; }

 private:
  TempDirectory directory_;
  int fd_;
};

TEST(Create, RefusesATimeoutThatIsNone) {
  for (absl::Duration timeout : {absl::ZeroDuration(), -absl::Seconds(1), absl::InfiniteDuration()}) {
    const auto client = SyncStatsClient::Create({"unix:/a", timeout, {}});
    ExpectStatus(client.status(), absl::StatusCode::kInvalidArgument, HasSubstr("is not positive and finite"));
  }
}

TEST(Create, RefusesABadTarget) {
  ExpectStatus(SyncStatsClient::Create({"nonsense", kLong, {}}).status(), absl::StatusCode::kInvalidArgument,
               HasSubstr("target \"nonsense\" has no port"));
}

TEST(NoDaemon, MissingSocketIsNamedWithTheRemedy) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/api.sock";
  ExpectStatus(Client(path)->ListJobs().status(), absl::StatusCode::kUnavailable,
               "no gradgated at " + path + ": No such file or directory; start one with `gradgated`");
}

TEST(NoDaemon, LeftOverSocketFileIsToldApart) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/api.sock";
  std::ofstream(path) << "";
  ExpectStatus(Client(path)->GetJobStats("digits").status(), absl::StatusCode::kUnavailable,
               "no gradgated at " + path + ": Connection refused; start one with `gradgated`");
}

TEST(NoDaemon, FrozenDaemonEndsEachCallAtItsDeadline) {
  const FrozenDaemon daemon;
  const auto client = Client(daemon.path(), kShort);
  const auto late = AllOf(HasSubstr("gradgated at " + daemon.path() + " did not answer within 200ms"), HasSubstr("stopped"));
  ExpectStatus(client->ListJobs().status(), absl::StatusCode::kDeadlineExceeded, late);
  ExpectStatus(client->GetJobStats("digits").status(), absl::StatusCode::kDeadlineExceeded, late);
  ExpectStatus(client->ListWindows("digits").status(), absl::StatusCode::kDeadlineExceeded, late);
  ExpectStatus(client->WatchWindows("digits", {}, [](const auto&) { return true; }), absl::StatusCode::kDeadlineExceeded, late);
}

TEST(NoDaemon, HandlerThatNeverAnswersEndsAtTheDeadline) {
  FakeDaemon daemon;
  daemon.stats["digits"] = SampleStats("digits");
  daemon.Hang();
  const absl::Time start = absl::Now();
  ExpectStatus(Client(daemon.target(), kShort)->GetJobStats("digits").status(), absl::StatusCode::kDeadlineExceeded,
               HasSubstr("did not answer within 200ms"));
  EXPECT_GE(absl::Now() - start, kShort);
}

TEST(NoDaemon, StoppedDaemonThenANewOneIsFoundAgain) {
  auto daemon = std::make_unique<FakeDaemon>();
  const TempDirectory directory;
  const std::string path = directory.path() + "/api.sock";
  ASSERT_EQ(symlink(daemon->socket_path().c_str(), path.c_str()), 0);
  const auto client = Client(path);
  EXPECT_TRUE(client->ListJobs().ok());
  daemon.reset();
  ExpectStatus(client->ListJobs().status(), absl::StatusCode::kUnavailable, HasSubstr("no gradgated at " + path));

  FakeDaemon next;
  next.jobs = {SampleJob("after")};
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(symlink(next.socket_path().c_str(), path.c_str()), 0);
  const absl::Time deadline = absl::Now() + kLong;
  auto jobs = client->ListJobs();  // until gRPC's back-off lets it try again
  while (!jobs.ok() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
    jobs = client->ListJobs();
  }
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_EQ(jobs->jobs(0).job_name(), "after");
}

TEST(Errors, TheDaemonsOwnKeepCodeAndMessage) {
  FakeDaemon daemon;
  daemon.fail = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "64 watchers are the limit");
  ExpectStatus(Client(daemon.target())->ListJobs().status(), absl::StatusCode::kResourceExhausted,
               "gradgated at " + daemon.socket_path() + ": 64 watchers are the limit");
}

TEST(Errors, AnotherServiceIsNotTakenForADaemon) {
  FakeDaemon daemon;
  daemon.fail = grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "");
  ExpectStatus(Client(daemon.target())->ListJobs().status(), absl::StatusCode::kUnimplemented, HasSubstr("is no gradgated"));
}

TEST(MissingJob, ListsTheKnownOnesOnce) {
  FakeDaemon daemon;
  daemon.jobs = {SampleJob("digits"), SampleJob("resnet"), SampleJob("digits")};
  const std::string expected = "no job \"digit\" at " + daemon.socket_path() + "; known jobs: digits, resnet";
  const auto client = Client(daemon.target());
  ExpectStatus(client->GetJobStats("digit").status(), absl::StatusCode::kNotFound, expected);
  ExpectStatus(client->ListWindows("digit").status(), absl::StatusCode::kNotFound, expected);
  ExpectStatus(client->WatchWindows("digit", {}, [](const auto&) { return true; }), absl::StatusCode::kNotFound, expected);
}

TEST(MissingJob, SaysThatThereIsNone) {
  FakeDaemon daemon;
  ExpectStatus(Client(daemon.target())->GetJobStats("digits").status(), absl::StatusCode::kNotFound,
               HasSubstr("it knows no job yet"));
}

TEST(MissingJob, NamesAtMostTen) {
  FakeDaemon daemon;
  for (int i = 0; i < 11; ++i) daemon.jobs.push_back(SampleJob(absl::StrCat("job", i)));
  ExpectStatus(Client(daemon.target())->GetJobStats("x").status(), absl::StatusCode::kNotFound,
               AllOf(HasSubstr("job9 and more"), Not(HasSubstr("job10"))));
}

TEST(MissingJob, EmptyNameIsRefusedUnasked) {
  const auto client = Client("/nowhere/api.sock");
  ExpectStatus(client->GetJobStats("").status(), absl::StatusCode::kInvalidArgument, HasSubstr("job name is empty"));
  ExpectStatus(client->ListWindows("").status(), absl::StatusCode::kInvalidArgument, HasSubstr("job name is empty"));
  ExpectStatus(client->WatchWindows("", {}, [](const auto&) { return true; }), absl::StatusCode::kInvalidArgument,
               HasSubstr("job name is empty"));
}

TEST(GetJobStats, GivesTheWholeAnswer) {
  FakeDaemon daemon;
  daemon.stats["digits"] = SampleStats("digits");
  const auto stats = Client(daemon.target())->GetJobStats("digits");
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*stats, SampleStats("digits")));
}

class Paging : public ::testing::Test {
 protected:
  Paging() {
    daemon_.stats["digits"];
    for (int i = 0; i < 7; ++i) {
      daemon_.jobs.push_back(SampleJob(absl::StrCat("job", i)));
      daemon_.windows.push_back(SampleWindow(i));
    }
    daemon_.max_page_size = 3;
  }

  FakeDaemon daemon_;
};

TEST_F(Paging, GoesOnToTheLastPage) {
  const auto jobs = Client(daemon_.target())->ListJobs();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->jobs_size(), 7);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(jobs->jobs(i).job_name(), absl::StrCat("job", i));
  EXPECT_EQ(jobs->next_page_token(), "");
  EXPECT_EQ(daemon_.list_jobs_calls, 3);
}

TEST_F(Paging, StopsAtTheLimit) {
  const auto windows = Client(daemon_.target())->ListWindows("digits", {4, true});
  ASSERT_TRUE(windows.ok()) << windows.status();
  ASSERT_EQ(windows->windows_size(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(windows->windows(i).window_index(), 6 - i);
  EXPECT_EQ(windows->next_page_token(), "4");
  EXPECT_EQ(daemon_.list_windows_calls, 2);
}

TEST_F(Paging, LimitBeyondTheEndGivesAll) {
  const auto windows = Client(daemon_.target())->ListWindows("digits", {1000000, false});
  ASSERT_TRUE(windows.ok()) << windows.status();
  EXPECT_EQ(windows->windows_size(), 7);
  EXPECT_EQ(windows->next_page_token(), "");
}

TEST_F(Paging, NegativeLimitIsRefused) {
  const auto client = Client(daemon_.target());
  ExpectStatus(client->ListJobs(-1).status(), absl::StatusCode::kInvalidArgument, HasSubstr("limit -1 is negative"));
  ExpectStatus(client->ListWindows("digits", {-1, false}).status(), absl::StatusCode::kInvalidArgument,
               HasSubstr("limit -1 is negative"));
}

TEST_F(Paging, PageThatIsItsOwnSuccessorEndsInAnError) {
  daemon_.repeat_page_token = true;
  ExpectStatus(Client(daemon_.target())->ListWindows("digits").status(), absl::StatusCode::kInternal,
               HasSubstr("its own successor"));
}

}  // namespace
}  // namespace gradgate::client
