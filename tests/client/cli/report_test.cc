// What a report says: the figures, what is unknown, and that nothing from outside is markup.

#include <regex>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/html/chart.h"
#include "client/cli/html/escape.h"
#include "client/cli/report_data.h"
#include "client/cli/report_page.h"
#include "client/cli/report_sections.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/samples.h"

namespace gradgate::cli {
namespace {

using gradgate::testing::SampleNow;
using gradgate::testing::SampleStats;
using gradgate::testing::SampleWindow;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kEvil[] = "</title><script>alert(1)</script>\"'&\x1b[2J\u202e\xff";

// Window i of two ranks: 200 ms with 50 ms exposed, rank 1 with `late_ms` more of its own.
v1::Window TimedWindow(int64_t index, int64_t late_ms = 0) {
  v1::Window window = SampleWindow(index);
  for (v1::RankWindow& rank : *window.mutable_ranks()) {
    rank.set_reduction_issued_count(4);
    rank.set_mismatched(true);
    rank.set_reduction_intended_count(1);
    rank.mutable_begin_time()->set_seconds(1000 + index);
    rank.mutable_begin_time()->clear_nanos();
    rank.mutable_end_time()->set_seconds(1000 + index);
    rank.mutable_end_time()->set_nanos(static_cast<int32_t>(200 + rank.rank() * late_ms) * 1000000);
    rank.mutable_exposed_duration()->set_seconds(0);
    rank.mutable_exposed_duration()->set_nanos(50000000);
  }
  return window;
}

ReportAnswers Answers(int windows = 10) {
  ReportAnswers answers;
  answers.now = SampleNow();
  answers.stats = SampleStats("digits");
  answers.windows = v1::ListWindowsResponse();
  for (int i = 0; i < windows; ++i) *answers.windows->add_windows() = TimedWindow(i);
  answers.diagnosis = v1::DiagnoseResponse();
  v1::Verdict& verdict = *answers.diagnosis->add_verdicts();
  verdict.set_kind(v1::VERDICT_KIND_HEALTHY);
  verdict.set_severity(v1::SEVERITY_OK);
  verdict.set_headline("nothing was found");
  answers.plan = v1::PlanSyncResponse();
  answers.plan->set_advice("stay with window");
  answers.policy = v1::GetPolicyResponse();
  return answers;
}

std::string Page(const ReportAnswers& answers) { return ReportPage(answers, "0.1.0"); }

// Without style and tags, white space as one space.
std::string Words(const std::string& page) {
  const size_t body = page.find("<body>");
  std::string text = std::regex_replace(page.substr(body), std::regex("<[^>]*>"), " ");
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

TEST(Html, TextIsNeverMarkup) {
  EXPECT_EQ(html::Text("<a href=\"x\" b='y'>&"), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
  EXPECT_EQ(html::Text("\x1b[2J\n\x7f\xc2\x85"), "\\x1b[2J\\x0a\\x7f\\x85");
  EXPECT_EQ(html::Text("a\u202eb\u200bc\ufeff"), "a\\x202eb\\x200bc\\xfeff");
  EXPECT_EQ(html::Text("\xff\xe2\x82 ä 名"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd ä 名");
  EXPECT_EQ(html::Sentence("<all"), "&lt;all");
  EXPECT_EQ(html::Sentence("all wait"), "All wait");
}

TEST(Html, NumbersAreShort) {
  EXPECT_EQ(html::Number(1.0), "1");
  EXPECT_EQ(html::Number(0.126), "0.13");
  EXPECT_EQ(html::Number(-0.001), "0");
  EXPECT_EQ(html::Number(1.0 / 0.0), "0");
}

TEST(Html, BarsNeverLeaveTheirPlace) {
  EXPECT_THAT(html::BarStrip({{"own", 3}, {"exposed", 9}}, 4, "x"),
              HasSubstr("<rect class=\"exposed\" x=\"750\" y=\"0\" width=\"250\""));
  EXPECT_THAT(html::SpanStrip({{-5, 50, 7}}, 10, "x"), HasSubstr("M0 26h700"));
}

TEST(Report, TextsOfFigures) {
  EXPECT_EQ(TimeText(std::nullopt), "unknown");
  EXPECT_EQ(TimeText(0.0), "0 s");
  EXPECT_EQ(TimeText(0.0000123), "12.3 µs");
  EXPECT_EQ(TimeText(0.0513), "51.3 ms");
  EXPECT_EQ(TimeText(12.34), "12.3 s");
  EXPECT_EQ(ShareText(std::nullopt), "unknown");
  EXPECT_EQ(ShareText(0), "0 %");
  EXPECT_EQ(ShareText(0.0001), "below 0.1 %");
  EXPECT_EQ(ShareText(0.047), "4.7 %");
  EXPECT_EQ(ShareText(0.731), "73 %");
  EXPECT_EQ(CountText(4), "4.0");
  EXPECT_EQ(CountText(3.746), "3.75");
}

TEST(ReportData, SecondsOfAWindowWithoutTimesAreUnknown) {
  v1::RankWindow window = TimedWindow(3).ranks(0);
  EXPECT_DOUBLE_EQ(SecondsOf(window)->exposed, 0.05);
  EXPECT_DOUBLE_EQ(SecondsOf(window)->own, 0.15);
  window.mutable_exposed_duration()->set_seconds(9);
  EXPECT_DOUBLE_EQ(SecondsOf(window)->exposed, 0.2);
  EXPECT_DOUBLE_EQ(SecondsOf(window)->own, 0);
  window.mutable_end_time()->set_seconds(1);
  EXPECT_FALSE(SecondsOf(window).has_value());
  window.clear_begin_time();
  EXPECT_FALSE(SecondsOf(window).has_value());
}

TEST(ReportData, WindowsAreGroupedEvenly) {
  const std::vector<WindowGroup> groups = GroupWindows(*Answers(10).windows, 4);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[0].first_index, 0);
  EXPECT_EQ(groups[0].last_index, 2);
  EXPECT_EQ(groups[3].first_index, 9);
  EXPECT_EQ(groups[0].count, 6);
  EXPECT_DOUBLE_EQ(groups[0].issued, 4);
  EXPECT_DOUBLE_EQ(groups[0].extra, 3);
  EXPECT_DOUBLE_EQ(groups[0].seconds.own, 0.15);
  EXPECT_TRUE(GroupWindows({}, 4).empty());
}

TEST(ReportData, RankIsOfItsWindowsElseOfItsWholeRun) {
  ReportAnswers answers = Answers();
  const RankReport of_windows = RankReports(answers)[0];
  EXPECT_FALSE(of_windows.whole_run);
  EXPECT_EQ(of_windows.window_count, 10);
  EXPECT_DOUBLE_EQ(of_windows.seconds->all(), 0.2);
  answers.windows = absl::UnavailableError("gone");
  const RankReport of_run = RankReports(answers)[0];
  EXPECT_TRUE(of_run.whole_run);
  EXPECT_EQ(of_run.window_count, 126);
  EXPECT_DOUBLE_EQ(of_run.seconds->all(), 10.0 / 126);
  answers.stats.mutable_ranks(0)->clear_totals();
  EXPECT_FALSE(RankReports(answers)[0].seconds.has_value());
}

TEST(ReportData, WorstFirstIsEndedBadlyThenNamedThenSlow) {
  ReportAnswers answers = Answers();
  for (int i = 2; i < 5; ++i) {
    *answers.stats.add_ranks() = answers.stats.ranks(0);
    answers.stats.mutable_ranks(i)->set_rank(i);
  }
  answers.stats.mutable_ranks(4)->set_state(v1::STATE_LOST);
  v1::Verdict& verdict = *answers.diagnosis->mutable_verdicts(0);
  verdict.set_kind(v1::VERDICT_KIND_STRAGGLER);
  verdict.set_severity(v1::SEVERITY_WARNING);
  verdict.add_ranks(3);
  answers.windows->clear_windows();
  *answers.windows->add_windows() = TimedWindow(0, 100);
  std::vector<int> order;
  for (const RankReport& rank : WorstFirst(RankReports(answers))) order.push_back(rank.stats->rank());
  EXPECT_THAT(order, ElementsAre(4, 3, 1, 0, 2));
}

TEST(ReportData, Spread) {
  EXPECT_FALSE(SpreadOf({}).has_value());
  const Spread spread = *SpreadOf({5, 1, 3});
  EXPECT_EQ(spread.least, 1);
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.most, 5);
}

TEST(ReportData, ReductionsOfARunningJobAreOfClosedWindows) {
  ReportAnswers answers = Answers();
  answers.stats.mutable_totals()->set_reduction_issued_count(answers.stats.totals().reduction_issued_count() +
                                                             8);  // of open windows
  answers.windows->mutable_windows(0)->mutable_ranks(0)->set_unstepped(true);
  const ReductionReport report = ReductionsOf(answers);
  EXPECT_FALSE(report.whole_run);
  EXPECT_EQ(report.window_count, 10);
  EXPECT_EQ(report.step_count, 19);
  EXPECT_EQ(report.issued_count, 80);
  EXPECT_EQ(report.intended_count, 20);
  EXPECT_DOUBLE_EQ(*report.WastedShare(), 0.75);
}

TEST(ReportData, ReductionsOfAFinishedJobAreOfTheWholeRun) {
  ReportAnswers answers = Answers();
  answers.stats.mutable_job()->set_state(v1::STATE_FINISHED);
  answers.stats.mutable_totals()->set_reduction_issued_count(260);
  answers.stats.mutable_totals()->set_reduction_declared_extra_count(8);
  const ReductionReport report = ReductionsOf(answers);
  EXPECT_TRUE(report.whole_run);
  EXPECT_EQ(report.step_count, 252);
  EXPECT_EQ(report.wasted_count, 0);
  EXPECT_FALSE(ReductionsOf({}).WastedShare().has_value());
}

TEST(ReportData, WhatTheFrameworkForcedIsNoWaste) {
  ReportAnswers answers = Answers();
  for (v1::Window& window : *answers.windows->mutable_windows()) {
    for (v1::RankWindow& rank : *window.mutable_ranks()) rank.set_mismatched(false);
  }
  EXPECT_EQ(ReductionsOf(answers).wasted_count, 0);
  EXPECT_DOUBLE_EQ(GroupWindows(*answers.windows, 1)[0].extra, 0);
}

TEST(ReportPage, SaysTheHeadline) {
  const std::string words = Words(Page(Answers()));
  EXPECT_THAT(words, HasSubstr(" 4.0 reductions per optimizer step, 1.0 intended , over the latest 10 closed windows "));
  EXPECT_THAT(words, HasSubstr("Over the whole run it was 1.0 , 1.0 intended."));
  EXPECT_THAT(words, HasSubstr("75 % of the reductions were beyond"));
  EXPECT_THAT(words, HasSubstr("Healthy: Nothing was found"));
}

TEST(ReportPage, OfAFinishedJobSaysWhereTheLatestWindowsDiffer) {
  ReportAnswers answers = Answers();
  answers.stats.mutable_job()->set_state(v1::STATE_FINISHED);
  const std::string words = Words(Page(answers));
  EXPECT_THAT(words, HasSubstr(" 1.0 reductions per optimizer step, 1.0 intended , over the whole run "));
  EXPECT_THAT(words, HasSubstr("In the latest 10 windows it was 4.0 , 1.0 intended."));
  answers.stats.mutable_totals()->set_reduction_issued_count(4 * answers.stats.totals().step_count());
  EXPECT_THAT(Words(Page(answers)), Not(HasSubstr("it was")));
}

TEST(ReportPage, TellsReductionsOfEachGroupApart) {
  ReportAnswers answers = Answers();
  EXPECT_THAT(Words(Page(answers)), Not(HasSubstr("By the groups that reduce")));
  for (v1::RankStats& rank : *answers.stats.mutable_ranks()) {
    v1::RoleTotals& shard = *rank.add_roles();
    shard.set_group(v1::GROUP_ROLE_SHARD);
    shard.set_issued_count(4 * rank.totals().step_count());
  }
  EXPECT_THAT(Words(Page(answers)), HasSubstr("shard 4.0 0.0 0.0"));
}

TEST(ReportPage, LoadsNothingAndRunsNothing) {
  const std::string page = Page(Answers());
  EXPECT_THAT(
      page, HasSubstr("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'"));
  for (const char* const what : {"<script", "src=", "@import", "url(", "http://", "https://", "javascript:"}) {
    EXPECT_THAT(page, Not(HasSubstr(what)));
  }
}

TEST(ReportPage, NothingFromOutsideIsMarkup) {
  ReportAnswers answers = Answers();
  answers.stats.mutable_job()->set_job_name(kEvil);
  answers.stats.mutable_job()->set_run_id(kEvil);
  for (v1::RankStats& rank : *answers.stats.mutable_ranks()) {
    rank.set_node_name(kEvil);
    rank.set_host_name(kEvil);
  }
  v1::NodeAnswer& node = *answers.stats.add_nodes();
  node.set_node_name(kEvil);
  node.set_error(kEvil);
  node.set_note(kEvil);
  v1::Verdict& verdict = *answers.diagnosis->mutable_verdicts(0);
  verdict.set_headline(kEvil);
  verdict.add_evidence(kEvil);
  verdict.add_advice(kEvil);
  answers.plan->set_advice(kEvil);
  answers.plan->set_policy(kEvil);
  *answers.plan->mutable_job() = answers.stats.job();
  answers.plan->add_notes(kEvil);
  answers.plan->add_measurements()->set_what(kEvil);
  answers.policy->mutable_status()->mutable_proposed()->set_version(3);
  answers.policy->mutable_status()->mutable_proposed()->set_actor(kEvil);
  answers.policy->mutable_status()->set_detail(kEvil);
  const std::string page = Page(answers);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(page, Not(HasSubstr("\u202e")));
  EXPECT_THAT(page, Not(HasSubstr("\xff")));
  EXPECT_THAT(page, HasSubstr("&lt;/title&gt;&lt;script&gt;"));
  answers.windows = absl::InternalError(kEvil);
  answers.diagnosis = absl::InternalError(kEvil);
  answers.plan = absl::InternalError(kEvil);
  answers.policy = absl::InternalError(kEvil);
  EXPECT_THAT(Page(answers), Not(HasSubstr("<script")));
}

TEST(ReportPage, SaysWhatIsUnknownAndWhy) {
  ReportAnswers answers = Answers();
  answers.windows = absl::UnavailableError("windows gone");
  answers.diagnosis = absl::UnimplementedError("no doctor here");
  answers.plan = absl::FailedPreconditionError("measured too little");
  answers.policy = absl::DeadlineExceededError("no policy in time");
  const std::string words = Words(Page(answers));
  for (const char* const why : {"windows gone", "no doctor here", "measured too little", "no policy in time"}) {
    EXPECT_THAT(words, HasSubstr(absl::StrCat("Unknown: ", why)));
  }
  EXPECT_THAT(words, HasSubstr("Unknown: The doctor did not answer"));
  EXPECT_THAT(words, HasSubstr("126 windows, the whole run"));
}

TEST(ReportPage, OfAJobThatHasJustBegunDrawsNothingAsZero) {
  ReportAnswers answers;
  answers.now = SampleNow();
  *answers.stats.mutable_job() = SampleStats("digits").job();
  answers.stats.mutable_job()->set_window_count(0);
  answers.stats.add_ranks()->set_rank(0);
  answers.windows = v1::ListWindowsResponse();
  answers.plan = absl::FailedPreconditionError("measured too little");
  const std::string words = Words(Page(answers));
  EXPECT_THAT(words, HasSubstr("unknown No optimizer step was taken yet."));
  EXPECT_THAT(words, HasSubstr("unknown of the time in windows was exposed"));
  EXPECT_THAT(words, HasSubstr("No closed window is kept"));
  EXPECT_THAT(words, HasSubstr("The times of all ranks are unknown"));
  EXPECT_THAT(words, HasSubstr("1 of 2 ranks is not in any answer"));
  EXPECT_THAT(words, HasSubstr("No collective was seen yet."));
}

TEST(ReportPage, WithoutRanksIsAPageAllTheSame) {
  ReportAnswers answers;
  answers.now = SampleNow();
  EXPECT_THAT(Page(answers), HasSubstr("</html>"));
}

TEST(ReportPage, MarksLostAndNamedRanks) {
  ReportAnswers answers = Answers();
  answers.stats.mutable_ranks(0)->set_state(v1::STATE_LOST);
  v1::Verdict& verdict = *answers.diagnosis->mutable_verdicts(0);
  verdict.set_kind(v1::VERDICT_KIND_STRAGGLER);
  verdict.set_severity(v1::SEVERITY_WARNING);
  verdict.add_ranks(1);
  const std::string page = Page(answers);
  EXPECT_THAT(page, HasSubstr("<span class=\"badge critical\">lost</span>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"badge warning\">straggler</span>"));
}

TEST(ReportPage, SaysThatANodeIsMissing) {
  ReportAnswers answers = Answers();
  v1::NodeAnswer& node = *answers.stats.add_nodes();
  node.set_node_name("node-b");
  node.set_error("did not answer within 2 s");
  EXPECT_THAT(Words(Page(answers)), HasSubstr("Node node-b did not answer (did not answer within 2 s): its ranks are missing"));
}

TEST(ReportPage, TimesOfSeveralNodesAreNotCompared) {
  ReportAnswers answers = Answers();
  answers.stats.mutable_ranks(0)->set_node_name("node-a");
  answers.stats.mutable_ranks(1)->set_node_name("node-b");
  EXPECT_THAT(Words(Page(answers)), HasSubstr("Each node's times are by its own clock"));
  EXPECT_THAT(Words(Page(Answers())), Not(HasSubstr("own clock")));
}

// Counted and drawn by name, so that a rank more costs nothing once there are many.
TEST(ReportPage, OfAThousandRanksIsSmall) {
  ReportAnswers answers = Answers(0);
  constexpr int kRanks = 1024;
  const v1::RankStats one = answers.stats.ranks(0);
  answers.stats.clear_ranks();
  for (int i = 0; i < kRanks; ++i) {
    v1::RankStats& rank = *answers.stats.add_ranks();
    rank = one;
    rank.set_rank(i);
    rank.set_node_name(absl::StrCat("node-", i / 8));
  }
  for (int w = 0; w < 64; ++w) {
    v1::Window& window = *answers.windows->add_windows();
    window.set_window_index(w);
    for (int i = 0; i < kRanks; ++i) {
      v1::RankWindow& rank = *window.add_ranks();
      rank = TimedWindow(w, i == 777 ? 300 : 0).ranks(1);
      rank.set_rank(i);
    }
  }
  for (int i = 0; i < 500; ++i) {
    v1::Verdict& verdict = *answers.diagnosis->add_verdicts();
    verdict.set_kind(v1::VERDICT_KIND_RANK_LOST);
    verdict.set_headline(std::string(200, 'x'));
    for (int j = 0; j < 100; ++j) verdict.add_evidence(std::string(80, 'y'));
  }
  const std::string page = Page(answers);
  EXPECT_LT(page.size(), 1000000u);
  const std::string words = Words(page);
  EXPECT_THAT(words, HasSubstr("1000 ranks between them are not drawn"));
  EXPECT_THAT(words, HasSubstr("rank 777 450 ms own"));
  EXPECT_THAT(words, HasSubstr("Spread over 1024 ranks"));
  EXPECT_THAT(words, HasSubstr("128 nodes: "));
}

TEST(ReportPage, EachChartHasATableOrNumbersBesideIt) {
  const std::string page = Page(Answers());
  EXPECT_THAT(page, HasSubstr("<details><summary>The same as a table</summary>"));
  EXPECT_THAT(page, HasSubstr("<details><summary>All ranks as a table</summary>"));
  size_t charts = 0, labels = 0;
  for (size_t at = page.find("role=\"img\""); at != std::string::npos; at = page.find("role=\"img\"", at + 1)) ++charts;
  constexpr char kLabelled[] = "role=\"img\" aria-label=\"";
  for (size_t at = page.find(kLabelled); at != std::string::npos; at = page.find(kLabelled, at + 1)) ++labels;
  EXPECT_EQ(charts, labels);
  EXPECT_GE(charts, 6u);
}

}  // namespace
}  // namespace gradgate::cli
