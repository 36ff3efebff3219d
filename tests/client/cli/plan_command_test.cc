// The real binary: with numbers and no daemon, and for a job against a daemon's own server.

#include "absl/strings/str_cat.h"
#include "daemon/node/clock.h"
#include "daemon/rpc/server.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gradgate/v1/plan.pb.h"
#include "gtest/gtest.h"
#include "tests/client/cli/child_process.h"
#include "tests/client/fake_daemon.h"
#include "tests/daemon/fake_page.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using testing::FakePage;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TempDirectory;

struct Result {
  int exit_code;
  std::string output, error;
};

Result Ctl(std::vector<std::string> arguments, const std::vector<std::string>& environment = {}) {
  arguments.insert(arguments.begin(), GRADGATECTL);
  ChildProcess child(arguments, environment);
  const int exit_code = child.Wait();
  return {exit_code, child.output(), child.error()};
}

std::vector<std::string> Cosmos(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"plan",         "--ranks=16", "--nodes=2",        "--shards=8",
                                        "--accumulate", "4",          "--compute-s=10.8", "--sync-s=11.4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

v1::PlanSyncResponse Parsed(const Result& result) {
  v1::PlanSyncResponse response;
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(result.output, &response).ok()) << result.output;
  return response;
}

TEST(PlanAlone, NeedsNoDaemonAndNoDirectory) {
  const Result result = Ctl(Cosmos(), {"GRADGATE_DIR=/nonexistent"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.error, "");
  EXPECT_THAT(result.output,
              AllOf(StartsWith("from the given numbers: 16 ranks on 2 nodes"), HasSubstr("1.63x"), HasSubstr("54.6"),
                    HasSubstr("change it with: gradgatectl policy set JOB mode=window_replica enforcement=enforce")));
}

TEST(PlanAlone, JsonIsTheWholeAnswer) {
  const v1::PlanSyncResponse response =
      Parsed(Ctl(Cosmos({"--json", "--what-if", "accumulate=8", "--what-if=shards=8,sync-s=1"})));
  ASSERT_EQ(response.plan().modes_size(), 5);
  EXPECT_DOUBLE_EQ(response.plan().modes(0).step_seconds(), 88.8);
  EXPECT_DOUBLE_EQ(response.plan().modes(1).step_seconds(), 54.6);
  EXPECT_TRUE(response.plan().modes(1).best());
  EXPECT_EQ(response.plan().sharding(), v1::SHARDING_HYBRID);
  ASSERT_EQ(response.what_ifs_size(), 2);
  EXPECT_EQ(response.what_ifs(0).label(), "accumulate=8");
  EXPECT_EQ(response.what_ifs(1).label(), "shards=8 sync-s=1");
  EXPECT_DOUBLE_EQ(response.what_ifs(1).modes(1).step_seconds(), 44.2);
}

TEST(PlanAlone, ThePresentModeIsWhatOthersAreComparedWith) {
  const v1::PlanSyncResponse response = Parsed(Ctl(Cosmos({"--json", "--mode", "window,kept"})));
  EXPECT_TRUE(response.plan().modes(4).present());
  EXPECT_NEAR(response.plan().modes(0).speedup(), 54.6 / 88.8, 1e-9);
}

TEST(PlanAlone, WrongNumbersAreExitCode2) {
  const std::string help = "; gradgatectl plan --help tells how it is called";
  const struct {
    std::vector<std::string> arguments;
    std::string error;
  } kCases[] = {
      {{"plan"},
       "name a JOB, or give numbers: at least --ranks, --accumulate, --compute-s and --sync-s; gradgatectl plan --help lists "
       "all"},
      {Cosmos({"--shards=3"}), "ranks is 16, which is no multiple of shards, 3; give shards that divide it"},
      {Cosmos({"--params=-1"}), "--params: \"-1\" is not a whole number from 1 to 1e+13" + help},
      {Cosmos({"--compute-s=nan"}), "--compute-s: \"nan\" is not a number from 1e-09 to 86400" + help},
      {Cosmos({"--ranks=16385"}), "--ranks: \"16385\" is not a whole number from 1 to 16384" + help},
      {Cosmos({"--what-if=ranks=99999"}), "--what-if: ranks: \"99999\" is not a whole number from 1 to 16384" + help},
      {Cosmos({"--what-if", "ranks=17"}),
       "what if ranks=17: ranks is 17, which is no multiple of nodes, 3; give nodes that divide it"},
      {Cosmos({"--what-if", "link-gbit=400"}),
       "what if link-gbit=400: what \"link-gbit=400\" would give can be told only from the present params and link-gbit "
       "(inside one node: "
       "intra-gbit); give them too"},
      {{"plan", "--ranks=2", "--accumulate=4"}, "compute-s, the seconds of a micro-step's computing, is not known; give it"},
      {Cosmos({"--mode=often"}),
       "--mode: \"often\" is not every_micro_step, window_replica or window, the last two with \",kept\" where parameters are" +
           help},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> arguments;  // a later flag stands for an earlier one of the same name
    for (const std::string& argument : c.arguments) {
      const std::string name = argument.substr(0, argument.find('='));
      std::erase_if(arguments, [&](const std::string& a) { return name != "--what-if" && a.substr(0, a.find('=')) == name; });
      arguments.push_back(argument);
    }
    const Result result = Ctl(arguments);
    EXPECT_EQ(result.exit_code, 2) << c.error;
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(result.error, "gradgatectl: " + c.error + "\n");
  }
  EXPECT_EQ(Ctl(Cosmos({"--what-if=speed=1"})).exit_code, 2);
}

class PlanOfAJob : public ::testing::Test {
 protected:
  PlanOfAJob() {
    auto server = RpcServer::Start({.socket_path = directory_.path() + "/api.sock"}, &registry_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // c = 0.01 s, s = 0.005 s.
  void CloseWindows(FakePage& page, int times) {
    for (int i = 0; i < times; ++i) {
      page::WindowRecord record = FakePage::MakeRecord(page.page().ring.window_next.load());
      record.suppressed_median_ns = 10'000'000;
      record.boundary_ns = 15'000'000;
      page.CloseWindow(record);
    }
  }

  Result Ask(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--dir", directory_.path()});
    return Ctl(std::move(arguments));
  }

  TempDirectory directory_;
  SystemClock clock_;
  Registry registry_{RegistryOptions{}, &clock_};
  std::unique_ptr<RpcServer> server_;
};

TEST_F(PlanOfAJob, IsMadeFromItsMeasurements) {
  FakePage page0({.rank = 0}), page1({.rank = 1});
  ASSERT_TRUE(registry_.Register(1000, page0.Map()).ok());
  ASSERT_TRUE(registry_.Register(1000, page1.Map()).ok());
  CloseWindows(page0, 3);
  CloseWindows(page1, 3);
  const Result early = Ask({"plan", "job"});
  EXPECT_EQ(early.exit_code, 1);
  EXPECT_THAT(early.error, HasSubstr("the job has closed 2 full windows of its present mode"));
  CloseWindows(page0, 3);
  CloseWindows(page1, 3);
  const v1::PlanSyncResponse response = Parsed(Ask({"plan", "job", "--json", "--what-if=accumulate=8"}));
  EXPECT_EQ(response.job().job_name(), "job");
  EXPECT_NEAR(response.plan().numbers().compute_seconds(), 0.01, 1e-9);
  EXPECT_NEAR(response.plan().numbers().sync_seconds(), 0.005, 1e-9);
  EXPECT_NEAR(response.plan().numbers().other_seconds(), 0.055, 1e-6);  // windows begin 0.1 s apart
  EXPECT_EQ(response.what_ifs_size(), 1);
  EXPECT_THAT(Ask({"plan", "job"}).output,
              AllOf(StartsWith("job  run 11111111111111111111111111111111: 2 ranks"), HasSubstr("measured")));
}

TEST_F(PlanOfAJob, ThatIsNotThereIsExitCode4) {
  const Result result = Ask({"plan", "other"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.error, HasSubstr("no job \"other\""));
}

TEST_F(PlanOfAJob, WithoutADaemonIsExitCode3) {
  EXPECT_EQ(Ctl({"plan", "job", "--dir", "/nonexistent"}).exit_code, 3);
  EXPECT_EQ(Ctl({"plan", ""}).exit_code, 2);
}

}  // namespace
}  // namespace gradgate
