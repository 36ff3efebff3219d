// Starts the real binary.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gradgate/v1/stats.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/daemon/fake_page.h"
#include "tests/daemon/fake_trainer.h"
#include "tests/daemon/main/process.h"

namespace gradgate {
namespace {

using testing::FakePage;
using testing::FakeTrainer;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::Process;
using Kind = FakeTrainer::Answer::Kind;

class GradgatedTest : public ::testing::Test {
 protected:
  GradgatedTest() {
    std::string pattern = ::testing::TempDir() + "/gg_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~GradgatedTest() override {
    unlink(shim().c_str());
    unlink(api().c_str());
    rmdir(directory_.c_str());
  }

  std::string shim() const { return directory_ + "/shim.sock"; }
  std::string api() const { return directory_ + "/api.sock"; }

  std::unique_ptr<Process> Run(std::vector<std::string> flags, const std::vector<std::string>& environment = {}) {
    flags.insert(flags.begin(), GRADGATED);
    return std::make_unique<Process>(flags, environment);
  }
  std::unique_ptr<Process> RunHere(std::vector<std::string> flags = {}) {
    flags.push_back("--dir=" + directory_);
    flags.push_back("--metrics_listen=127.0.0.1:0");
    return Run(flags);
  }

  // Runs to the end and expects one line, and exit code 1.
  void ExpectFailure(const std::vector<std::string>& flags, const std::string& text,
                     const std::vector<std::string>& environment = {}) {
    const auto daemon = Run(flags, environment);
    const std::string said = daemon->ReadAll();
    EXPECT_EQ(daemon->Wait(), 1);
    EXPECT_THAT(said, HasSubstr(text));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }

  grpc::Status GetJobStats(const std::string& job, v1::GetJobStatsResponse& response) {
    const auto stub = v1::SyncStatsService::NewStub(grpc::CreateChannel("unix:" + api(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::GetJobStatsRequest request;
    request.set_job(job);
    return stub->GetJobStats(&context, request, &response);
  }

  std::string directory_;
};

TEST_F(GradgatedTest, SaysWhenAndWhereItIsReady) {
  const auto daemon = RunHere();
  EXPECT_THAT(daemon->ReadLine(), MatchesRegex("gradgated [0-9.]+ ready: shim " + shim() + ", api " + api() +
                                               ", metrics http://127.0.0.1:[1-9][0-9]*/metrics"));
}

TEST_F(GradgatedTest, CountsFromHelloToGrpc) {
  const auto daemon = RunHere();
  ASSERT_THAT(daemon->ReadLine(), HasSubstr("ready"));
  FakePage page({});
  FakeTrainer trainer(shim());
  ASSERT_TRUE(trainer.SendHello(page.fd()));
  ASSERT_EQ(trainer.Receive().kind, Kind::kWelcome);
  page.page().totals.step_count.store(12);
  v1::GetJobStatsResponse response;
  const grpc::Status status = GetJobStats("job", response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.totals().step_count(), 12);
  trainer.Disconnect();
  EXPECT_THAT(daemon->ReadLine(), HasSubstr("gradgated: lost rank 0 of job \"job\""));
}

TEST_F(GradgatedTest, RequestThatIsNoTextWritesNothingIntoTheLog) {
  const auto daemon = RunHere();
  ASSERT_THAT(daemon->ReadLine(), HasSubstr(" ready: "));
  v1::GetJobStatsResponse response;
  EXPECT_FALSE(GetJobStats("\xff", response).ok());
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->ReadAll(), "");
  EXPECT_EQ(daemon->Wait(), 0);
}

TEST_F(GradgatedTest, SignalsEndItCleanly) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    const auto daemon = RunHere();
    ASSERT_THAT(daemon->ReadLine(), HasSubstr("ready"));
    FakeTrainer silent(shim());
    daemon->Signal(signal_number);
    EXPECT_EQ(daemon->Wait(), 0);
    EXPECT_NE(access(shim().c_str(), F_OK), 0);
    EXPECT_NE(access(api().c_str(), F_OK), 0);
    EXPECT_EQ(silent.Receive().kind, Kind::kEnd);
  }
}

TEST_F(GradgatedTest, OpenStreamDoesNotHoldUpTheEnd) {
  const auto daemon = RunHere();
  ASSERT_THAT(daemon->ReadLine(), HasSubstr("ready"));
  FakePage page({});
  page.CloseWindow();
  FakeTrainer trainer(shim());
  ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
  const auto stub = v1::SyncStatsService::NewStub(grpc::CreateChannel("unix:" + api(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::WatchWindowsRequest request;
  request.set_job("job");
  request.set_first_window_index(0);
  const auto reader = stub->WatchWindows(&context, request);
  v1::WatchWindowsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  daemon->Signal(SIGTERM);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(daemon->Wait(), 0);
}

TEST_F(GradgatedTest, KilledOneIsReplacedAndCountsGoOn) {
  FakePage page({});
  {
    const auto killed = RunHere();
    ASSERT_THAT(killed->ReadLine(), HasSubstr("ready"));
    FakeTrainer trainer(shim());
    ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
    killed->Signal(SIGKILL);
    EXPECT_EQ(killed->Wait(), 128 + SIGKILL);
  }
  ASSERT_EQ(access(shim().c_str(), F_OK), 0) << "both files are stale now";
  ASSERT_EQ(access(api().c_str(), F_OK), 0);
  page.page().totals.step_count.store(33);
  const auto daemon = RunHere();
  ASSERT_THAT(daemon->ReadLine(), HasSubstr("ready"));
  FakeTrainer trainer(shim());
  ASSERT_TRUE(trainer.SendHello(page.fd()) && trainer.Receive().kind == Kind::kWelcome);
  v1::GetJobStatsResponse response;
  ASSERT_TRUE(GetJobStats("job", response).ok());
  EXPECT_EQ(response.totals().step_count(), 33);
}

TEST_F(GradgatedTest, SecondOneIsRefusedInOneLine) {
  const auto first = RunHere();
  ASSERT_THAT(first->ReadLine(), HasSubstr("ready"));
  ExpectFailure({"--dir=" + directory_, "--metrics_listen="}, "another gradgated listens on " + shim());
  EXPECT_TRUE(FakeTrainer(shim()).connected());
  v1::GetJobStatsResponse response;
  EXPECT_EQ(GetJobStats("nobody", response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GradgatedTest, DirectoryComesFromTheEnvironment) {
  const auto daemon = Run({"--metrics_listen="}, {"GRADGATE_DIR=" + directory_});
  const std::string line = daemon->ReadLine();
  EXPECT_THAT(line, HasSubstr("shim " + shim()));
  EXPECT_EQ(line.find("metrics"), std::string::npos) << "none were asked for";
}

TEST_F(GradgatedTest, WrongEnvironmentIsOneLineAndExitCodeOne) {
  ExpectFailure({"--dir=/proc/nowhere"}, "cannot make directory /proc/nowhere");
  ExpectFailure({"--dir=/dev/null"}, "/dev/null is not a directory");
  ExpectFailure({"--dir=" + directory_, "--grpc_listen=0.0.0.0:0"}, "needs --tls_cert");
  ExpectFailure({"--dir=" + directory_, "--grpc_listen=nonsense"}, "\"nonsense\" is not host:port");
  ExpectFailure({"--dir=" + directory_, "--metrics_listen=256.1.1.1:1"}, "cannot serve metrics on 256.1.1.1:1");
  EXPECT_NE(access(shim().c_str(), F_OK), 0) << "what was bound is released";
  EXPECT_NE(access(api().c_str(), F_OK), 0);
}

TEST_F(GradgatedTest, WrongFlagsAreNamed) {
  ExpectFailure({"--no_such_flag=1"}, "no_such_flag");
  ExpectFailure({"serve"}, "\"serve\" is no flag; see gradgated --help");
  ExpectFailure({"--max_clients=0"}, "--max_clients is 0, must be at least 1");
  ExpectFailure({"--poll_interval=1us"}, "--poll_interval is 1us, must be between 1ms and 10s");
}

std::set<std::string> FlagsOf(const std::string& text, const std::string& pattern) {
  std::set<std::string> names;
  const std::regex flag(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), flag), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

TEST_F(GradgatedTest, HelpExplainsEveryFlag) {
  const auto daemon = Run({"--help"});
  const std::string help = daemon->ReadAll();
  EXPECT_EQ(daemon->Wait(), 0);
  const std::set<std::string> flags = FlagsOf(help, "\n  --([a-z_]+)[^\n]*\n      [A-Z]");
  EXPECT_EQ(flags, FlagsOf(help, "\n  --([a-z_]+)")) << "each has a text";
  EXPECT_GE(flags.size(), 15u);
}

TEST_F(GradgatedTest, VersionIsPrinted) {
  const auto daemon = Run({"--version"});
  EXPECT_THAT(daemon->ReadAll(), MatchesRegex("gradgated [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_EQ(daemon->Wait(), 0);
}

}  // namespace
}  // namespace gradgate
