// Adds the counts of ranks up, as messages have them. Sums stop at INT64_MAX; negative counts, which no rank has, count as 0.
//
// One thread.

#ifndef GRADGATE_DAEMON_RPC_SUMS_H_
#define GRADGATE_DAEMON_RPC_SUMS_H_

#include <cstdint>
#include <map>
#include <utility>

#include "gradgate/v1/stats.pb.h"

namespace gradgate {

int64_t AddCounts(int64_t a, int64_t b);

class Sums {
 public:
  void Add(const v1::RankStats& rank);

  // Sets totals and collectives; by role and operation, without last times.
  void Fill(v1::GetJobStatsResponse* response) const;

 private:
  v1::SyncTotals totals_;
  std::map<std::pair<int, int>, v1::CollectiveStats> collectives_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_RPC_SUMS_H_
