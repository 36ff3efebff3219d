#include "daemon/doctor/job_facts.h"

#include <algorithm>
#include <utility>

namespace gradgate::doctor {

absl::Duration ToDuration(const google::protobuf::Duration& duration) {
  constexpr int64_t kMaxSeconds = 315'576'000'000;  // a Duration's own bound
  return absl::Seconds(std::clamp<int64_t>(duration.seconds(), 0, kMaxSeconds)) +
         absl::Nanoseconds(std::clamp<int32_t>(duration.nanos(), 0, 999'999'999));
}

google::protobuf::Duration ToMessage(absl::Duration duration) {
  google::protobuf::Duration out;
  const absl::Duration positive = std::max(duration, absl::ZeroDuration());
  out.set_seconds(absl::ToInt64Seconds(positive));
  out.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(positive - absl::Seconds(out.seconds()))));
  return out;
}

bool Rank::inside_window() const {
  const v1::RankProgress& progress = told->progress();
  return told->stats().micro_step() > 0 || progress.in_micro_step() ||
         progress.gradient_issued_count() + progress.ours_issued_count() > 0;
}

bool Rank::stopped() const {
  const std::string& state = told->process_state();
  return state == "T" || state == "t" || state == "Z";
}

bool Rank::ends_seen() const {
  const auto& cells = told->stats().collectives();
  return std::none_of(cells.begin(), cells.end(), [](const v1::CollectiveStats& cell) { return cell.unknown_count() > 0; });
}

int Rank::first_in_force() const {
  const auto& windows = told->windows();
  int first = windows.size();
  while (first > 0 && windows[first - 1].window().policy_version() == windows[windows.size() - 1].window().policy_version()) {
    --first;
  }
  return first;
}

JobFacts::JobFacts(const Evidence& evidence) : evidence_(evidence) {
  TakeRanks();
  ShareWindows();
}

// A rank that several nodes know moved: the one that runs is meant, else the one that ended last.
void JobFacts::TakeRanks() {
  std::map<int32_t, Rank> by_rank;
  for (const v1::NodeEvidence& node : evidence_.nodes) {
    for (const v1::RankEvidence& told : node.ranks()) {
      const Rank rank{&told, node.node_name()};
      const auto [known, is_new] = by_rank.try_emplace(rank.rank(), rank);
      // One that runs ended 0 s ago.
      if (!is_new && ToDuration(told.ended()) < ToDuration(known->second.told->ended())) known->second = rank;
    }
  }
  for (auto& [number, rank] : by_rank) {
    world_size_ = std::max<int64_t>(world_size_, rank.told->world_size());
    age_ = std::max(age_, ToDuration(rank.told->age()));
    wait_p99_ = std::max(wait_p99_, ToDuration(rank.told->wait_p99()));
    wait_count_ = std::max<int64_t>(wait_count_, rank.told->wait_count());
    if (rank.running()) running_.push_back(rank);
    ranks_.push_back(std::move(rank));
  }
}

void JobFacts::ShareWindows() {
  std::map<int64_t, std::vector<const v1::WindowEvidence*>> windows;
  for (size_t i = 0; i < judged().size(); ++i) {
    for (const v1::WindowEvidence& window : judged()[i].told->windows()) {
      auto& by_rank = windows[window.window_index()];
      if (by_rank.size() == i) by_rank.push_back(&window);  // each rank before this one has it too
    }
  }
  for (auto& [index, by_rank] : windows) {
    if (by_rank.size() == judged().size()) shared_windows_.push_back({index, std::move(by_rank)});
  }
}

bool JobFacts::any_ended_badly() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended_badly(); });
}

absl::Duration JobFacts::hang_threshold() const { return starting() ? kStartingHang : std::max(kLeastHang, 5 * wait_p99_); }

absl::Duration Median(std::vector<absl::Duration> values) {
  if (values.empty()) return absl::ZeroDuration();
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace gradgate::doctor
