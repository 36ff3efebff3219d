// What `gradgatectl plan` shows, to the letter.

#include "client/cli/plan_view.h"

#include <fstream>
#include <iterator>

#include "client/planner/answer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gradgate::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Golden(const std::string& name) {
  std::ifstream file(std::string(GOLDEN_DIR "/") + name);
  EXPECT_TRUE(file.is_open()) << name;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

v1::PlanSyncRequest SampleRequest() {
  v1::PlanSyncRequest request;
  v1::PlanNumbers& n = *request.mutable_numbers();
  n.set_rank_count(64);
  n.set_node_count(8);
  n.set_shard_count(8);
  n.set_accumulate(4);
  n.set_parameter_count(7'000'000'000);
  n.set_compute_seconds(10.8);
  n.set_sync_seconds(11.4);
  n.set_link_bytes_per_second(12.5e9);
  n.set_memory_limit_bytes(80.0 * (1 << 30));
  request.add_what_ifs()->set_rank_count(128);
  request.add_what_ifs()->set_link_bytes_per_second(50e9);
  request.add_what_ifs()->set_accumulate(8);
  return request;
}

v1::PlanSyncResponse Answered(const v1::PlanSyncRequest& request) {
  const auto response = planner::AnswerFromNumbers(request);
  EXPECT_TRUE(response.ok()) << response.status();
  return response.value_or(v1::PlanSyncResponse{});
}

TEST(PlanView, OfGivenNumbersAndWhatIfs) { EXPECT_EQ(PlanView(Answered(SampleRequest())), Golden("plan.txt")); }

TEST(PlanView, OfAJobShowsWhatWasMeasuredAndWhatIsOpen) {
  v1::PlanSyncRequest request = SampleRequest();
  request.clear_what_ifs();
  v1::PlanSyncResponse response = Answered(request);
  response.mutable_plan()->mutable_modes(2)->set_min_step_seconds(43.2);
  response.mutable_job()->set_job_name("cosmos");
  response.mutable_job()->set_run_id(std::string(32, 'b'));
  v1::PlanMeasurement& m = *response.add_measurements();
  m.set_what("a micro-step that does not reduce");
  m.set_seconds(10.8);
  m.set_spread_share(0.0123);
  m.set_sample_count(640);
  EXPECT_EQ(PlanView(response), Golden("plan_job.txt"));
}

TEST(PlanView, NamesNodesThatDidNotAnswerFirst) {
  v1::PlanSyncResponse response = Answered(SampleRequest());
  v1::NodeAnswer& node = *response.add_nodes();
  node.set_node_name("b");
  node.set_error("did not answer within 2s");
  EXPECT_THAT(PlanView(response), ::testing::StartsWith("! node b did not answer within 2s: its ranks are missing here\nfrom"));
}

TEST(PlanView, ShortStepsHaveDigitsEnough) {
  v1::PlanSyncRequest request;
  request.mutable_numbers()->set_rank_count(2);
  request.mutable_numbers()->set_accumulate(4);
  request.mutable_numbers()->set_compute_seconds(0.00123);
  request.mutable_numbers()->set_sync_seconds(0.001);
  EXPECT_THAT(PlanView(Answered(request)), AllOf(HasSubstr(" 0.00892 "), HasSubstr(" 0.00592 ")));
}

TEST(PlanView, StayingNeedsNoCommand) {
  v1::PlanSyncRequest request;
  request.mutable_numbers()->set_rank_count(2);
  request.mutable_numbers()->set_accumulate(1);
  request.mutable_numbers()->set_compute_seconds(1);
  request.mutable_numbers()->set_sync_seconds(1);
  EXPECT_THAT(PlanView(Answered(request)),
              AllOf(HasSubstr("now, best"), HasSubstr("\nstay with every_micro_step"), Not(HasSubstr("policy set"))));
}

TEST(PlanView, NamesThatAShellWouldReadAreReplacedByTheRunId) {
  v1::PlanSyncResponse response = Answered(SampleRequest());
  response.mutable_job()->set_run_id("abc123");
  for (const char* name : {"a b", "$(rm)", "-x", "a;b", ""}) {
    response.mutable_job()->set_job_name(name);
    EXPECT_THAT(PlanView(response), HasSubstr("policy set abc123 mode=")) << name;
  }
  response.mutable_job()->set_job_name("digits-2.b_c");
  EXPECT_THAT(PlanView(response), HasSubstr("policy set digits-2.b_c mode="));
}

TEST(PlanView, TextOfOthersCannotReachTheTerminal) {
  v1::PlanSyncResponse response = Answered(SampleRequest());
  const std::string evil = "\x1b]0;evil\x07";
  response.mutable_job()->set_job_name(evil);
  response.mutable_job()->set_run_id(evil);
  response.set_advice(evil);
  response.set_policy(evil);
  response.add_notes(evil);
  response.add_measurements()->set_what(evil);
  response.mutable_what_ifs(0)->set_label(evil);
  EXPECT_THAT(PlanView(response), AllOf(HasSubstr("\\x1b]0;evil\\x07"), Not(HasSubstr("\x1b"))));
}

TEST(PlanView, AnEmptyAnswerIsShownAsSuch) { EXPECT_THAT(PlanView({}), HasSubstr("from the given numbers: 0 ranks")); }

}  // namespace
}  // namespace gradgate::cli
