// What a rank did, told twice: as the loop counted it by itself, and as gradgate's library counted it. They must agree.

#ifndef GRADGATE_EXAMPLES_DIGITS_REPORT_H_
#define GRADGATE_EXAMPLES_DIGITS_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/digits/options.h"
#include "gradgate/gradgate.hpp"

namespace digits {

// Counted in the training loop, from the plan and the mode alone.
struct Counted {
  uint64_t micro_steps = 0;
  uint64_t steps = 0;
  uint64_t windows_full = 0;
  uint64_t windows_partial = 0;
  uint64_t windows_empty = 0;
  uint64_t items = 0;
  uint64_t reductions = 0;
  uint64_t reductions_in_full_windows = 0;
  uint64_t suppressed = 0;
  uint64_t gradient_collectives = 0;
  uint64_t gradient_bytes = 0;
};

struct RankReport {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint64_t parameter_count = 0;
  uint64_t parameter_hash = 0;
  uint32_t bucket_count = 0;
  double held_out_accuracy = 0;  // 0 to 1
  double train_seconds = 0;      // in windows: no evaluation, no pause
  Counted counted;
  gg_stats stats = GG_STATS_INIT;
  gg_collective_stats all_reduce = GG_COLLECTIVE_STATS_INIT;
};

// Writes one rank's report. Throws std::runtime_error if the file cannot be written.
void WriteRankReport(const std::string& path, const RankReport& report);

// Writes {"options": …, "ranks": […]} from the files of WriteRankReport.
void MergeReports(const std::string& path, const Options& options, const std::vector<std::string>& rank_paths);

}  // namespace digits

#endif  // GRADGATE_EXAMPLES_DIGITS_REPORT_H_
