// `gradgatectl policy`, the real binary, against a fake daemon: exit codes, what goes to which stream, signals.

#include <algorithm>
#include <cctype>
#include <csignal>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/client/cli/child_process.h"
#include "tests/client/fake_policy_daemon.h"
#include "tests/client/samples.h"

namespace gradgate {
namespace {

using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageDifferencer;
using ::testing::AllOf;
using testing::ChildProcess;
using testing::FakePolicyDaemon;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SampleJob;
using ::testing::StartsWith;

struct Result {
  int exit_code;
  std::string output, error;
};

v1::PolicyStatus At(int64_t version, v1::PolicyState state, const std::string& detail) {
  v1::PolicyStatus status;
  *status.mutable_job() = SampleJob("digits");
  status.mutable_proposed()->set_version(version);
  status.mutable_proposed()->set_actor("bob@host");
  status.set_state(state);
  status.set_detail(detail);
  return status;
}
v1::PolicyStatus Proposed() { return At(7, v1::POLICY_STATE_PROPOSED, "rank 1 has not read it yet"); }
v1::PolicyStatus Staged() { return At(7, v1::POLICY_STATE_STAGED, "every rank has it"); }
v1::PolicyStatus Adopted() { return At(7, v1::POLICY_STATE_ADOPTED, "in force on all ranks from window 9 on"); }

class PolicyCommands : public ::testing::Test {
 protected:
  PolicyCommands() { daemon_.status = Proposed(); }

  std::vector<std::string> Command(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {GRADGATECTL, "policy"});
    arguments.insert(arguments.end(), {"--dir", daemon_.directory()});
    return arguments;
  }

  Result Ask(std::vector<std::string> arguments) const {
    ChildProcess child(Command(std::move(arguments)), {});
    const int exit_code = child.Wait();
    return {exit_code, child.output(), child.error()};
  }

  // One line on standard error.
  static void ExpectError(const Result& result, int exit_code, const std::string& error) {
    EXPECT_EQ(result.exit_code, exit_code) << result.error;
    EXPECT_THAT(result.error, AllOf(StartsWith("gradgatectl: "), HasSubstr(error)));
    EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1);
  }

  template <typename Message>
  static void ExpectJson(const std::string& json, const v1::PolicyStatus& expected) {
    Message message;
    const auto status = JsonStringToMessage(json, &message);
    ASSERT_TRUE(status.ok()) << status.ToString() << json;
    EXPECT_TRUE(MessageDifferencer::Equals(message.status(), expected)) << json;
  }

  FakePolicyDaemon daemon_;
};

TEST_F(PolicyCommands, GetShowsItAndAsJsonTheWholeAnswer) {
  const Result text = Ask({"get", "digits"});
  EXPECT_EQ(text.exit_code, 0) << text.error;
  EXPECT_EQ(text.error, "");
  EXPECT_THAT(text.output,
              AllOf(StartsWith("digits  running"), HasSubstr("version 7 proposed: rank 1"), HasSubstr("by bob@host")));
  const Result json = Ask({"get", "digits", "--json"});
  EXPECT_EQ(json.exit_code, 0);
  ExpectJson<v1::GetPolicyResponse>(json.output, daemon_.status);
}

TEST_F(PolicyCommands, SetSendsTheWordsAndWaitsUntilItIsAdopted) {
  daemon_.followed = {Proposed(), Staged(), Staged(), Adopted()};
  const Result result = Ask({"set", "digits", "mode=window", "bucket=8KiB", "wire=given", "--expected-version", "6"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.output,
            "version 7 proposed: rank 1 has not read it yet\nversion 7 staged: every rank has it\n"
            "version 7 adopted: in force on all ranks from window 9 on\n")
      << "each state once";
  const v1::SetPolicyRequest& request = daemon_.set_request;
  EXPECT_EQ(request.job(), "digits");
  EXPECT_EQ(request.policy().ShortDebugString(), "sync_mode: SYNC_MODE_WINDOW bucket_bytes: 8192");
  EXPECT_EQ(request.update_mask().ShortDebugString(), "paths: \"sync_mode\" paths: \"bucket_bytes\" paths: \"wire_type\"");
  EXPECT_THAT(request.actor(), HasSubstr("@"));
  EXPECT_EQ(request.expected_version(), 6);
  EXPECT_FALSE(request.validate_only());
  EXPECT_EQ(daemon_.followed_job, absl::StrCat(SampleJob("digits").user_id(), "/", SampleJob("digits").run_id()))
      << "a later run of the name is another job";
  EXPECT_EQ(daemon_.watch_calls, 0) << "of which the daemon has few";
}

TEST_F(PolicyCommands, AUserIsSentAsPartOfTheJob) {
  EXPECT_EQ(Ask({"set", "digits", "mode=window", "--wait", "0", "--user", "1007"}).exit_code, 0);
  EXPECT_EQ(daemon_.set_request.job(), "1007/digits");
  EXPECT_EQ(Ask({"set", "digits", "mode=window", "--wait", "0", "--user", "root"}).exit_code, 0);
  EXPECT_EQ(daemon_.set_request.job(), "0/digits");
  EXPECT_EQ(Ask({"set", "7/digits", "mode=window", "--wait", "0"}).exit_code, 0);
  EXPECT_EQ(daemon_.set_request.job(), "7/digits");
}

TEST_F(PolicyCommands, RejectedIsExitCode1AndSaysWhy) {
  daemon_.followed = {At(7, v1::POLICY_STATE_REJECTED, "rejected by rank 1: its wrapper has no buckets")};
  const Result result = Ask({"set", "digits", "bucket=8KiB"});
  ExpectError(result, 1,
              "version 7 will not be adopted: rejected by rank 1: its wrapper has no buckets; the job goes on as before");
  EXPECT_THAT(result.output, HasSubstr("version 7 rejected by rank 1"));
}

TEST_F(PolicyCommands, SupersededIsExitCode1AndNamesWho) {
  daemon_.followed = {Proposed(), At(9, v1::POLICY_STATE_PROPOSED, "")};
  ExpectError(Ask({"set", "digits", "mode=auto"}), 1,
              "version 9, proposed since by bob@host, has taken the place of version 7");
}

TEST_F(PolicyCommands, ADaemonThatHasNotHeardOfItYetIsWaitedFor) {
  daemon_.followed = {At(5, v1::POLICY_STATE_ADOPTED, "the former"), At(0, v1::POLICY_STATE_UNSPECIFIED, "none"), Adopted()};
  const Result result = Ask({"set", "digits", "mode=auto"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.output, Not(HasSubstr("the former")));
}

TEST_F(PolicyCommands, AJobThatEndsBeforeItAdoptsIsExitCode1) {
  daemon_.followed = {Staged(), Staged()};
  daemon_.followed[1].mutable_job()->set_state(v1::STATE_FINISHED);
  ExpectError(Ask({"set", "digits", "mode=auto"}), 1, "the job ended before it adopted the policy");
}

TEST_F(PolicyCommands, AWaitThatIsOverIsExitCode1AndItStillStands) {
  daemon_.followed = {Staged()};
  const absl::Time begin = absl::Now();
  ExpectError(Ask({"set", "digits", "mode=auto", "--wait", "0.3"}), 1,
              "version 7 was not adopted within 300ms; it still stands");
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(300));
}

TEST_F(PolicyCommands, ADaemonThatFailsMeanwhileIsNamedAndItStillStands) {
  daemon_.followed = {Staged()};
  for (const auto& [code, exit_code] : {std::pair(grpc::StatusCode::UNAVAILABLE, 3), {grpc::StatusCode::INTERNAL, 1}}) {
    daemon_.follow_fail = grpc::Status(code, "in its own words");
    ExpectError(Ask({"set", "digits", "mode=auto"}), exit_code, "version 7 was proposed, then: ");
  }
}

TEST_F(PolicyCommands, WithoutAWaitItIsDoneOnceItIsInTheStore) {
  const Result result = Ask({"set", "digits", "mode=auto", "--wait", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(result.output, "version 7 proposed: rank 1 has not read it yet\n");
  EXPECT_EQ(daemon_.watch_calls, 0);
}

TEST_F(PolicyCommands, ADryRunProposesAndWaitsForNothing) {
  const Result result = Ask({"set", "digits", "mode=auto", "--dry-run", "--actor", "ann"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(result.output, "valid; nothing was proposed\n");
  EXPECT_TRUE(daemon_.set_request.validate_only());
  EXPECT_EQ(daemon_.set_request.actor(), "ann");
  EXPECT_EQ(daemon_.watch_calls, 0);
}

TEST_F(PolicyCommands, SetAsJsonIsAnObjectALine) {
  daemon_.followed = {Staged(), Adopted()};
  const Result result = Ask({"set", "digits", "mode=auto", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  const std::vector<std::string> lines = absl::StrSplit(result.output, '\n');
  ASSERT_EQ(lines.size(), 4u);
  ExpectJson<v1::SetPolicyResponse>(lines[0], Proposed());
  ExpectJson<v1::WatchPolicyResponse>(lines[1], Staged());
  ExpectJson<v1::WatchPolicyResponse>(lines[2], Adopted());
  EXPECT_EQ(lines[3], "");
}

TEST_F(PolicyCommands, AnInterruptedWaitIsNoSuccess) {
  daemon_.followed = {Staged()};
  for (const int number : {SIGINT, SIGTERM}) {
    ChildProcess child(Command({"set", "digits", "mode=auto"}), {});
    ASSERT_TRUE(child.ReadUntil("staged")) << child.error();
    child.Signal(number);
    EXPECT_EQ(child.Wait(), 1);
    EXPECT_THAT(child.error(), HasSubstr("interrupted while version 7 waits; it still stands"));
  }
}

TEST_F(PolicyCommands, TheDaemonsErrorsKeepTheirWords) {
  const std::tuple<grpc::StatusCode, int> cases[] = {{grpc::StatusCode::INVALID_ARGUMENT, 1},
                                                     {grpc::StatusCode::FAILED_PRECONDITION, 1},
                                                     {grpc::StatusCode::ABORTED, 1},
                                                     {grpc::StatusCode::RESOURCE_EXHAUSTED, 1},
                                                     {grpc::StatusCode::NOT_FOUND, 4}};
  for (const auto& [code, exit_code] : cases) {
    daemon_.fail = grpc::Status(code, "in its own words");
    for (const Result& result : {Ask({"set", "digits", "mode=auto"}), Ask({"get", "digits"})}) {
      ExpectError(result, exit_code, exit_code == 4 ? "no job \"digits\"" : "in its own words");
      EXPECT_EQ(result.output, "");
    }
  }
  EXPECT_EQ(daemon_.watch_calls, 0);
  daemon_.watch_end = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watchers: 2");
  ExpectError(Ask({"watch", "digits"}), 1, "too many watchers: 2");
}

TEST_F(PolicyCommands, WatchShowsEachChangeUntilTheJobEnds) {
  daemon_.script = {Proposed(), Staged(), Adopted()};
  const Result text = Ask({"watch", "digits"});
  EXPECT_EQ(text.exit_code, 0) << text.error;
  const std::vector<std::string> lines = absl::StrSplit(text.output, '\n');
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[1], ::testing::MatchesRegex("[0-9][0-9]:[0-9][0-9]:[0-9][0-9] version 7 staged: every rank has it"));
  const std::vector<std::string> json = absl::StrSplit(Ask({"watch", "digits", "--json"}).output, '\n');
  ASSERT_EQ(json.size(), 4u);
  ExpectJson<v1::WatchPolicyResponse>(json[2], Adopted());
}

TEST_F(PolicyCommands, WatchEndsCleanlyOnASignalAndWhenItsReaderGoes) {
  daemon_.script = {Staged()};
  daemon_.hold = true;
  daemon_.after_hold = std::vector<v1::PolicyStatus>(3, Adopted());
  ChildProcess interrupted(Command({"watch", "digits"}), {});
  ASSERT_TRUE(interrupted.ReadUntil("staged")) << interrupted.error();
  interrupted.Signal(SIGINT);
  EXPECT_EQ(interrupted.Wait(), 0);
  EXPECT_EQ(interrupted.error(), "");
  daemon_.watch_end = grpc::Status(grpc::StatusCode::INTERNAL, "must not be waited for");
  for (const char* json : {"--json=true", "--json=false"}) {
    daemon_.hold = true;
    ChildProcess child(Command({"watch", "digits", json}), {});
    ASSERT_TRUE(child.ReadUntil(json == std::string("--json=true") ? "STAGED" : "staged")) << child.error();
    child.CloseOutput();
    daemon_.hold = false;
    EXPECT_EQ(child.Wait(), 0) << child.error();
    EXPECT_EQ(child.error(), "");
  }
}

TEST_F(PolicyCommands, ASilentWatchAsksWhetherTheDaemonLives) {
  daemon_.script = {Staged()};
  daemon_.hold = true;
  ChildProcess child(Command({"watch", "digits", "--timeout", "0.1"}), {});
  ASSERT_TRUE(child.ReadUntil("staged")) << child.error();
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (daemon_.probes < 3 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_GE(daemon_.probes, 3);
  daemon_.Stop();
  EXPECT_EQ(child.Wait(), 3) << child.error();
}

TEST_F(PolicyCommands, WrongCommandLineIsExitCode2) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, "a command is missing, one of get, watch, set"},
      {{"put", "digits"}, ""},
      {{"get"}, "JOB is required"},
      {{"get", ""}, "JOB is empty"},
      {{"set", "digits"}, "CHANGE is required"},
      {{"set", "digits", "mode=sometimes"}, "mode=sometimes: must be one of auto, window"},
      {{"set", "digits", "bucket=1"}, "bucket=1: must be a size"},
      {{"set", "digits", "mode=auto", "--wait", "nan"}, "--wait: \"nan\" is not a number of seconds from 0 to 86400"},
      {{"set", "digits", "mode=auto", "--wait=-1"}, "is not a number of seconds"},
      {{"set", "digits", "mode=auto", "--expected-version", "0"}, "--expected-version"},
  };
  for (const auto& [arguments, error] : cases) ExpectError(Ask(arguments), 2, error);
}

TEST_F(PolicyCommands, HelpTellsEveryChange) {
  const Result set = Ask({"set", "--help"});
  EXPECT_EQ(set.exit_code, 0);
  for (const char* word : {"mode=auto|window|window_replica|every_micro_step", "bucket=SIZE", "wire=gradient|bf16|fp16",
                           "reshard=every_micro_step|window", "enforcement=audit|enforce", "=given", "--wait", "--actor",
                           "--expected-version", "--dry-run"}) {
    std::string text = set.output;
    text.erase(std::remove_if(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c); }), text.end());
    EXPECT_THAT(text, HasSubstr(word));
  }
  EXPECT_THAT(Ask({"--help"}).output, AllOf(HasSubstr("get"), HasSubstr("set"), HasSubstr("watch")));
}

}  // namespace
}  // namespace gradgate
