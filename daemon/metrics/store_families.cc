#include "daemon/metrics/store_families.h"

#include "daemon/metrics/family_builder.h"

namespace gradgate {

using prometheus::MetricType;

void AppendStoreFamilies(const StoreHealth& health, std::vector<prometheus::MetricFamily>& families) {
  const auto append = [&families](const char* name, const char* help, MetricType metric_type, double value) {
    FamilyBuilder builder(name, help, metric_type);
    builder.Add({}, value);
    builder.MoveTo(families);
  };
  append("gradgate_store_reachable", "1 while the store answers; a memory or file store always does.", MetricType::Gauge,
         health.reachable ? 1 : 0);
  append("gradgate_store_keys", "Keys known of the store.", MetricType::Gauge, static_cast<double>(health.key_count));
  append("gradgate_store_changes_total", "Changes of keys seen.", MetricType::Counter,
         static_cast<double>(health.change_count));
  append("gradgate_store_errors_total", "Writes that failed, and connections lost.", MetricType::Counter,
         static_cast<double>(health.error_count));
  append("gradgate_store_dropped_total", "Values of others left out: too long, too many, or with keys that are no text.",
         MetricType::Counter, static_cast<double>(health.dropped_count));
}

}  // namespace gradgate
