// How fast a rank is now: differences of the counters that its daemon told, over the last seconds. Never from one reading
// alone.
//
// A counter that went back is another process's: what was before is forgotten. One thread per object.

#ifndef GRADGATE_CLIENT_CLI_TOP_RATES_H_
#define GRADGATE_CLIENT_CLI_TOP_RATES_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "gradgate/v1/stats.pb.h"

namespace gradgate::cli {

// Counters, or what was added to them in `span`.
struct Counted {
  absl::Duration span;
  int64_t step_count = 0;
  int64_t issued_count = 0;
  int64_t intended_count = 0;
  int64_t declared_extra_count = 0;
  int64_t gradient_bytes = 0;
  absl::Duration exposed, wait, window;

  // By which steps_per_second of ranks add up to a job's mean.
  int rank_count = 1;

  // Each is unset where there is nothing to divide by: no step, no reduction, no window.
  std::optional<double> StepsPerSecond() const;  // of one rank
  std::optional<double> BytesPerSecond() const;  // of all
  std::optional<double> ReductionsPerStep() const;
  std::optional<double> IntendedPerStep() const;
  std::optional<double> ExposedShare() const;
  std::optional<double> WaitShare() const;
  std::optional<double> WastedShare() const;  // of the issued reductions, those beyond the allowed ones; never below 0

  // Sums; `span` becomes the longer one.
  void Add(const Counted& other);
};

Counted CountedOf(const v1::SyncTotals& totals);

class Rates {
 public:
  // `at`: when the answer came. A time that went back forgets what was before.
  void Add(absl::Time at, const Counted& counters);

  // What was added in the last kShort, or, where that has fewer than kEnoughSteps steps, in up to kLong. Unset: nothing to
  // compare with that is kLeast old, or no step yet in less than kShort.
  std::optional<Counted> Recent() const;

  // What ratios of counts are made of: Recent() where that has kEnoughSteps steps, else the whole run, without a span. Unset:
  // no reading.
  std::optional<Counted> ForRatios() const;

  static constexpr absl::Duration kLeast = absl::Milliseconds(400);
  static constexpr absl::Duration kShort = absl::Seconds(10);
  static constexpr absl::Duration kLong = absl::Seconds(60);
  static constexpr int kEnoughSteps = 20;  // counts are read in the middle of windows: one of them is 5 % then

 private:
  struct Reading {
    absl::Time at;
    Counted counters;
  };
  std::deque<Reading> readings_;  // oldest first; the first one is the last that is at least kLong old
};

}  // namespace gradgate::cli

#endif  // GRADGATE_CLIENT_CLI_TOP_RATES_H_
