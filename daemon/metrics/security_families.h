// The series of who may call and who was refused: connections, calls, the audit log, certificates. Pure.
//
// Thread class: any thread; a SecuritySource is called on the server's own threads.

#ifndef GRADGATE_DAEMON_METRICS_SECURITY_FAMILIES_H_
#define GRADGATE_DAEMON_METRICS_SECURITY_FAMILIES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"

namespace gradgate {

// Values of one label, each with its number.
using LabelledCounts = std::vector<std::pair<std::string, uint64_t>>;

struct SecurityCounts {
  LabelledCounts connections;          // open, by listener
  LabelledCounts refused_connections;  // by listener
  uint64_t refused_answers = 0;
  LabelledCounts policy_calls;  // by outcome
  uint64_t audit_lost = 0;
  std::vector<std::pair<std::string, double>> certificate_ends;  // by the flag that names the file; seconds since 1970
};
using SecuritySource = std::function<SecurityCounts()>;

void AppendSecurityFamilies(const SecurityCounts& counts, std::vector<prometheus::MetricFamily>& families);

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_METRICS_SECURITY_FAMILIES_H_
