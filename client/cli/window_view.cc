#include "client/cli/window_view.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/format.h"
#include "client/cli/job_view.h"
#include "client/cli/node_view.h"
#include "client/cli/problems.h"

namespace gradgate::cli {
namespace {

constexpr size_t kFlagWidth = 11;  // "mismatched,"

std::string Flags(const v1::Window& window, const v1::RankWindow& rank) {
  std::vector<const char*> flags;
  if (rank.failed()) flags.push_back("failed");
  if (rank.mismatched()) flags.push_back("mismatched");
  if (rank.disagreed()) flags.push_back("disagreed");
  if (rank.unstepped()) flags.push_back("unstepped");
  if (rank.late()) flags.push_back("late");
  if (!window.complete()) flags.push_back("incomplete");
  return absl::StrJoin(flags, ",");
}

}  // namespace

// Widths for rows that come one by one: they seldom need more.
WindowRows::WindowRows(size_t width)
    : table_({{"window", Align::kRight, 8},
              {"rank", Align::kRight, 4},
              {"kind", Align::kLeft, 7},
              {"steps", Align::kRight, 5},
              {"min-max", Align::kRight, 7, 4},
              {"reds", Align::kRight, 5},
              {"at", Align::kRight, 3},
              {"late", Align::kRight, 4, 2},
              {"bytes", Align::kRight, 11, 5},
              {"", Align::kLeft, 7, 3},
              {"exposed ms", Align::kRight, 10},
              {"wait ms", Align::kRight, 10, 1},
              {"flags", Align::kLeft, width == 0 ? 0 : kFlagWidth, 0, kFlagWidth}},
             width) {}

void WindowRows::Add(const v1::Window& window) {
  for (const v1::RankWindow& rank : window.ranks()) {
    const int planned = rank.planned_micro_step_count();
    table_.AddRow({absl::StrCat(window.window_index()), absl::StrCat(rank.rank()), Word(rank.kind()),
                   absl::StrCat(rank.micro_step_count(), "/", planned == 0 ? "-" : absl::StrCat(planned)),
                   absl::StrCat(rank.min_micro_step_count(), "-", rank.max_micro_step_count()),
                   absl::StrCat(rank.reduction_issued_count(), "/", rank.reduction_intended_count()),
                   rank.last_reduction_at() == 0 ? "-" : absl::StrCat(rank.last_reduction_at()),
                   absl::StrCat(rank.reduction_late_count()), absl::StrCat(rank.gradient_bytes()),
                   HumanBytes(rank.gradient_bytes()), Milliseconds(rank.exposed_duration()), Milliseconds(rank.wait_duration()),
                   Flags(window, rank)});
  }
}

std::string WindowsView(const v1::ListWindowsResponse& response, size_t width) {
  WindowRows rows(width);
  for (const v1::Window& window : response.windows()) rows.Add(window);
  const std::string nodes = NodeProblems(response.nodes(), RanksOf(response.job()) < response.job().world_size());
  if (response.windows().empty()) return nodes + "no closed window kept\n";
  return nodes + WindowProblems(response) + rows.All();
}

std::string WatchView::Header() {
  const std::string header = rows_.Header();
  return rows_.Note() + header;
}

std::string WatchView::Next(const v1::WatchWindowsResponse& message, absl::Time now) {
  std::string text;
  if (!message.nodes().empty()) text = nodes_.Next(message.nodes());
  if (message.skipped_count() > 0) {
    absl::StrAppend(&text, "! ", message.skipped_count(), " windows skipped here: this watcher was too slow for them\n");
  }
  if (message.has_window()) {
    rows_.Add(message.window());
    absl::StrAppend(&text, rows_.TakeRows(), WindowProblems(message.window()));
  }
  if (message.has_ended_job()) {
    const v1::Job& job = message.ended_job();
    absl::StrAppend(&text, job.state() == v1::STATE_FINISHED ? "" : "! ", "job ended: ", JobHeadLine(job, now));
  }
  return text;
}

}  // namespace gradgate::cli
