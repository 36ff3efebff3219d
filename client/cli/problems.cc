#include "client/cli/problems.h"

#include <cstdint>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/cli/format.h"

namespace gradgate::cli {
namespace {

struct Flag {
  const char* what;
  bool (v1::RankWindow::*is_set)() const;
};
constexpr Flag kFlags[] = {
    {"reduction failed", &v1::RankWindow::failed},
    {"issued reductions differ from the intended ones", &v1::RankWindow::mismatched},
    {"ranks disagreed", &v1::RankWindow::disagreed},
};

struct Count {
  const char* what;
  int64_t (v1::SyncTotals::*value)() const;
};
constexpr Count kCounts[] = {
    {"windows whose issued reductions differ from the intended ones", &v1::SyncTotals::window_mismatched_count},
    {"windows in which ranks disagreed", &v1::SyncTotals::window_disagreed_count},
    {"steps refused", &v1::SyncTotals::refused_count},
    {"warnings", &v1::SyncTotals::warning_count},
    {"events missed", &v1::SyncTotals::event_missed_count},
    {"window records missed", &v1::SyncTotals::window_missed_count},
};

std::set<int> RanksWith(const v1::Window& window, const Flag& flag) {
  std::set<int> ranks;
  for (const v1::RankWindow& rank : window.ranks()) {
    if ((rank.*flag.is_set)()) ranks.insert(rank.rank());
  }
  return ranks;
}

std::string StateLine(const v1::GetJobStatsResponse& response, v1::State state, absl::string_view what) {
  std::set<int> ranks;
  for (const v1::RankStats& rank : response.ranks()) {
    if (rank.state() == state) ranks.insert(rank.rank());
  }
  return ranks.empty() ? "" : absl::StrCat("! ", what, ": ", Ranks(ranks), "\n");
}

std::string CountLine(const std::map<int, int64_t>& counts, absl::string_view what) {
  const std::string by_rank = CountsByRank(counts);
  return by_rank.empty() ? "" : absl::StrCat("! ", what, ": ", by_rank, "\n");
}

}  // namespace

std::string JobProblems(const v1::GetJobStatsResponse& response) {
  std::string lines = StateLine(response, v1::STATE_LOST, "lost, ended without a goodbye");
  lines += StateLine(response, v1::STATE_FAILED, "failed, ended with an error");
  for (const Count& count : kCounts) {
    std::map<int, int64_t> counts;
    for (const v1::RankStats& rank : response.ranks()) counts[rank.rank()] += (rank.totals().*count.value)();
    lines += CountLine(counts, count.what);
  }
  std::map<int, int64_t> failed;
  for (const v1::RankStats& rank : response.ranks()) {
    for (const v1::CollectiveStats& collective : rank.collectives()) failed[rank.rank()] += collective.failed_count();
  }
  return lines + CountLine(failed, "collectives failed");
}

std::string WindowProblems(const v1::Window& window) {
  std::string lines;
  for (const Flag& flag : kFlags) {
    const std::set<int> ranks = RanksWith(window, flag);
    if (!ranks.empty()) {
      absl::StrAppend(&lines, "! window ", window.window_index(), ": ", flag.what, " (", Ranks(ranks), ")\n");
    }
  }
  return lines;
}

std::string WindowProblems(const v1::ListWindowsResponse& response) {
  std::string lines;
  for (const Flag& flag : kFlags) {
    int64_t count = 0;
    const v1::Window* last = nullptr;
    for (const v1::Window& window : response.windows()) {
      if (RanksWith(window, flag).empty()) continue;
      ++count;
      if (last == nullptr || window.window_index() >= last->window_index()) last = &window;
    }
    if (last == nullptr) continue;
    absl::StrAppend(&lines, "! ", flag.what, ": ", count, count == 1 ? " window, " : " windows, the last ",
                    last->window_index(), " (", Ranks(RanksWith(*last, flag)), ")\n");
  }
  return lines;
}

}  // namespace gradgate::cli
