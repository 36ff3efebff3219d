// Builds the metric families of one scrape from one snapshot of the node. A pure function.
//
// Every metric is named and explained where it is built (families.cc) and listed in daemon/README.md. Labels: `slot` (a small
// reused number), `group` (a role), `op`, `traffic`, `kind`, `reason`; never a window, a step or an identity, except in
// gradgate_rank_info.

#ifndef GRADGATE_DAEMON_METRICS_FAMILIES_H_
#define GRADGATE_DAEMON_METRICS_FAMILIES_H_

#include <string>
#include <vector>

#include "daemon/node/rejection.h"
#include "daemon/node/views.h"
#include "prometheus/metric_family.h"

namespace gradgate {

// All families, those without series left out.
std::vector<prometheus::MetricFamily> BuildFamilies(const NodeView& node, const RejectionCounts& rejections,
                                                    const std::string& version);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_METRICS_FAMILIES_H_
