// gradgatectl top and report, the real binary against a fake daemon: exit codes, streams, files, hostile names.

#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cli/child_process.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/samples.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SampleJob;
using testing::SampleStats;
using testing::SampleWindow;
using testing::TempDirectory;

constexpr char kEvil[] = "e\x1b]0;owned\x07<script>\u202e";

struct Result {
  int exit_code;
  std::string output, error;
};

class Seeing : public ::testing::Test {
 protected:
  Seeing() {
    daemon_.jobs = {SampleJob("digits")};
    // By name, and by what it is asked for after that.
    daemon_.stats["digits"] = SampleStats("digits");
    daemon_.stats[kKey] = SampleStats("digits");
    for (int i = 0; i < 5; ++i) daemon_.windows.push_back(SampleWindow(i));
  }

  Result Ask(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), GRADGATECTL);
    arguments.insert(arguments.end(), {"--dir", daemon_.directory()});
    ChildProcess child(arguments, {"LC_ALL=C.UTF-8", "TERM=xterm"});
    const int exit_code = child.Wait();
    return {exit_code, child.output(), child.error()};
  }

  std::string At(const std::string& name) const { return folder_.path() + "/" + name; }

  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }

  static constexpr char kKey[] = "1000/3f2a91c0d4e5f60718293a4b5c6d7e8f";
  TempDirectory folder_;
  FakeDaemon daemon_;
};

TEST_F(Seeing, TopToAPipeIsPlainText) {
  const Result result = Ask({"top", "--once", "--interval", "0.1"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.output, AllOf(HasSubstr("gradgatectl top  "), HasSubstr(">   digits"), HasSubstr("   0  running")));
  EXPECT_THAT(result.output, Not(HasSubstr("\x1b")));
  EXPECT_THAT(result.output, HasSubstr("! the doctor did not answer: "));  // the fake one has none
}

TEST_F(Seeing, TopShowsNoControlCharacterOfAName) {
  daemon_.jobs[0].set_job_name(kEvil);
  v1::GetJobStatsResponse& stats = daemon_.stats[kKey];
  stats.mutable_job()->set_job_name(kEvil);
  stats.mutable_ranks(0)->set_node_name(kEvil);
  stats.mutable_ranks(1)->set_host_name(kEvil);
  v1::NodeAnswer& node = daemon_.page_nodes.emplace_back();
  node.set_node_name(kEvil);
  node.set_error(kEvil);
  const Result result = Ask({"top", "--once", "--interval", "0.1"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.output, HasSubstr("e\\x1b]0;owned\\x07"));
  EXPECT_THAT(result.output, Not(HasSubstr("\u202e")));
  for (const char c : result.output) ASSERT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

TEST_F(Seeing, TopOfADaemonThatGoesAwaySaysSoAndGoesOn) {
  ChildProcess top({GRADGATECTL, "top", "--interval", "0.1", "--timeout", "0.3", "--dir", daemon_.directory()}, {});
  ASSERT_TRUE(top.ReadUntil("digits"));
  daemon_.Hang();
  ASSERT_TRUE(top.ReadUntil("! no answer for "));
  daemon_.Unhang();
  top.Signal(SIGTERM);
  EXPECT_EQ(top.Wait(), 0);
  EXPECT_EQ(top.error(), "");
}

TEST_F(Seeing, TopOfAJobThatIsForgottenMeanwhileShowsTheOthers) {
  v1::Job gone = SampleJob("gone");
  gone.set_run_id("ffff91c0d4e5f60718293a4b5c6d7e8f");
  daemon_.jobs.insert(daemon_.jobs.begin(), gone);
  const Result result = Ask({"top", "--once", "--interval", "0.1"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.output, AllOf(HasSubstr("digits    running     2/2        -      1.00"),
                                   HasSubstr("gone      running     2/2        -         -")));
}

TEST_F(Seeing, TopOfOneJobAsksForItAlone) {
  daemon_.stats.erase(kKey);
  const Result result = Ask({"top", "digits", "-n", "2", "--interval", "0.1"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(daemon_.list_jobs_calls, 0);
}

TEST_F(Seeing, CommandLinesThatAreRefused) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"top", "--json"},
                                             {"top", "--interval", "nan"},
                                             {"top", "--interval", "0"},
                                             {"top", "-n", "0"},
                                             {"top", "-n", "2", "--once"},
                                             {"report", "digits"},
                                             {"report", "-o", "x"},
                                             {"report", "digits", "-o", ""},
                                             {"report", "digits", "-o", "x", "--json"},
                                             {"report", "digits", "-o", "x", "--windows", "0"}}) {
    const Result result = Ask(wrong);
    EXPECT_EQ(result.exit_code, 2) << absl::StrCat(wrong[0], " ", wrong[1]) << result.output;
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(result.error, HasSubstr("gradgatectl: "));
  }
}

TEST_F(Seeing, ReportIsAFileOfItsOwn) {
  const Result result = Ask({"report", "digits", "-o", At("a.html")});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.output, AllOf(HasSubstr("report of digits: "), HasSubstr("a.html, ")));
  EXPECT_THAT(Read(At("a.html")), AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("</html>"), HasSubstr("window 4")));
}

TEST_F(Seeing, ReportToStandardOutputIsThePageAlone) {
  const Result result = Ask({"report", "digits", "-o", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(result.output.rfind("<!DOCTYPE html>", 0), 0u);
  EXPECT_THAT(result.output, Not(HasSubstr("report of")));
}

TEST_F(Seeing, ReportOfFewWindowsAsksForSoMany) {
  const Result result = Ask({"report", "digits", "-o", "-", "--windows", "2"});
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("2 windows of 126"), HasSubstr("window 3"), HasSubstr("window 4"), Not(HasSubstr("window 2:"))));
}

TEST_F(Seeing, ReportSaysWhatWasNotAnswered) {
  const Result result = Ask({"report", "digits", "-o", "-"});
  EXPECT_EQ(result.exit_code, 0);
  size_t count = 0;
  for (size_t at = result.output.find("Unknown: "); at != std::string::npos; at = result.output.find("Unknown: ", at + 1))
    ++count;
  EXPECT_GE(count, 3u);  // the fake daemon has neither doctor nor planner nor policies
}

TEST_F(Seeing, ReportWithoutAJobOrAPlaceLeavesTheFormerOne) {
  ASSERT_EQ(Ask({"report", "digits", "-o", At("a.html")}).exit_code, 0);
  const std::string before = Read(At("a.html"));
  EXPECT_EQ(Ask({"report", "nobody", "-o", At("a.html")}).exit_code, 4);
  EXPECT_EQ(Ask({"report", "digits", "-o", At("none/a.html")}).exit_code, 1);
  daemon_.Stop();
  EXPECT_EQ(Ask({"report", "digits", "-o", At("a.html")}).exit_code, 3);
  EXPECT_EQ(Read(At("a.html")), before);
}

TEST_F(Seeing, ReportHasNoMarkupOfAName) {
  daemon_.stats["digits"].mutable_job()->set_job_name(kEvil);
  const Result result = Ask({"report", "digits", "-o", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.output, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("\x1b")), HasSubstr("&lt;script&gt;")));
}

}  // namespace
}  // namespace gradgate
