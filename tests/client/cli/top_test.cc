// What gradgatectl top makes of answers: rates, marks, lines that fit, and nothing raw from outside.

#include <clocale>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/top_keys.h"
#include "client/cli/top_model.h"
#include "client/cli/top_rates.h"
#include "client/cli/top_text.h"
#include "client/cli/top_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/samples.h"

namespace gradgate::cli {
namespace {

using gradgate::testing::SampleNow;
using gradgate::testing::SampleStats;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class Utf8Locale : public ::testing::Test {
 protected:
  Utf8Locale() { std::setlocale(LC_CTYPE, "C.UTF-8"); }
  ~Utf8Locale() override { std::setlocale(LC_CTYPE, "C"); }
};

using TopText = Utf8Locale;

TEST_F(TopText, ShowsNothingThatATerminalWouldObey) {
  EXPECT_EQ(Cells("a\x1b[2Jb\x07\r\n\t\x7f", Charset::kUtf8), "a?[2Jb?????");
  EXPECT_EQ(Cells("c1 \xc2\x9b"
                  "5m",
                  Charset::kUtf8),
            "c1 ?5m");
  EXPECT_EQ(Cells("cut \xe2\x82", Charset::kUtf8), "cut ??");
  EXPECT_EQ(Cells("reversed \u202e, joined \u200d", Charset::kUtf8), "reversed ?, joined ?");
  EXPECT_EQ(Cells("overlong \xc0\xaf surrogate \xed\xa0\x80", Charset::kUtf8), "overlong ?? surrogate ???");
  EXPECT_EQ(Cells("größe 名", Charset::kUtf8), "größe 名");
}

TEST_F(TopText, IsAsciiWhereTheLocaleHasNoMore) { EXPECT_EQ(Cells("größe 名 █", Charset::kAscii), "gr??e ? ?"); }

TEST_F(TopText, IsCutToColumnsAndSaysSo) {
  EXPECT_EQ(Clip("abcdef", 6, Charset::kUtf8), "abcdef");
  EXPECT_EQ(Clip("abcdef", 5, Charset::kUtf8), "abcd…");
  EXPECT_EQ(Clip("abcdef", 5, Charset::kAscii), "abcd~");
  EXPECT_EQ(Clip("名名名", 5, Charset::kUtf8), "名名…");
  EXPECT_EQ(Clip("名名名", 4, Charset::kUtf8), "名…");
  EXPECT_EQ(Clip("abc", 0, Charset::kUtf8), "");
  EXPECT_EQ(CellWidth("名a"), 3u);
}

TEST_F(TopText, BarIsFullByItsShare) {
  EXPECT_EQ(Bar(0.3, 10, Charset::kAscii), "###.......");
  EXPECT_EQ(Bar(7, 4, Charset::kAscii), "####");
  EXPECT_EQ(Bar(-1, 4, Charset::kAscii), "....");
  EXPECT_EQ(Bar(0.5, 2, Charset::kUtf8), "█░");
}

Counted At(int64_t steps, int64_t issued) {
  Counted counted;
  counted.step_count = steps;
  counted.issued_count = issued;
  counted.intended_count = steps;
  counted.gradient_bytes = 1000 * steps;
  counted.window = absl::Seconds(steps);
  counted.exposed = absl::Milliseconds(250 * steps);
  return counted;
}

TEST(Rates, NeedTwoReadings) {
  Rates rates;
  EXPECT_FALSE(rates.Recent().has_value());
  rates.Add(SampleNow(), At(100, 400));
  EXPECT_FALSE(rates.Recent().has_value());
  rates.Add(SampleNow() + Rates::kLeast / 2, At(101, 404));
  EXPECT_FALSE(rates.Recent().has_value());
}

TEST(Rates, AreDifferencesOverTime) {
  Rates rates;
  rates.Add(SampleNow(), At(100, 1000));
  rates.Add(SampleNow() + absl::Seconds(2), At(110, 1040));
  const Counted recent = *rates.Recent();
  EXPECT_DOUBLE_EQ(*recent.StepsPerSecond(), 5);
  EXPECT_DOUBLE_EQ(*recent.ReductionsPerStep(), 4);
  EXPECT_DOUBLE_EQ(*recent.IntendedPerStep(), 1);
  EXPECT_DOUBLE_EQ(*recent.WastedShare(), 0.75);
  EXPECT_DOUBLE_EQ(*recent.ExposedShare(), 0.25);
  EXPECT_DOUBLE_EQ(*recent.BytesPerSecond(), 5000);
}

TEST(Rates, AreOfTheLastSecondsWhereThoseHaveEnoughSteps) {
  Rates rates;
  int64_t steps = 0;
  for (int s = 0; s <= 40; s += 2) rates.Add(SampleNow() + absl::Seconds(s), At(steps += s < 20 ? 40 : 4, 0));
  EXPECT_DOUBLE_EQ(*rates.Recent()->StepsPerSecond(), 2);
}

TEST(Rates, RatiosAreOfTheWholeRunWhereTheLastSecondsHaveFewSteps) {
  Rates rates;
  EXPECT_FALSE(rates.ForRatios().has_value());
  rates.Add(SampleNow(), At(100, 100));
  EXPECT_DOUBLE_EQ(*rates.ForRatios()->ReductionsPerStep(), 1);
  rates.Add(SampleNow() + absl::Seconds(12), At(100 + Rates::kEnoughSteps - 1, 176));
  EXPECT_NEAR(*rates.ForRatios()->ReductionsPerStep(), 176.0 / 119, 1e-9);
  rates.Add(SampleNow() + absl::Seconds(24), At(200, 180 + 400 - 80));
  EXPECT_DOUBLE_EQ(*rates.ForRatios()->ReductionsPerStep(), 4);
}

TEST(Rates, OfSlowStepsAreOfALongerTime) {
  Rates rates;
  for (int s = 0; s <= 90; ++s) rates.Add(SampleNow() + absl::Seconds(s), At(s / 15, 0));
  EXPECT_EQ(rates.Recent()->span, Rates::kLong);
  EXPECT_DOUBLE_EQ(*rates.Recent()->StepsPerSecond(), 4.0 / 60);
}

TEST(Rates, WithoutAStepAreUnknownAtFirstThenZero) {
  Rates rates;
  rates.Add(SampleNow(), At(7, 7));
  rates.Add(SampleNow() + absl::Seconds(2), At(7, 7));
  EXPECT_FALSE(rates.Recent().has_value());
  rates.Add(SampleNow() + absl::Seconds(12), At(7, 7));
  EXPECT_DOUBLE_EQ(*rates.Recent()->StepsPerSecond(), 0);
  EXPECT_FALSE(rates.Recent()->ReductionsPerStep().has_value());
  EXPECT_FALSE(rates.Recent()->WastedShare().has_value());
}

TEST(Rates, ForgetWhatWasBeforeWhenACounterOrTheClockGoesBack) {
  Rates rates;
  rates.Add(SampleNow(), At(100, 100));
  rates.Add(SampleNow() + absl::Seconds(5), At(3, 3));
  EXPECT_FALSE(rates.Recent().has_value());
  rates.Add(SampleNow() + absl::Seconds(4), At(5, 5));
  EXPECT_FALSE(rates.Recent().has_value());
  rates.Add(SampleNow() + absl::Seconds(6), At(9, 9));
  EXPECT_DOUBLE_EQ(*rates.Recent()->StepsPerSecond(), 2);
}

TEST(TopKeys, OfCharactersAndSequencesHoweverTheyAreCut) {
  TopKeys keys;
  EXPECT_THAT(keys.Take("sq"), ElementsAre(TopKeyPress::kSort, TopKeyPress::kQuit));
  EXPECT_THAT(keys.Take("\x1b"), IsEmpty());
  EXPECT_THAT(keys.Take("["), IsEmpty());
  EXPECT_THAT(keys.Take("A\x1bOB"), ElementsAre(TopKeyPress::kUp, TopKeyPress::kDown));
  EXPECT_THAT(keys.Take("\x1b[6~\x1b[5~p"), ElementsAre(TopKeyPress::kPageDown, TopKeyPress::kPageUp, TopKeyPress::kPause));
}

TEST(TopKeys, OfSequencesThatMeanNothingThereAreNone) {
  TopKeys keys;
  EXPECT_THAT(keys.Take("\x1b[1;5q\x1b[<0;1;1M\x1bq"), IsEmpty());
  EXPECT_THAT(keys.Take(absl::StrCat("\x1b[", std::string(40, '1'))), IsEmpty());
  EXPECT_THAT(keys.Take("q"), ElementsAre(TopKeyPress::kQuit));
}

// Two ranks, 2 s apart: 10 steps a second with 4 reductions each.
class TopViews : public Utf8Locale {
 protected:
  TopViews() {
    Answer(0);
    Answer(2);
    frame_.address = "/run/gradgate/api.sock";
    frame_.now = SampleNow() + absl::Seconds(2);
    frame_.interval = absl::Seconds(2);
  }

  v1::GetJobStatsResponse StatsAt(int seconds) {
    v1::GetJobStatsResponse stats = SampleStats("digits");
    for (v1::RankStats& rank : *stats.mutable_ranks()) {
      v1::SyncTotals& totals = *rank.mutable_totals();
      totals.set_step_count(totals.step_count() + 10 * seconds);
      totals.set_reduction_intended_count(totals.reduction_intended_count() + 10 * seconds);
      totals.set_reduction_issued_count(totals.reduction_issued_count() + 40 * seconds);
      totals.mutable_window_duration()->set_seconds(10 + seconds);
      totals.mutable_exposed_duration()->set_nanos(250000000 + 250000000 * (seconds / 2));
    }
    return stats;
  }

  TopRound RoundAt(int seconds) {
    TopRound round;
    round.at = SampleNow() + absl::Seconds(seconds);
    v1::GetJobStatsResponse stats = StatsAt(seconds);
    round.jobs = {stats.job()};
    round.stats[TopKey(stats.job())] = stats;
    return round;
  }

  void Answer(int seconds) { model_.Add(RoundAt(seconds)); }

  void Diagnose(v1::VerdictKind kind, std::vector<int> ranks, const std::string& headline) {
    TopRound round = RoundAt(2);
    round.at += absl::Seconds(1);
    round.diagnosed = TopKey(round.jobs[0]);
    round.diagnosis = v1::DiagnoseResponse();
    v1::Verdict& verdict = *round.diagnosis->add_verdicts();
    verdict.set_kind(kind);
    verdict.set_severity(v1::SEVERITY_WARNING);
    verdict.set_headline(headline);
    for (const int rank : ranks) verdict.add_ranks(rank);
    model_.Add(std::move(round));
  }

  std::string Text() {
    std::string text;
    for (const TopLine& line : TopView(model_, frame_, &place_)) absl::StrAppend(&text, line.text, "\n");
    return text;
  }

  std::string LineWith(const std::string& what) {
    for (const TopLine& line : TopView(model_, frame_, &place_)) {
      if (line.text.find(what) != std::string::npos) return line.text;
    }
    return "no line with " + what;
  }

  TopModel model_;
  TopFrame frame_;
  TopPlace place_;
};

TEST_F(TopViews, ShowRatesOfTheJobAndOfEachRank) {
  EXPECT_EQ(LineWith(">"), ">!  digits    running     2/2     10.0      4.00      1.00      12%     75%       0 B/s      126");
  EXPECT_THAT(LineWith("   0  running"), HasSubstr("10.0      4.00      1.00      12%  #.........    0%     75%"));
}

TEST_F(TopViews, BeforeASecondAnswerHaveRatiosOfTheWholeRunAndNoRate) {
  model_ = TopModel();
  Answer(0);
  EXPECT_EQ(LineWith(">"), ">   digits    running     2/2        -      1.00      1.00        -      0%           -      126");
}

TEST_F(TopViews, MarkARankThatTheDoctorNames) {
  Diagnose(v1::VERDICT_KIND_STRAGGLER, {1}, "rank 1 is late");
  EXPECT_THAT(Text(), HasSubstr("! WARNING  rank 1 is late  [straggler]\n"));
  EXPECT_THAT(LineWith("   1  running"), AllOf(StartsWith("! "), HasSubstr("straggler")));
  EXPECT_THAT(LineWith("   0  running"), Not(HasSubstr("straggler")));
}

TEST_F(TopViews, DoNotMarkAllRanksForWhatConcernsAll) {
  Diagnose(v1::VERDICT_KIND_WASTED_REDUCTIONS, {0, 1}, "4 reductions");
  EXPECT_THAT(LineWith("   1  running"), StartsWith("      1"));
}

TEST_F(TopViews, SayNothingOfWasteAfterAFewSteps) {
  model_ = TopModel();
  TopRound round = RoundAt(0);
  for (v1::RankStats& rank : *round.stats.begin()->second.mutable_ranks()) {
    rank.mutable_totals()->set_step_count(5);
    rank.mutable_totals()->set_reduction_intended_count(5);
    rank.mutable_totals()->set_reduction_issued_count(6);  // of the window that is open
  }
  model_.Add(round);
  EXPECT_EQ(LineWith(">"), ">   digits    running     2/2        -      1.20      1.00        -       -           -      126");
}

TEST_F(TopViews, SortByTroubleFirst) {
  Diagnose(v1::VERDICT_KIND_STRAGGLER, {1}, "rank 1 is late");
  place_.sort = TopSort::kTrouble;
  const std::string text = Text();
  EXPECT_LT(text.find("   1  running"), text.find("   0  running"));
}

TEST_F(TopViews, SayThatNothingWasAnsweredAndKeepWhatWas) {
  TopRound round;
  round.status = absl::DeadlineExceededError("silent\x1b[2J");
  model_.Add(round);
  frame_.now += absl::Seconds(7);
  EXPECT_THAT(Text(), HasSubstr("! no answer for 7.0s, trying on: silent\\x1b[2J\n"));
  EXPECT_THAT(LineWith(">"), HasSubstr("10.0"));
  Answer(10);
  EXPECT_THAT(Text(), Not(HasSubstr("no answer")));
}

TEST_F(TopViews, AreNeverLargerThanTheScreen) {
  Diagnose(v1::VERDICT_KIND_STRAGGLER, {1}, std::string(300, 'x'));
  for (size_t rows = 1; rows < 40; ++rows) {
    for (const size_t columns : {1, 7, 20, 41, 80, 200}) {
      frame_.rows = rows;
      frame_.columns = columns;
      const std::vector<TopLine> lines = TopView(model_, frame_, &place_);
      ASSERT_EQ(lines.size(), rows);
      for (const TopLine& line : lines) ASSERT_LE(CellWidth(line.text), columns) << line.text;
    }
  }
}

TEST_F(TopViews, LeaveOutColumnsWhereThereIsNoRoom) {
  frame_.rows = 24;
  frame_.columns = 60;
  EXPECT_THAT(LineWith("RANK  STATE"), AllOf(HasSubstr("RED/STEP"), HasSubstr("EXPOSED"), Not(HasSubstr("BYTES/S"))));
}

TEST_F(TopViews, ScrollNoFurtherThanTheLastRank) {
  frame_.rows = 12;
  frame_.columns = 100;
  place_.first_rank = 1000;
  EXPECT_THAT(Text(), HasSubstr("   1  running"));
  EXPECT_LE(place_.first_rank, 1u);
}

TEST_F(TopViews, ShowNamesWithoutWhatATerminalWouldObey) {
  TopRound round = RoundAt(4);
  round.jobs[0].set_job_name("evil\x1b]0;owned\x07");
  round.stats.begin()->second.mutable_ranks(0)->set_node_name(
      "no\xff"
      "de\u202e");
  model_.Add(round);
  for (const TopLine& line : TopView(model_, frame_, &place_)) {
    for (const char c : line.text) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20) << line.text;
  }
  EXPECT_THAT(Text(), HasSubstr("evil\\x1b]0;owned\\x07"));
  EXPECT_THAT(Text(), HasSubstr("no?de?"));
}

TEST_F(TopViews, SelectAnotherWhereTheSelectedJobIsGone) {
  place_.selected = "1000/gone";
  Text();
  EXPECT_EQ(place_.selected, model_.jobs()[0].key);
}

TEST_F(TopViews, OfALostRankAreOfItsWholeRunWithoutARate) {
  TopRound round = RoundAt(4);
  round.stats.begin()->second.mutable_ranks(1)->set_state(v1::STATE_LOST);
  model_.Add(round);
  EXPECT_THAT(LineWith("   1  lost"), AllOf(StartsWith("! "), HasSubstr("-      1.72")));
}

TEST_F(TopViews, WithoutAJobSaySo) {
  TopRound round;
  round.at = SampleNow();
  model_.Add(round);
  EXPECT_THAT(Text(), HasSubstr("no job yet"));
}

}  // namespace
}  // namespace gradgate::cli
