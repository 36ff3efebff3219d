// What the shells are given, tried in the ones that are here.

#include <unistd.h>

#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cli/child_process.h"

namespace gradgate {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Script(const std::string& shell) {
  ChildProcess child({GRADGATECTL, "completion", shell}, {});
  EXPECT_EQ(child.Wait(), 0) << child.error();
  return child.output();
}

// What bash offers for the last of `words`.
std::set<std::string> Offered(const std::vector<std::string>& words) {
  const std::string script =
      absl::StrCat("source <(", GRADGATECTL, " completion bash); COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); ",
                   "_gradgatectl; printf '%s\\n' \"${COMPREPLY[@]}\"");
  std::vector<std::string> command = {"/bin/bash", "--norc", "-euc", script, "bash"};
  command.insert(command.end(), words.begin(), words.end());
  ChildProcess bash(command, {"PATH=/usr/bin:/bin"});
  EXPECT_EQ(bash.Wait(), 0);
  EXPECT_EQ(bash.error(), "");
  std::istringstream lines(bash.output());
  std::set<std::string> offered;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) offered.insert(line);
  }
  return offered;
}

TEST(Completion, OffersCommandsAndWhatBelongsToThem) {
  EXPECT_THAT(Offered({"gradgatectl", "po"}), ElementsAre("policy"));
  EXPECT_THAT(Offered({"gradgatectl", ""}), AllOf(Contains("jobs"), Contains("completion"), Contains("--json")));
  EXPECT_THAT(Offered({"gradgatectl", "policy", ""}),
              AllOf(Contains("get"), Contains("set"), Contains("watch"), Not(Contains("jobs"))));
  EXPECT_THAT(Offered({"gradgatectl", "policy", "set", "job", "--dr"}), ElementsAre("--dry-run"));
  EXPECT_THAT(Offered({"gradgatectl", "windows", "--l"}), ElementsAre("--last", "--local"));
  EXPECT_THAT(Offered({"gradgatectl", "--json", "status", "windows", "--l"}), ElementsAre("--local"));
  EXPECT_THAT(Offered({"gradgatectl", "--json", "po"}), ElementsAre("policy"));
  EXPECT_THAT(Offered({"gradgatectl", "doctor", "job", "--evidence", "--js"}), ElementsAre("--json"));
}

TEST(Completion, OffersFilesWhereOneIsWantedAndNothingForOtherValues) {
  EXPECT_THAT(Offered({"gradgatectl", "--ca", "/etc/pass"}), Contains("/etc/passwd"));
  EXPECT_THAT(Script("bash"), HasSubstr("compopt -o filenames")) << "else bash puts a file's name into the line unquoted";
  EXPECT_THAT(Offered({"gradgatectl", "jobs", "--timeout", ""}), IsEmpty());
}

TEST(Completion, OffersValuesThatAreKnownBeforehand) {
  EXPECT_THAT(Offered({"gradgatectl", "completion", ""}), AllOf(Contains("bash"), Contains("zsh"), Contains("fish")));
  EXPECT_THAT(Offered({"gradgatectl", "plan", "--mode", "window"}), ElementsAre("window", "window_replica"));
  EXPECT_THAT(Offered({"gradgatectl", "plan", "job", "--mode", ""}),
              ElementsAre("every_micro_step", "window", "window_replica"));
  EXPECT_THAT(Offered({"gradgatectl", "policy", "set", "job", "mo"}),
              AllOf(Contains("mode=window"), Contains("mode=given"), Not(Contains("bucket="))));
  EXPECT_THAT(Offered({"gradgatectl", "--dir", "jobs", "policy", "set", "job", "wire=bf16", "buc"}), ElementsAre("bucket="));
  EXPECT_THAT(Offered({"gradgatectl", "policy", "set", "mo"}), IsEmpty()) << "JOB stands before CHANGE";
  EXPECT_THAT(Offered({"gradgatectl", "policy", "get", "job", "mo"}), IsEmpty());
}

// bash gives words that are broken at "=", and takes what belongs behind it.
TEST(Completion, OffersValuesBehindAnEqualsSign) {
  EXPECT_THAT(Offered({"gradgatectl", "policy", "set", "job", "enforcement", "="}), ElementsAre("audit", "enforce", "given"));
  EXPECT_THAT(Offered({"gradgatectl", "policy", "set", "job", "enforcement", "=", "au"}), ElementsAre("audit"));
  EXPECT_THAT(Offered({"gradgatectl", "plan", "--mode", "=", "ev"}), ElementsAre("every_micro_step"));
  EXPECT_THAT(Offered({"gradgatectl", "--ca", "=", "/etc/pass"}), Contains("/etc/passwd"));
  EXPECT_THAT(Offered({"gradgatectl", "jobs", "--timeout", "="}), IsEmpty());
}

TEST(Completion, OffersEveryOptionThatHelpLists) {
  ChildProcess child({GRADGATECTL, "plan", "--help"}, {});
  ASSERT_EQ(child.Wait(), 0);
  const std::set<std::string> offered = Offered({"gradgatectl", "plan", "--"});
  std::istringstream lines(child.output());
  int options = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, 4, "  --") != 0) continue;
    ++options;
    EXPECT_THAT(offered, Contains(line.substr(2, line.find_first_of(" =", 2) - 2)));
  }
  EXPECT_GT(options, 20);
}

TEST(Completion, OtherShellsTakeTheirs) {
  EXPECT_THAT(Script("zsh"), AllOf(HasSubstr("#compdef gradgatectl\n"), HasSubstr("'jobs:List jobs, the latest first'")));
  EXPECT_THAT(Script("zsh"), HasSubstr("'--json:Print the whole answer as JSON; watch: an object a line'"));
  EXPECT_THAT(Script("zsh"), HasSubstr("'plan --mode') compadd -- every_micro_step window_replica window; return ;;\n"));
  EXPECT_THAT(Script("zsh"), HasSubstr("((given < 1)) || values=(mode=auto mode=window "));
  EXPECT_THAT(
      Script("fish"),
      AllOf(
          HasSubstr("complete -c gradgatectl -n '__fish_use_subcommand' -a jobs -d 'List jobs, the latest first'\n"),
          HasSubstr("-n '__fish_seen_subcommand_from windows' -l last -r -d "),
          HasSubstr("-n '__fish_seen_subcommand_from plan' -l mode -r -a 'every_micro_step window_replica window' -d "),
          HasSubstr("-n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n"),
          HasSubstr("-n '__fish_use_subcommand' -l ca -r -F -d 'PEM file of the CA that signed the daemon'\\''s certificate")));
  for (const char* shell : {"zsh", "fish"}) {
    const std::string path = absl::StrCat("/usr/bin/", shell);
    if (access(path.c_str(), X_OK) != 0) continue;
    ChildProcess child({path, "-n", "-c", Script(shell)}, {});
    EXPECT_EQ(child.Wait(), 0) << child.error();
  }
}

}  // namespace
}  // namespace gradgate
