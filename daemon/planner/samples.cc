#include "daemon/planner/samples.h"

#include <algorithm>
#include <cstdint>

namespace gradgate::planner {
namespace {

double Seconds(const google::protobuf::Duration& d) { return static_cast<double>(d.seconds()) + 1e-9 * d.nanos(); }

double Between(const google::protobuf::Timestamp& from, const google::protobuf::Timestamp& to) {
  return static_cast<double>(to.seconds() - from.seconds()) + 1e-9 * (to.nanos() - from.nanos());
}

double Quantile(std::vector<double>& values, double share) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

bool Usable(const v1::RankWindow& w) {
  return w.kind() == v1::WINDOW_KIND_FULL && !w.failed() && !w.disagreed() && w.micro_step_count() > 0;
}

bool Deferred(const v1::RankWindow& w) { return Seconds(w.suppressed_median_duration()) > 0; }

void Add(const v1::RankWindow& w, WindowSamples* samples) {
  const int rank = w.rank();
  samples->boundary[rank].push_back(Seconds(w.boundary_duration()));
  samples->exposed[rank].push_back(Seconds(w.exposed_duration()));
  samples->micro_steps[rank].push_back(w.micro_step_count());
  if (samples->deferred) samples->suppressed[rank].push_back(Seconds(w.suppressed_median_duration()));
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Summary Summarise(const Samples& samples) {
  std::vector<double> all, medians;
  for (const auto& [rank, values] : samples) {
    if (values.empty()) continue;
    medians.push_back(Median(values));
    all.insert(all.end(), values.begin(), values.end());
  }
  Summary summary;
  if (all.empty()) return summary;
  summary.median = Median(medians);
  summary.count = all.size();
  if (summary.median > 0) summary.spread_share = (Quantile(all, 0.75) - Quantile(all, 0.25)) / 2 / summary.median;
  return summary;
}

size_t WindowSamples::fewest() const {
  size_t fewest = boundary.empty() ? 0 : SIZE_MAX;
  for (const auto& [rank, values] : boundary) fewest = std::min(fewest, values.size());
  return fewest;
}

WindowSamples SamplesOf(absl::Span<const v1::Window> windows) {
  WindowSamples samples;
  const v1::RankWindow* newest = nullptr;
  std::map<int, std::pair<int64_t, const v1::RankWindow*>> after;  // by rank, the window taken before: the next in time
  for (const v1::Window& window : windows) {
    for (const v1::RankWindow& w : window.ranks()) {
      if (!Usable(w) || window.window_index() == 0) continue;
      if (newest == nullptr) {
        newest = &w;
        samples.mode = w.sync_mode();
        samples.late = w.late();
        samples.deferred = Deferred(w);
      }
      const bool alike = w.sync_mode() == samples.mode && w.policy_version() == newest->policy_version() &&
                         w.late() == samples.late && Deferred(w) == samples.deferred;
      if (!alike || samples.boundary[w.rank()].size() >= kLatestWindows) continue;
      Add(w, &samples);
      auto& [index, next] = after[w.rank()];
      if (next != nullptr && index == window.window_index() + 1) {
        samples.period[w.rank()].push_back(Between(w.begin_time(), next->begin_time()));
      }
      index = window.window_index();
      next = &w;
    }
  }
  return samples;
}

}  // namespace gradgate::planner
