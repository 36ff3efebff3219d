#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/cli/format.h"
#include "client/cli/html/chart.h"
#include "client/cli/html/escape.h"
#include "client/cli/html/table.h"
#include "client/cli/report_sections.h"

namespace gradgate::cli {
namespace {

using html::Text;

std::string Cut(size_t left_out) {
  return absl::StrCat("<span class=\"cut\">", left_out, " ranks between them are not drawn; below are the ", kBestRanksDrawn,
                      " with the least time of their own</span>");
}

std::string NamedBy(const RankReport& rank) {
  std::string named;
  for (const std::string& verdict : rank.verdicts) absl::StrAppend(&named, named.empty() ? "" : ", ", verdict);
  return named;
}

// `most`: the longest window; positive.
std::string Row(const RankReport& rank, double most) {
  const v1::RankStats& stats = *rank.stats;
  const WindowSeconds seconds = rank.seconds.value_or(WindowSeconds{});
  const std::string numbers = rank.seconds.has_value()
                                  ? absl::StrCat(TimeText(seconds.own), " own, ", TimeText(seconds.exposed), " exposed")
                                  : "unknown";
  const std::string named = NamedBy(rank);
  const bool bad = stats.state() == v1::STATE_LOST || stats.state() == v1::STATE_FAILED;
  return absl::StrCat("<span>rank ", stats.rank(), "</span>",
                      html::BarStrip({{"own", seconds.own}, {"exposed", seconds.exposed}}, most,
                                     absl::StrCat("rank ", stats.rank(), ": ", numbers)),
                      "<span class=\"n\">", numbers,
                      bad ? absl::StrCat(" <span class=\"badge critical\">", Text(Word(stats.state())), "</span>") : "",
                      named.empty() ? "" : absl::StrCat(" <span class=\"badge warning\">", Text(named), "</span>"), "</span>");
}

std::string Rows(const RankChoice& choice, double most) {
  if (most <= 0) return "<p class=\"unknown\">The times of all ranks are unknown: no window was closed yet.</p>\n";
  std::string rows = "<div class=\"rows\">";
  for (size_t i = 0; i < choice.ranks.size(); ++i) {
    if (i == choice.worst && choice.left_out > 0) rows += Cut(choice.left_out);
    rows += Row(choice.ranks[i], most);
  }
  return absl::StrCat(rows, "</div>\n", html::Legend({{"own", "own"}, {"exposed", "exposed communication"}}));
}

std::string SpreadTable(const std::vector<double>& own, const std::vector<double>& exposed) {
  if (own.size() < 2) return "";
  html::Table table(absl::StrCat("Spread over ", own.size(), " ranks"),
                    {{"of a window"}, {"least", true}, {"median", true}, {"9 of 10 below", true}, {"most", true}});
  const auto row = [&](const char* what, const Spread& spread) {
    table.AddRow({what, TimeText(spread.least), TimeText(spread.median), TimeText(spread.p90), TimeText(spread.most)});
  };
  row("own", *SpreadOf(own));
  row("exposed", *SpreadOf(exposed));
  return table.Take();
}

std::string RanksTable(const RankChoice& choice) {
  html::Table table("Ranks, the worst first", {{"rank"},
                                               {"state"},
                                               {"named by the doctor"},
                                               {"own", true},
                                               {"exposed", true},
                                               {"waits", true},
                                               {"over"},
                                               {"reductions a step", true},
                                               {"late windows", true},
                                               {"node"}});
  for (const RankReport& rank : choice.ranks) {
    const v1::RankStats& stats = *rank.stats;
    std::optional<double> own, exposed, wait;
    if (rank.seconds.has_value()) {
      own = rank.seconds->own;
      exposed = rank.seconds->exposed;
      wait = rank.seconds->wait;
    }
    const std::string named = NamedBy(rank);
    table.AddRow({absl::StrCat(stats.rank()), Text(Word(stats.state())), named.empty() ? "-" : Text(named), TimeText(own),
                  TimeText(exposed), TimeText(wait),
                  absl::StrCat(rank.window_count, rank.whole_run ? " windows, the whole run" : " windows"),
                  CountText(PerStep(stats.totals().reduction_issued_count(), stats.totals())),
                  absl::StrCat(stats.totals().window_late_count()),
                  html::Name(stats.node_name().empty() ? stats.host_name() : stats.node_name())});
  }
  return table.Take();
}

}  // namespace

RankChoice ChooseRanks(const ReportAnswers& answers) {
  RankChoice choice;
  choice.ranks = WorstFirst(RankReports(answers));
  choice.worst = choice.ranks.size();
  if (choice.ranks.size() <= kMostRanksDrawn) return choice;
  choice.worst = kMostRanksDrawn - kBestRanksDrawn;
  choice.left_out = choice.ranks.size() - kMostRanksDrawn;
  const auto cut = choice.ranks.begin() + static_cast<std::ptrdiff_t>(choice.worst);
  choice.ranks.erase(cut, cut + static_cast<std::ptrdiff_t>(choice.left_out));
  return choice;
}

std::string RanksSection(const ReportAnswers& answers) {
  const RankChoice choice = ChooseRanks(answers);
  const std::vector<RankReport> all = RankReports(answers);
  double most = 0;
  std::vector<double> own, exposed;
  for (const RankReport& rank : all) {
    if (!rank.seconds.has_value()) continue;
    most = std::max(most, rank.seconds->all());
    own.push_back(rank.seconds->own);
    exposed.push_back(rank.seconds->exposed);
  }
  const std::string which = choice.left_out == 0
                                ? "All ranks as a table"
                                : absl::StrCat("These ", choice.ranks.size(), " of ", all.size(), " ranks as a table");
  return absl::StrCat(
      "<section><h2 id=\"ranks\">Ranks and stragglers</h2>\n<p class=\"quiet\">The mean window of each rank, the worst first: "
      "ended badly, named by the doctor, longest time of its own, which the others wait for.</p>\n",
      Rows(choice, most), SpreadTable(own, exposed), html::Details(which, RanksTable(choice)), "</section>\n");
}

}  // namespace gradgate::cli
