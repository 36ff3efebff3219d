// The store's series. Pure.
//
// Thread class: any thread.

#ifndef GRADGATE_DAEMON_METRICS_STORE_FAMILIES_H_
#define GRADGATE_DAEMON_METRICS_STORE_FAMILIES_H_

#include <vector>

#include "daemon/store/store.h"
#include "prometheus/metric_family.h"

namespace gradgate {

void AppendStoreFamilies(const StoreHealth& health, std::vector<prometheus::MetricFamily>& families);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_METRICS_STORE_FAMILIES_H_
