// The real binary against a fake daemon: exit codes, what goes to which stream, signals, closed pipes.

#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/client/cli/child_process.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/samples.h"

namespace gradgate {
namespace {

using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageDifferencer;
using ::testing::AllOf;
using testing::ChildProcess;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SampleJob;
using testing::SampleStats;
using testing::SampleWindow;
using ::testing::StartsWith;
using testing::TempDirectory;

struct Result {
  int exit_code;
  std::string output, error;
};

std::vector<std::string> CtlCommand(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), GRADGATECTL);
  return arguments;
}

Result Ctl(std::vector<std::string> arguments, const std::vector<std::string>& environment = {}) {
  ChildProcess child(CtlCommand(std::move(arguments)), environment);
  const int exit_code = child.Wait();
  return {exit_code, child.output(), child.error()};
}

// One line on standard error, nothing on standard output.
void ExpectFails(const Result& result, int exit_code, const std::string& error) {
  EXPECT_EQ(result.exit_code, exit_code);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.error, "gradgatectl: " + error + "\n");
}

class Gradgatectl : public ::testing::Test {
 protected:
  Gradgatectl() {
    daemon_.jobs = {SampleJob("digits"), SampleJob("resnet")};
    daemon_.stats["digits"] = SampleStats("digits");
    for (int i = 0; i < 5; ++i) daemon_.windows.push_back(SampleWindow(i));
    for (int i = 0; i < 2; ++i) *daemon_.watch_script.emplace_back().mutable_window() = SampleWindow(i);
  }

  void EndWatchWith(v1::State state) {
    v1::Job& job = *daemon_.watch_script.emplace_back().mutable_ended_job();
    job = SampleJob("digits");
    job.set_state(state);
  }

  Result Ask(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--dir", daemon_.directory()});
    return Ctl(std::move(arguments));
  }

  // Parses `json` strictly, and compares.
  template <typename Message>
  static void ExpectJson(const std::string& json, const Message& expected) {
    Message message;
    const auto status = JsonStringToMessage(json, &message);
    ASSERT_TRUE(status.ok()) << status.ToString() << json;
    EXPECT_TRUE(MessageDifferencer::Equals(message, expected)) << json;
  }

  FakeDaemon daemon_;
};

TEST_F(Gradgatectl, LocalAsksForTheNodeAlone) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"jobs"}, {"nodes"}, {"status", "digits"}, {"windows", "digits"}}) {
    EXPECT_EQ(Ask(command).exit_code, 0) << command[0];
    EXPECT_EQ(daemon_.last_scope, v1::SCOPE_JOB) << command[0];
    auto local = command;
    local.push_back("--local");
    EXPECT_EQ(Ask(local).exit_code, 0) << command[0];
    EXPECT_EQ(daemon_.last_scope, v1::SCOPE_NODE) << command[0];
  }
}

TEST_F(Gradgatectl, NodesAsJsonHasItAll) {
  daemon_.nodes.add_nodes()->mutable_answer()->set_node_name("a");
  daemon_.nodes.set_store("memory");
  ExpectJson(Ask({"nodes", "--json"}).output, daemon_.nodes);
}

TEST_F(Gradgatectl, ANodeThatLeftOutOnePageIsNamed) {
  daemon_.max_page_size = 2;
  daemon_.page_nodes.resize(3);
  for (v1::NodeAnswer& node : daemon_.page_nodes) {
    node.set_node_name("b");
    node.set_address("10.0.0.2:1");
    node.set_answered(true);
  }
  daemon_.page_nodes[1].set_answered(false);
  daemon_.page_nodes[1].set_error("did not answer within 2s");
  const Result result = Ask({"windows", "digits"});
  EXPECT_THAT(result.output, StartsWith("! node b at 10.0.0.2:1 did not answer within 2s: its ranks are missing here\n"));
}

TEST(GradgatectlAlone, NoDaemonIsExitCode3) {
  const TempDirectory directory;
  const std::string expected =
      "no gradgated at " + directory.path() + "/api.sock: No such file or directory; start one with `gradgated`";
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"jobs"}, {"status", "x"}, {"windows", "x"}, {"watch", "x"}}) {
    ExpectFails(Ctl(command, {"GRADGATE_DIR=" + directory.path()}), 3, expected);
  }
}

TEST(GradgatectlAlone, WrongCommandLineIsExitCode2) {
  const std::string help = "; gradgatectl --help tells how it is called";
  ExpectFails(Ctl({"status"}), 2, "JOB is required; gradgatectl status --help tells how it is called");
  ExpectFails(Ctl({"status", ""}), 2, "JOB is empty" + help);
  ExpectFails(Ctl({"--dir", "/a", "--target", "/b", "jobs"}), 2,
              "--target excludes --dir; gradgatectl jobs --help tells how it is called");
  ExpectFails(Ctl({"policy", "set", "x", "mode=none"}), 2,
              "mode=none: must be one of auto, window, window_replica, every_micro_step, given" + help);
  ExpectFails(Ctl({"--target", "node2:1", "jobs"}), 2,
              "target node2:1 is another machine and needs TLS: give the CA, certificate and key files");
  for (const char* timeout : {"0", "-1", "nan", "inf", "soon", "86401"}) {
    ExpectFails(
        Ctl({"jobs", absl::StrCat("--timeout=", timeout)}), 2,
        absl::StrCat("--timeout: \"", timeout,
                     "\" is not a number of seconds from 0.001 to 86400; gradgatectl jobs --help tells how it is called"));
  }
  EXPECT_EQ(Ctl({"windows", "x", "--last", "0"}).exit_code, 2);
  ExpectFails(Ctl({"status", "x", "--user", "no-such-user"}), 2,
              "no user \"no-such-user\" on this machine; give the uid" + help);
  ExpectFails(Ctl({"jobs", "--user", "0"}), 2, "--user tells whose JOB is meant, and there is none" + help);
  EXPECT_EQ(Ctl({"watch", "x", "--from", "-1"}).exit_code, 2);
}

TEST(GradgatectlAlone, WhatWasPerhapsMeantIsSaid) {
  const auto error = [](const std::vector<std::string>& arguments) {
    const Result result = Ctl(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.output, "");
    return result.error;
  };
  EXPECT_THAT(error({}), StartsWith("gradgatectl: a command is missing, one of jobs, nodes, "));
  EXPECT_EQ(error({"job"}),
            "gradgatectl: unknown command \"job\"; did you mean \"jobs\"?; gradgatectl --help tells how it is called\n");
  EXPECT_EQ(error({"zzzzzz"}), "gradgatectl: unknown command \"zzzzzz\"; gradgatectl --help tells how it is called\n");
  EXPECT_THAT(error({"polciy", "get", "x"}), HasSubstr("did you mean \"policy\"?"));
  EXPECT_THAT(error({"policy", "gte", "x"}),
              HasSubstr("unknown command \"gte\"; did you mean \"get\"?; gradgatectl policy --help"));
  EXPECT_THAT(error({"policy"}), HasSubstr("a command is missing, one of get, watch, set; gradgatectl policy --help"));
  EXPECT_THAT(error({"windows", "x", "--lats=3"}), HasSubstr("unknown option \"--lats\"; did you mean \"--last\"?; "));
  EXPECT_THAT(error({"windows", "x", "--jsn"}), HasSubstr("did you mean \"--json\"?"));
  EXPECT_THAT(error({"jobs", "x"}), HasSubstr("\"x\" is one word too many; gradgatectl jobs --help"));
  EXPECT_THAT(error({"completion", "tcsh"}), HasSubstr("tcsh"));
}

TEST(GradgatectlAlone, HelpFitsATerminalAndTellsExitCodesOnce) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {}, {"jobs"}, {"doctor"}, {"plan"}, {"policy"}, {"policy", "set"}, {"certs"}, {"completion"}}) {
    auto arguments = command;
    arguments.push_back("--help");
    const Result help = Ctl(arguments);
    EXPECT_EQ(help.exit_code, 0);
    std::istringstream lines(help.output);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 82u) << line;  // two may be half of one letter
    EXPECT_EQ(help.output.find("Exit codes:") != std::string::npos, command.empty());
    EXPECT_EQ(help.output.find("Exit code 5:") != std::string::npos, command == std::vector<std::string>{"doctor"});
  }
}

TEST(GradgatectlAlone, HelpTellsTheExitCodesAndVersionTheVersion) {
  const Result help = Ctl({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.error, "");
  EXPECT_THAT(help.output, AllOf(HasSubstr("Exit codes:"), HasSubstr("3  no gradgated there"), HasSubstr("4  no such job")));
  EXPECT_EQ(Ctl({"--version"}).output, "gradgatectl " GRADGATE_VERSION "\n");
}

TEST_F(Gradgatectl, MissingJobIsExitCode4AndListsTheOthers) {
  const std::string expected = "no job \"digit\" at " + daemon_.socket_path() + "; known jobs: digits, resnet";
  ExpectFails(Ask({"status", "digit"}), 4, expected);
  ExpectFails(Ask({"windows", "digit", "--json"}), 4, expected);
  ExpectFails(Ask({"watch", "digit"}), 4, expected);
}

TEST_F(Gradgatectl, NamesFromTrainersCannotReachTheTerminal) {
  daemon_.jobs = {SampleJob("\x1b]0;evil\x07")};
  EXPECT_THAT(Ask({"status", "x"}).error, AllOf(HasSubstr("known jobs: \\x1b]0;evil\\x07"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(Ask({"jobs"}).output, AllOf(HasSubstr("\\x1b]0;evil\\x07"), Not(HasSubstr("\x1b"))));
}

TEST_F(Gradgatectl, DaemonThatDoesNotAnswerIsExitCode1AtTheTimeout) {
  daemon_.Hang();
  const Result result = Ask({"jobs", "--timeout", "0.2"});
  ExpectFails(result, 1,
              "gradgated at " + daemon_.socket_path() +
                  " did not answer within 200ms; it is stopped or overloaded, or the timeout is too short");
}

TEST_F(Gradgatectl, SocketThatMayNotBeOpenedIsExitCode1) {
  ASSERT_EQ(chmod(daemon_.directory().c_str(), 0755), 0);
  ASSERT_EQ(chmod(daemon_.socket_path().c_str(), 0600), 0);
  std::vector<std::string> command = {daemon_.directory() + "/ctl", "--dir", daemon_.directory(), "jobs"};
  std::filesystem::copy_file(GRADGATECTL, command[0]);
  if (geteuid() == 0) {
    command.insert(command.begin(), {"/usr/bin/setpriv", "--reuid", "65534", "--clear-groups"});
  } else {
    ASSERT_EQ(chmod(daemon_.socket_path().c_str(), 0), 0);
  }
  ChildProcess child(command, {});
  EXPECT_EQ(child.Wait(), 1);
  EXPECT_EQ(child.error(), "gradgatectl: may not open " + daemon_.socket_path() +
                               ": Permission denied; join the group that owns it, or ask as its owner\n");
}

TEST_F(Gradgatectl, TablesComeOnStandardOutput) {
  const Result jobs = Ask({"jobs"});
  EXPECT_EQ(jobs.exit_code, 0);
  EXPECT_EQ(jobs.error, "");
  EXPECT_THAT(jobs.output, AllOf(StartsWith("job "), HasSubstr("\ndigits "), HasSubstr("\nresnet ")));
  const Result status = Ask({"status", "digits"});
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_THAT(status.output, AllOf(StartsWith("digits  running  run 3f2a"), HasSubstr("reductions per optimizer step")));
}

// What `command` writes to a terminal of `columns`, before it ends with `exit_code`.
std::string OnTerminal(const std::vector<std::string>& command, unsigned short columns, int exit_code = 0) {
  winsize size{};
  size.ws_col = columns;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(terminal, buffer, sizeof(buffer))) > 0;) text.append(buffer, got);
  close(terminal);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), exit_code);
  return text;
}

TEST_F(Gradgatectl, ATerminalGetsWhatFitsAndAPipeAll) {
  const std::vector<std::string> command = CtlCommand({"status", "digits", "--dir", daemon_.directory()});
  std::istringstream lines(OnTerminal(command, 80));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 81u) << line;  // \r
  EXPECT_THAT(lines.str(), AllOf(HasSubstr("red/step"), HasSubstr("(left out: micro-step, ")));
  EXPECT_THAT(OnTerminal(command, 250), Not(HasSubstr("(left out: ")));
  EXPECT_THAT(Ask({"status", "digits"}).output, AllOf(HasSubstr("suppressed  late"), Not(HasSubstr("(left out: "))));
}

TEST_F(Gradgatectl, AnErrorIsWrappedOnATerminalAndOneLineElsewhere) {
  const std::vector<std::string> wrong = CtlCommand({"policy", "set", "digits", "mode=none", "--dir", daemon_.directory()});
  EXPECT_EQ(OnTerminal(wrong, 60, 2),
            "gradgatectl: mode=none: must be one of auto, window,\r\n  window_replica, every_micro_step, given;\r\n"
            "  gradgatectl --help tells how it is called\r\n");
  EXPECT_EQ(Ctl({"policy", "set", "digits", "mode=none"}).error,
            "gradgatectl: mode=none: must be one of auto, window, window_replica, every_micro_step, given; "
            "gradgatectl --help tells how it is called\n");
}

TEST_F(Gradgatectl, WindowsAreShownOldestFirstAlsoTheLatest) {
  const std::string all = Ask({"windows", "digits"}).output;
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 2 + 10);
  const std::string last = Ask({"windows", "digits", "--last", "2"}).output;
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 2 + 4);
  EXPECT_LT(last.find("\n       3  "), last.find("\n       4  "));
  EXPECT_EQ(last.find("\n       2  "), std::string::npos);
}

TEST_F(Gradgatectl, JsonIsTheWholeAnswer) {
  v1::ListJobsResponse jobs;
  jobs.mutable_jobs()->Assign(daemon_.jobs.begin(), daemon_.jobs.end());
  ExpectJson(Ask({"jobs", "--json"}).output, jobs);
  ExpectJson(Ask({"--json", "status", "digits"}).output, daemon_.stats["digits"]);
  v1::ListWindowsResponse windows;
  windows.mutable_windows()->Assign(daemon_.windows.begin(), daemon_.windows.end());
  ExpectJson(Ask({"windows", "digits", "--json"}).output, windows);
}

TEST_F(Gradgatectl, JsonKeepsFieldNamesAndZeros) {
  EXPECT_THAT(Ask({"status", "digits", "--json"}).output,
              AllOf(HasSubstr("\"reduction_issued_count\": \"252\""), HasSubstr("\"window_mismatched_count\": \"0\"")));
}

TEST_F(Gradgatectl, WatchShowsRowsAndTheEnd) {
  EndWatchWith(v1::STATE_FINISHED);
  const Result result = Ask({"watch", "digits", "--from", "3"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(daemon_.watch_first_index, 3);
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 2 + 4 + 1);
  EXPECT_THAT(result.output, HasSubstr("\njob ended: digits  finished  "));
  EXPECT_EQ(daemon_.last_scope, v1::SCOPE_JOB);
  EXPECT_EQ(Ask({"watch", "digits", "--local"}).exit_code, 0);
  EXPECT_EQ(daemon_.last_scope, v1::SCOPE_NODE);
}

TEST_F(Gradgatectl, WatchAsJsonIsAnObjectALine) {
  EndWatchWith(v1::STATE_LOST);
  std::istringstream lines(Ask({"watch", "digits", "--json"}).output);
  std::string line;
  for (const auto& expected : daemon_.watch_script) {
    ASSERT_TRUE(std::getline(lines, line));
    ExpectJson(line, expected);
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(Gradgatectl, WatchEndsCleanlyOnEitherSignal) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;
  for (int number : {SIGINT, SIGTERM}) {
    ChildProcess child(CtlCommand({"watch", "digits", "--target", daemon_.target()}), {});
    ASSERT_TRUE(child.ReadUntil("\n       1     1")) << child.error();
    child.Signal(number);
    EXPECT_EQ(child.Wait(), 0);
    EXPECT_EQ(child.error(), "");
  }
}

TEST_F(Gradgatectl, WatchTellsThatTheDaemonWentAway) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;
  ChildProcess child(CtlCommand({"watch", "digits", "--target", daemon_.target()}), {});
  ASSERT_TRUE(child.ReadUntil("\n       1     1")) << child.error();
  daemon_.Stop();
  EXPECT_EQ(child.Wait(), 3);
  EXPECT_THAT(child.error(), HasSubstr("gradgated at " + daemon_.socket_path()));
}

TEST_F(Gradgatectl, WatchEndsWhenItsReaderGoesAway) {
  daemon_.after_script = FakeDaemon::AfterScript::kHold;
  *daemon_.after_hold.emplace_back().mutable_window() = SampleWindow(9);
  *daemon_.after_hold.emplace_back().mutable_window() = SampleWindow(10);
  ChildProcess child(CtlCommand({"watch", "digits", "--target", daemon_.target()}), {});
  ASSERT_TRUE(child.ReadUntil("\n       1     1")) << child.error();
  child.CloseOutput();
  daemon_.Release();
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(child.error(), "");
}

TEST_F(Gradgatectl, ClosedPipeIsNoError) {
  for (const char* json : {"--json=true", "--json=false"}) {
    daemon_.Hang();
    ChildProcess child(CtlCommand({"windows", "digits", json, "--target", daemon_.target()}), {});
    child.CloseOutput();
    daemon_.Unhang();
    EXPECT_EQ(child.Wait(), 0) << child.error();
    EXPECT_EQ(child.error(), "");
  }
}

TEST_F(Gradgatectl, FullDiskIsExitCode1) {
  ChildProcess child({"/bin/sh", "-c", std::string(GRADGATECTL) + " jobs --dir " + daemon_.directory() + " > /dev/full"}, {});
  EXPECT_EQ(child.Wait(), 1);
  EXPECT_EQ(child.error(), "gradgatectl: cannot write the output: No space left on device\n");
}

}  // namespace
}  // namespace gradgate
