// The metric family of the doctor's verdicts. A pure function.

#ifndef GRADGATE_DAEMON_METRICS_VERDICT_FAMILIES_H_
#define GRADGATE_DAEMON_METRICS_VERDICT_FAMILIES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "prometheus/metric_family.h"

namespace gradgate {

// Running jobs of this node by the kind of verdict they have; every kind is there, with 0 where no job has it.
using VerdictCounts = std::map<std::string, int64_t>;
// Judges them now. Called on the server's threads.
using VerdictSource = std::function<VerdictCounts()>;

prometheus::MetricFamily BuildVerdictFamily(const VerdictCounts& counts);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_METRICS_VERDICT_FAMILIES_H_
