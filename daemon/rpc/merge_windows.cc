#include "daemon/rpc/merge_windows.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/rpc/merge_jobs.h"

namespace gradgate {
namespace {

constexpr int64_t kMaxPageRecords = 65'536;  // windows of single ranks: some 12 MB

// Never one of a node's own lists, which are made of small numbers.
uint64_t ListOf(const v1::Job& job, bool newest_first) {
  const uint64_t hash = absl::HashOf(std::tie(job.run_id(), job.job_name()), job.user_id(), job.attempt());
  return uint64_t{1} << 63 | (hash >> 1 & ~uint64_t{1}) | (newest_first ? 1 : 0);
}

int64_t RankCount(const v1::Job& job) {
  return int64_t{job.running_rank_count()} + job.finished_rank_count() + job.lost_rank_count() + job.failed_rank_count();
}

// Positions on a page grow in the order asked for.
struct Order {
  bool newest_first;
  int64_t Position(int64_t index) const { return newest_first ? -index : index; }
  int64_t Index(int64_t position) const { return newest_first ? -position : position; }
};

struct Merged {
  v1::Window window;
  struct Place {
    size_t part;
    int index;  // in the window's ranks
  };
  std::map<int32_t, Place> places;  // of each rank
  std::vector<bool> listed_by;      // parts
};

bool EndedLater(const v1::RankWindow& a, const v1::RankWindow& b) {
  const auto end = [](const v1::RankWindow& rank) { return std::pair(rank.end_time().seconds(), rank.end_time().nanos()); };
  return end(a) > end(b);
}

// Adds one part's ranks. Of two records of one rank the later stands; `in_vain` gets the other's part and rank.
void AddPart(size_t part, v1::Window& from, Merged& to, std::set<std::pair<size_t, int32_t>>& in_vain) {
  to.listed_by[part] = true;
  to.window.set_complete(to.window.complete() && from.complete());
  for (v1::RankWindow& rank : *from.mutable_ranks()) {
    const int32_t number = rank.rank();
    const auto [at, fresh] = to.places.emplace(number, Merged::Place{part, to.window.ranks_size()});
    if (fresh) {
      to.window.add_ranks()->Swap(&rank);
      continue;
    }
    v1::RankWindow& former = *to.window.mutable_ranks(at->second.index);
    const bool rather = EndedLater(rank, former);
    in_vain.emplace(rather ? at->second.part : part, number);
    if (!rather) continue;
    former.Swap(&rank);
    at->second.part = part;
  }
}

// By position. Where the page has to end: behind the last window of the first node that has more.
std::map<int64_t, Merged> AllWindows(Parts<v1::ListWindowsResponse>& parts, Order order, int64_t* end_position) {
  std::map<int64_t, Merged> all;
  std::set<std::pair<size_t, int32_t>> in_vain;
  *end_position = INT64_MAX;
  for (size_t i = 0; i < parts.parts.size(); ++i) {
    v1::ListWindowsResponse& part = parts.parts[i].answer;
    for (v1::Window& window : *part.mutable_windows()) {
      const auto [at, fresh] = all.try_emplace(order.Position(window.window_index()));
      if (fresh) {
        at->second.window.set_window_index(window.window_index());
        at->second.window.set_complete(true);
        at->second.listed_by.resize(parts.parts.size());
      }
      AddPart(i, window, at->second, in_vain);
    }
    if (!part.next_page_token().empty()) {
      *end_position = std::min(*end_position, order.Position(part.windows().rbegin()->window_index()));
    }
  }
  std::map<size_t, std::vector<int32_t>> ranks_in_vain;
  for (const auto& [part, rank] : in_vain) ranks_in_vain[part].push_back(rank);
  for (const auto& [part, ranks] : ranks_in_vain) {
    AddNote(absl::StrCat("also claims rank ", absl::StrJoin(ranks, ", "), ", taken from the node whose windows ended later"),
            parts.nodes[parts.parts[part].node]);
  }
  return all;
}

// Whether no node says otherwise, and none is missing that could.
bool IsComplete(const Merged& merged, const Parts<v1::ListWindowsResponse>& parts, bool ranks_missing) {
  if (!merged.window.complete() || ranks_missing) return false;
  for (size_t i = 0; i < parts.parts.size(); ++i) {
    if (!merged.listed_by[i] && merged.window.window_index() >= parts.parts[i].answer.closed_below_index()) return false;
  }
  return true;
}

}  // namespace

size_t WindowsPerPage(size_t page_size, int64_t world_size) {
  const int64_t fitting = std::max<int64_t>(1, kMaxPageRecords / std::max<int64_t>(1, world_size));
  return std::min(page_size, static_cast<size_t>(fitting));
}

absl::StatusOr<v1::ListWindowsRequest> PartOfWindowsPage(const v1::ListWindowsRequest& request, const PageTokens& tokens) {
  absl::StatusOr<size_t> size = CheckPageSize(request.page_size());
  if (!size.ok()) return size.status();
  if (request.has_from_window_index() && request.from_window_index() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("from_window_index is ", request.from_window_index(), ", must not be negative"));
  }
  v1::ListWindowsRequest part = request;
  part.set_page_size(static_cast<int32_t>(*size));
  if (request.page_token().empty()) return part;
  absl::StatusOr<PageStart> start = tokens.Open(request.page_token());
  if (!start.ok()) return start.status();
  part.clear_page_token();
  part.set_from_window_index(static_cast<int64_t>(start->second & INT64_MAX));
  return part;
}

absl::Status CheckWindows(const v1::ListWindowsResponse& part, const v1::ListWindowsRequest& asked) {
  if (absl::Status status = CheckJob(part.job()); !status.ok()) return status;
  if (part.windows().empty() && !part.next_page_token().empty()) return absl::DataLossError("no windows, and more of them");
  const Order order{asked.newest_first()};
  int64_t least = asked.has_from_window_index() ? order.Position(asked.from_window_index()) : -INT64_MAX;
  for (const v1::Window& window : part.windows()) {
    if (window.window_index() < 0 || order.Position(window.window_index()) < least) {
      return absl::DataLossError("windows that were not asked for, or not in order");
    }
    least = order.Position(window.window_index()) + 1;
    std::set<int32_t> ranks;
    for (const v1::RankWindow& rank : window.ranks()) {
      if (rank.rank() < 0 || !ranks.insert(rank.rank()).second)
        return absl::DataLossError("a rank that is negative, or there twice");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ListWindowsResponse> MergeWindows(Parts<v1::ListWindowsResponse> parts,
                                                     const v1::ListWindowsRequest& request, const PageTokens& tokens) {
  absl::StatusOr<size_t> size = CheckPageSize(request.page_size());
  if (!size.ok()) return size.status();
  v1::ListWindowsResponse merged;
  std::vector<const v1::Job*> jobs;
  merged.set_closed_below_index(INT64_MAX);
  merged.set_closed_by_running_index(INT64_MAX);
  for (const auto& part : parts.parts) {
    const v1::ListWindowsResponse& answer = part.answer;
    jobs.push_back(&answer.job());
    merged.set_closed_below_index(std::min(merged.closed_below_index(), answer.closed_below_index()));
    // Daemons of an older version tell the former alone, which is less.
    const int64_t running =
        answer.has_closed_by_running_index() ? answer.closed_by_running_index() : answer.closed_below_index();
    merged.set_closed_by_running_index(std::min(merged.closed_by_running_index(), running));
  }
  *merged.mutable_job() = MergeJob(jobs);
  const uint64_t list = ListOf(merged.job(), request.newest_first());
  if (!request.page_token().empty()) {
    absl::StatusOr<PageStart> start = tokens.Parse(request.page_token(), list);
    if (!start.ok()) return start.status();
  }
  const bool any_silent =
      std::any_of(parts.nodes.begin(), parts.nodes.end(), [](const auto& node) { return !node.answered(); });
  const bool ranks_missing = any_silent && RankCount(merged.job()) < merged.job().world_size();

  const Order order{request.newest_first()};
  int64_t end_position;
  std::map<int64_t, Merged> all = AllWindows(parts, order, &end_position);
  const size_t page_size = WindowsPerPage(*size, merged.job().world_size());
  auto at = all.begin();
  for (; at != all.end() && static_cast<size_t>(merged.windows_size()) < page_size && at->first <= end_position; ++at) {
    at->second.window.set_complete(IsComplete(at->second, parts, ranks_missing));
    std::sort(at->second.window.mutable_ranks()->begin(), at->second.window.mutable_ranks()->end(),
              [](const v1::RankWindow& a, const v1::RankWindow& b) { return a.rank() < b.rank(); });
    merged.add_windows()->Swap(&at->second.window);
  }
  if (at != all.end() || end_position != INT64_MAX) {
    const int64_t first_unread = end_position != INT64_MAX ? end_position + 1 : INT64_MAX;
    const int64_t next = order.Index(std::min(at != all.end() ? at->first : INT64_MAX, first_unread));
    if (next >= 0) merged.set_next_page_token(tokens.Make(PageStart{list, 0, static_cast<uint64_t>(next)}));
  }
  for (v1::NodeAnswer& node : parts.nodes) *merged.add_nodes() = std::move(node);
  return merged;
}

}  // namespace gradgate
