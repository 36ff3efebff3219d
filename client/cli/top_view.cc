#include "client/cli/top_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/doctor_view.h"
#include "client/cli/format.h"
#include "client/cli/node_view.h"
#include "client/cli/top_tables.h"

namespace gradgate::cli {
namespace {

using Style = TopLine::Style;

constexpr size_t kMostNodeLines = 3;
constexpr size_t kMostVerdictLines = 3;
constexpr size_t kLeastRankRows = 3;

class Lines {
 public:
  explicit Lines(const TopFrame& frame) : frame_(frame) {}

  void Add(absl::string_view text, Style style) {
    std::string cells = Cells(text, frame_.charset);
    if (frame_.columns > 0) cells = Clip(std::move(cells), frame_.columns, frame_.charset);
    lines_.push_back({std::move(cells), style});
  }

  // A line each, of a text that ends in newlines; at most `most`, 0: all.
  void AddText(absl::string_view text, Style style, size_t most = 0) {
    const std::vector<absl::string_view> all = absl::StrSplit(text, '\n', absl::SkipEmpty());
    const size_t shown = most == 0 ? all.size() : std::min(most, all.size());
    for (size_t i = 0; i < shown; ++i) Add(all[i], style);
    if (shown < all.size()) Add(absl::StrCat("  and ", all.size() - shown, " more"), style);
  }

  size_t size() const { return lines_.size(); }

  // Of `rows` of the frame, those not taken yet, less `kept`; without a limit, as many as one likes.
  size_t Left(size_t kept) const {
    if (frame_.rows == 0) return SIZE_MAX;
    return frame_.rows > lines_.size() + kept ? frame_.rows - lines_.size() - kept : 0;
  }

  void PadTo(size_t rows) {
    while (lines_.size() < rows) lines_.push_back({});
  }

  std::vector<TopLine> Take() {
    if (frame_.rows > 0 && lines_.size() > frame_.rows) lines_.resize(frame_.rows);
    return std::move(lines_);
  }

 private:
  const TopFrame& frame_;
  std::vector<TopLine> lines_;
};

std::string Clock(absl::Time time) { return absl::FormatTime("%H:%M:%SZ", time, absl::UTCTimeZone()); }

// What matters most first: a narrow screen cuts the rest.
std::string JobLine(const v1::Job& job, absl::Time now) {
  const absl::Time end = job.has_end_time() ? ToTime(job.end_time()) : now;
  return absl::StrCat(Printable(job.job_name()), "  ", Word(job.state()), "  mode ", Word(job.sync_mode()), " (",
                      Word(job.enforcement()), ")  N ", job.accumulate() == 0 ? "-" : absl::StrCat(job.accumulate()), "  for ",
                      HumanDuration(end - ToTime(job.start_time())), "  run ", Printable(job.run_id()), "  attempt ",
                      job.attempt());
}

void AddTitle(const TopModel& model, const TopFrame& frame, const TopPlace& place, Lines* lines) {
  lines->Add(absl::StrCat("gradgatectl top  ", frame.address, "  ",
                          model.answered_at() == absl::InfinitePast() ? "no answer yet" : Clock(model.answered_at()),
                          "  every ", HumanDuration(frame.interval), place.paused ? "  PAUSED" : ""),
             Style::kTitle);
  if (!model.status().ok()) {
    const std::string since = model.answered_at() == absl::InfinitePast()
                                  ? ""
                                  : absl::StrCat(" for ", HumanDuration(frame.now - model.answered_at()));
    lines->Add(absl::StrCat("! no answer", since, ", trying on: ", Printable(model.status().message())), Style::kTrouble);
  }
}

void AddTable(const TopTable& table, size_t first, size_t count, Lines* lines) {
  lines->Add(table.head, Style::kHead);
  const size_t end = count > table.rows.size() - first ? table.rows.size() : first + count;
  for (size_t i = first; i < end; ++i) lines->Add(table.rows[i].text, table.rows[i].style);
}

// A third of the screen at most, around the selected one.
void AddJobs(const TopModel& model, const TopFrame& frame, const TopJob* selected, Lines* lines) {
  const TopTable table = TopJobsTable(model, selected, frame);
  const size_t most =
      frame.rows == 0 ? table.rows.size() : std::max<size_t>(1, frame.rows / 3 - std::min<size_t>(2, frame.rows / 3));
  const size_t at = selected == nullptr ? 0 : static_cast<size_t>(selected - model.jobs().data());
  size_t first = at >= most ? at - most + 1 : 0;
  if (first + most > table.rows.size()) first = table.rows.size() > most ? table.rows.size() - most : 0;
  AddTable(table, first, most, lines);
}

void AddVerdicts(const TopModel& model, const TopJob& job, Lines* lines) {
  const auto* const diagnosis = model.DiagnosisOf(job);
  if (diagnosis == nullptr) return;
  if (!diagnosis->ok()) {
    lines->Add(absl::StrCat("! the doctor did not answer: ", Printable(diagnosis->status().message())), Style::kTrouble);
    return;
  }
  size_t shown = 0;
  for (const v1::Verdict& verdict : (*diagnosis)->verdicts()) {
    if (shown++ == kMostVerdictLines) break;
    const bool bad = verdict.severity() > v1::SEVERITY_NOTICE;
    lines->Add(absl::StrCat(bad ? "! " : "  ", SeverityWord(verdict.severity()), "  ", Printable(verdict.headline()), "  [",
                            VerdictWord(verdict.kind()), "]"),
               bad ? Style::kTrouble : Style::kPlain);
  }
  const auto more = static_cast<size_t>((*diagnosis)->verdicts_size());
  if (more > kMostVerdictLines) lines->Add(absl::StrCat("  and ", more - kMostVerdictLines, " more"), Style::kPlain);
}

void AddRanks(const TopModel& model, const TopJob& job, const TopFrame& frame, TopPlace* place, Lines* lines) {
  const TopTable table = TopRanksTable(model, job, place->sort, frame);
  const size_t room = std::max(kLeastRankRows, lines->Left(2));
  const size_t last_first = table.rows.size() > room ? table.rows.size() - room : 0;
  place->first_rank = std::min(place->first_rank, last_first);
  AddTable(table, place->first_rank, room, lines);
}

}  // namespace

const char* TopSortName(TopSort sort) {
  constexpr const char* kNames[kTopSortCount] = {"rank", "trouble", "slowest", "exposed"};
  return kNames[static_cast<int>(sort)];
}

size_t TopPageRanks(const TopFrame& frame) { return std::max<size_t>(1, frame.rows / 3); }

std::vector<TopLine> TopView(const TopModel& model, const TopFrame& frame, TopPlace* place) {
  Lines lines(frame);
  AddTitle(model, frame, *place, &lines);
  const TopJob* const selected = model.Selected(place->selected);
  place->selected = selected == nullptr ? "" : selected->key;
  bool ranks_missing = false;
  for (const TopJob& job : model.jobs()) ranks_missing = ranks_missing || RanksOf(job.job) < job.job.world_size();
  const google::protobuf::RepeatedPtrField<v1::NodeAnswer> nodes(model.nodes().begin(), model.nodes().end());
  lines.AddText(NodeProblems(nodes, ranks_missing), Style::kTrouble, frame.rows == 0 ? 0 : kMostNodeLines);
  if (selected == nullptr) {
    if (model.answered_at() != absl::InfinitePast()) lines.Add("no job yet: a trainer appears once it attaches", Style::kPlain);
  } else {
    AddJobs(model, frame, selected, &lines);
    lines.Add("", Style::kPlain);
    lines.Add(JobLine(selected->job, model.answered_at()), Style::kPlain);
    AddVerdicts(model, *selected, &lines);
    if (selected->counted) AddRanks(model, *selected, frame, place, &lines);
  }
  if (frame.rows > 0) {
    lines.PadTo(frame.rows - 1);
    std::vector<TopLine> all = lines.Take();
    all.resize(frame.rows - 1);
    Lines help(frame);
    help.Add(absl::StrCat("q quit   up/down job   s sort: ", TopSortName(place->sort), "   PgUp/PgDn ranks   p pause"),
             Style::kFaint);
    all.push_back(help.Take().front());
    return all;
  }
  return lines.Take();
}

}  // namespace gradgate::cli
