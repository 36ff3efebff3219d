#include "client/cli/top_tables.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cli/format.h"
#include "client/cli/node_view.h"
#include "client/cli/table.h"

namespace gradgate::cli {
namespace {

using Style = TopLine::Style;

constexpr size_t kNameColumns = 24;
constexpr size_t kTroubleColumns = 32;
constexpr size_t kBarColumns = 10;
constexpr double kWaste = 0.06;  // more than one open window in Rates::kEnoughSteps steps

using Value = std::optional<double> (Counted::*)() const;

std::optional<double> Of(const std::optional<Counted>& recent, Value value) {
  return recent.has_value() ? ((*recent).*value)() : std::nullopt;
}

// Of one that ended there is no rate.
std::string Rate(const std::optional<Counted>& recent) {
  const auto rate = Of(recent, &Counted::StepsPerSecond);
  if (!rate.has_value()) return "-";
  return absl::StrFormat("%.*f", *rate < 9.995 ? 2 : *rate < 999.5 ? 1 : 0, *rate);
}

std::string ByteRate(const std::optional<Counted>& recent) {
  const auto rate = Of(recent, &Counted::BytesPerSecond);
  return rate.has_value() ? absl::StrCat(HumanBytes(static_cast<int64_t>(*rate)), "/s") : "-";
}

std::string PerStep(const std::optional<Counted>& recent, Value value) {
  const auto ratio = Of(recent, value);
  return ratio.has_value() ? absl::StrFormat("%.2f", *ratio) : "-";
}

std::string Percent(const std::optional<Counted>& recent, Value value) {
  const auto share = Of(recent, value);
  return share.has_value() ? absl::StrFormat("%.0f%%", 100 * *share) : "-";
}

std::string ShareBar(const std::optional<Counted>& recent, Charset charset) {
  const auto share = Of(recent, &Counted::ExposedShare);
  return share.has_value() ? Bar(*share, kBarColumns, charset) : "";
}

// Of a few steps it is not known: an open window has issued reductions that are not counted as intended yet.
std::optional<double> Wasted(const std::optional<Counted>& ratios) {
  if (!ratios.has_value() || ratios->step_count < Rates::kEnoughSteps * ratios->rank_count) return std::nullopt;
  return ratios->WastedShare();
}

std::string WastedText(const std::optional<Counted>& ratios) {
  const auto share = Wasted(ratios);
  return share.has_value() ? absl::StrFormat("%.0f%%", 100 * *share) : "-";
}

bool Wastes(const std::optional<Counted>& ratios) { return Wasted(ratios).value_or(0) > kWaste; }

std::string Name(absl::string_view untrusted, const TopFrame& frame) {
  return Clip(Cells(Printable(untrusted), frame.charset), kNameColumns, frame.charset);
}

// Rows of a table that is laid out all at once, so that columns stand still while one scrolls.
TopTable Layout(Table table, std::vector<Style> styles) {
  TopTable out;
  const std::string text = table.All();
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  out.head = lines[0];
  for (size_t i = 0; i < styles.size(); ++i) out.rows.push_back({lines[i + 2], styles[i]});  // behind the underline
  return out;
}

Style JobStyle(const TopJob& job, bool selected) {
  if (selected) return Style::kSelected;
  if (job.job.lost_rank_count() + job.job.failed_rank_count() > 0 || Wastes(job.counts.ratios)) return Style::kTrouble;
  return job.job.state() == v1::STATE_RUNNING ? Style::kPlain : Style::kFaint;
}

Style RankStyle(const TopRank& rank) {
  const v1::State state = rank.stats.state();
  if (!rank.trouble.empty() || state == v1::STATE_LOST || state == v1::STATE_FAILED) return Style::kTrouble;
  return state == v1::STATE_RUNNING ? Style::kPlain : Style::kFaint;
}

bool Before(const TopRank& a, const TopRank& b, TopSort sort) {
  switch (sort) {
    case TopSort::kTrouble:
      return RankStyle(a) == Style::kTrouble && RankStyle(b) != Style::kTrouble;
    case TopSort::kSlowest:
      return Of(a.counts.recent, &Counted::StepsPerSecond).value_or(1e300) <
             Of(b.counts.recent, &Counted::StepsPerSecond).value_or(1e300);
    case TopSort::kExposed:
      return Of(a.counts.recent, &Counted::ExposedShare).value_or(-1) >
             Of(b.counts.recent, &Counted::ExposedShare).value_or(-1);
    case TopSort::kRank:
      break;
  }
  return false;
}

std::string MicroStep(const v1::RankStats& rank, const v1::Job& job) {
  return job.accumulate() == 0 ? absl::StrCat(rank.micro_step()) : absl::StrCat(rank.micro_step(), "/", job.accumulate());
}

}  // namespace

TopTable TopJobsTable(const TopModel& model, const TopJob* selected, const TopFrame& frame) {
  Table table({{"", Align::kLeft, 2},
               {"JOB", Align::kLeft, 8},
               {"STATE", Align::kLeft, 8},
               {"RANKS", Align::kRight, 5},
               {"STEPS/S", Align::kRight, 7, 1},
               {"RED/STEP"},
               {"INTENDED"},
               {"EXPOSED", Align::kRight, 0, 2},
               {"WASTED", Align::kRight, 0, 3},
               {"BYTES/S", Align::kRight, 10, 4},
               {"WINDOWS", Align::kRight, 0, 5}},
              frame.columns);
  std::vector<Style> styles;
  for (const TopJob& job : model.jobs()) {
    const bool is_selected = selected != nullptr && job.key == selected->key;
    table.AddRow({absl::StrCat(is_selected ? ">" : " ", JobStyle(job, false) == Style::kTrouble ? "!" : ""),
                  Name(job.job.job_name(), frame), Word(job.job.state()),
                  absl::StrCat(RanksOf(job.job), "/", job.job.world_size()), Rate(job.counts.recent),
                  PerStep(job.counts.ratios, &Counted::ReductionsPerStep),
                  PerStep(job.counts.ratios, &Counted::IntendedPerStep), Percent(job.counts.recent, &Counted::ExposedShare),
                  WastedText(job.counts.ratios), ByteRate(job.counts.recent), absl::StrCat(job.job.window_count())});
    styles.push_back(JobStyle(job, is_selected));
  }
  return Layout(std::move(table), std::move(styles));
}

TopTable TopRanksTable(const TopModel& model, const TopJob& job, TopSort sort, const TopFrame& frame) {
  std::vector<TopRank> ranks = model.RanksOf(job);
  std::stable_sort(ranks.begin(), ranks.end(), [&](const TopRank& a, const TopRank& b) { return Before(a, b, sort); });
  Table table({{"", Align::kLeft, 1},
               {"RANK", Align::kRight, 4},
               {"STATE", Align::kLeft, 8},
               {"WINDOW", Align::kRight, 6, 4},
               {"MICRO", Align::kRight, 5, 6},
               {"STEPS/S", Align::kRight, 7},
               {"RED/STEP"},
               {"INTENDED", Align::kRight, 0, 2},
               {"EXPOSED", Align::kRight},
               {"", Align::kLeft, kBarColumns, 5},
               {"WAIT", Align::kRight, 4, 3},
               {"WASTED", Align::kRight, 0, 3},
               {"BYTES/S", Align::kRight, 10, 7},
               {"NODE", Align::kLeft, 0, 8},
               {"TROUBLE", Align::kLeft, 0, 1}},
              frame.columns);
  std::vector<Style> styles;
  for (const TopRank& rank : ranks) {
    const Style style = RankStyle(rank);
    table.AddRow({style == Style::kTrouble ? "!" : "", absl::StrCat(rank.stats.rank()), Word(rank.stats.state()),
                  absl::StrCat(rank.stats.window_index()), MicroStep(rank.stats, job.job), Rate(rank.counts.recent),
                  PerStep(rank.counts.ratios, &Counted::ReductionsPerStep),
                  PerStep(rank.counts.ratios, &Counted::IntendedPerStep), Percent(rank.counts.recent, &Counted::ExposedShare),
                  ShareBar(rank.counts.recent, frame.charset), Percent(rank.counts.recent, &Counted::WaitShare),
                  WastedText(rank.counts.ratios), ByteRate(rank.counts.recent),
                  Name(rank.stats.node_name().empty() ? rank.stats.host_name() : rank.stats.node_name(), frame),
                  Clip(rank.trouble, kTroubleColumns, frame.charset)});
    styles.push_back(style);
  }
  return Layout(std::move(table), std::move(styles));
}

}  // namespace gradgate::cli
