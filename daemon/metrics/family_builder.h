// A metric family under construction: a name, a help text, and series appended one by one.
//
// Thread class: one thread per object.

#ifndef GRADGATE_DAEMON_METRICS_FAMILY_BUILDER_H_
#define GRADGATE_DAEMON_METRICS_FAMILY_BUILDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/node/histogram.h"
#include "prometheus/metric_family.h"

namespace gradgate {

using Labels = std::vector<prometheus::ClientMetric::Label>;

class FamilyBuilder {
 public:
  FamilyBuilder(std::string name, std::string help, prometheus::MetricType metric_type) {
    family_.name = std::move(name);
    family_.help = std::move(help);
    family_.type = metric_type;
  }

  // Appends a counter's or gauge's series, by the family's type.
  void Add(Labels labels, double value) {
    prometheus::ClientMetric& metric = Append(std::move(labels));
    (family_.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  }

  template <size_t N>
  void Add(Labels labels, const Histogram<N>& histogram, const BoundsNs<N>& bounds) {
    auto& out = Append(std::move(labels)).histogram;
    out.sample_count = histogram.count;
    out.sample_sum = histogram.sum_ns / 1e9;
    uint64_t cumulative = 0;
    for (size_t i = 0; i < N; ++i) {
      cumulative += histogram.counts[i];
      out.bucket.push_back({cumulative, static_cast<double>(bounds[i]) / 1e9});
    }
  }

  // Moves the family into `out`, unless it has no series.
  void MoveTo(std::vector<prometheus::MetricFamily>& out) {
    if (!family_.metric.empty()) out.push_back(std::move(family_));
  }

 private:
  prometheus::ClientMetric& Append(Labels labels) {
    prometheus::ClientMetric& metric = family_.metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  prometheus::MetricFamily family_;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_METRICS_FAMILY_BUILDER_H_
