#include "daemon/metrics/verdict_families.h"

#include <utility>

#include "daemon/metrics/family_builder.h"

namespace gradgate {

prometheus::MetricFamily BuildVerdictFamily(const VerdictCounts& counts) {
  FamilyBuilder verdicts("gradgate_verdicts", "Running jobs here that the doctor finds this of, by this node alone.",
                         prometheus::MetricType::Gauge);
  for (const auto& [kind, count] : counts) verdicts.Add({{"kind", kind}}, static_cast<double>(count));
  std::vector<prometheus::MetricFamily> families;
  verdicts.MoveTo(families);
  return families.empty() ? prometheus::MetricFamily() : std::move(families.front());
}

}  // namespace gradgate
