// The latest windows of a job as samples to take medians of. Pure; any thread.

#ifndef GRADGATE_DAEMON_PLANNER_SAMPLES_H_
#define GRADGATE_DAEMON_PLANNER_SAMPLES_H_

#include <cstddef>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::planner {

inline constexpr size_t kLatestWindows = 32;
inline constexpr size_t kNeededWindows = 3;

// Of one quantity, by rank.
using Samples = std::map<int, std::vector<double>>;

double Median(std::vector<double> values);  // 0 of none

struct Summary {
  double median = 0;        // of ranks' medians
  double spread_share = 0;  // half of the middle half of all samples, as a share of it
  size_t count = 0;
};
Summary Summarise(const Samples& samples);

// Windows that say what a window costs: full, reduced as the newest was, neither failed nor in disagreement; a job's first
// window warms up and is none. Late ones, reduced at the step, are taken where the newest is late.
struct WindowSamples {
  v1::SyncMode mode = v1::SYNC_MODE_UNSPECIFIED;  // of the newest
  bool late = false;
  bool deferred = false;  // it had micro-steps that did not reduce
  Samples suppressed;     // median micro-step of those, seconds
  Samples boundary;       // the micro-step that reduced, with what was waited
  Samples exposed;
  Samples period;  // from begin to begin of windows that follow each other
  Samples micro_steps;

  size_t fewest() const;  // windows of the rank that has fewest; 0 of none
};

// `windows` newest first.
WindowSamples SamplesOf(absl::Span<const v1::Window> windows);

}  // namespace gradgate::planner

#endif  // GRADGATE_DAEMON_PLANNER_SAMPLES_H_
