// What gradgatectl doctor shows, to the letter.

#include "client/cli/doctor_view.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/samples.h"

namespace gradgate::cli {
namespace {

using gradgate::testing::SampleJob;
using gradgate::testing::SampleNow;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

v1::DiagnoseResponse Hung() {
  v1::DiagnoseResponse response;
  *response.mutable_job() = SampleJob("digits");
  response.add_nodes()->set_answered(true);
  v1::Verdict& verdict = *response.add_verdicts();
  verdict.set_kind(v1::VERDICT_KIND_HUNG);
  verdict.set_severity(v1::SEVERITY_CRITICAL);
  verdict.set_headline("window 7: ranks 0, 2 have waited 18.2 s for rank 1");
  verdict.add_evidence(
      "not arrived: rank 1; it is a long line that goes on and on, over the width of a terminal of a hundred columns");
  verdict.add_evidence("and a short one");
  verdict.add_advice("look at rank 1's process first");
  return response;
}

TEST(DoctorView, PutsEvidenceAndAdviceBelowEachVerdict) {
  EXPECT_THAT(DoctorView(Hung(), SampleNow(), kDoctorColumns),
              EndsWith("\n\nCRITICAL  window 7: ranks 0, 2 have waited 18.2 s for rank 1 [hung]\n"
                       "          - not arrived: rank 1; it is a long line that goes on and on, over the width of a terminal\n"
                       "            of a hundred columns\n"
                       "          - and a short one\n"
                       "          > look at rank 1's process first\n"));
  EXPECT_THAT(DoctorView(Hung(), SampleNow()), Not(HasSubstr("nodes ")));
}

TEST(DoctorView, FitsATerminalAndBreaksNoCommand) {
  v1::DiagnoseResponse response = Hung();
  const std::string command = "gradgatectl policy set digits enforcement=enforce mode=window";
  response.mutable_verdicts(0)->add_advice("the job is audited; to reduce once: " + command +
                                           "; or at its next start: GRADGATE=enforce");
  const std::string shown = DoctorView(response, SampleNow(), 60);
  std::istringstream lines(shown);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.size() <= 60 || line.find("gradgatectl") != std::string::npos) << line;
  }
  EXPECT_THAT(shown, HasSubstr("CRITICAL  window 7: ranks 0, 2 have waited 18.2 s for rank 1\n          [hung]\n"));
  EXPECT_THAT(shown, HasSubstr("            " + command + ";\n            or at its next start: GRADGATE=enforce\n"));
}

TEST(DoctorView, SaysWhoAnsweredOfSeveralNodesAndWhatIsOdd) {
  v1::DiagnoseResponse response = Hung();
  v1::NodeAnswer& other = *response.add_nodes();
  other.set_node_name("node-b");
  other.set_answered(true);
  other.set_note("its clock is odd");
  EXPECT_THAT(DoctorView(response, SampleNow()), HasSubstr("nodes     2 of 2 answered\n! node node-b: its clock is odd\n"));
  other.set_answered(false);
  other.set_error("did not answer within 2s");
  EXPECT_THAT(DoctorView(response, SampleNow()),
              HasSubstr("nodes     1 of 2 answered\n! node node-b did not answer within 2s: its ranks are missing here\n"));
}

TEST(DoctorView, EscapesWhatCameFromTrainersAndKeepsKindsItDoesNotKnow) {
  v1::DiagnoseResponse response = Hung();
  response.mutable_verdicts(0)->set_headline("a\x1b[31mb");
  response.mutable_verdicts(0)->set_kind(static_cast<v1::VerdictKind>(99));
  response.mutable_verdicts(0)->set_severity(static_cast<v1::Severity>(9));
  EXPECT_THAT(DoctorView(response, SampleNow()), HasSubstr("?         a\\x1b[31mb [99]\n"));
}

TEST(HasTrouble, BeginsWithAWarning) {
  v1::DiagnoseResponse response = Hung();
  EXPECT_TRUE(HasTrouble(response));
  response.mutable_verdicts(0)->set_severity(v1::SEVERITY_WARNING);
  EXPECT_TRUE(HasTrouble(response));
  response.mutable_verdicts(0)->set_severity(v1::SEVERITY_NOTICE);
  EXPECT_FALSE(HasTrouble(response));
  response.clear_verdicts();
  EXPECT_FALSE(HasTrouble(response));
}

}  // namespace
}  // namespace gradgate::cli
