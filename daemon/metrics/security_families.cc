#include "daemon/metrics/security_families.h"

#include "daemon/metrics/family_builder.h"

namespace gradgate {

using prometheus::MetricType;

void AppendSecurityFamilies(const SecurityCounts& counts, std::vector<prometheus::MetricFamily>& families) {
  const auto append = [&families](const char* name, const char* help, MetricType metric_type, const char* label,
                                  const auto& series) {
    FamilyBuilder builder(name, help, metric_type);
    for (const auto& [value, number] : series) builder.Add({{label, value}}, static_cast<double>(number));
    builder.MoveTo(families);
  };
  const auto append_one = [&families](const char* name, const char* help, uint64_t value) {
    FamilyBuilder builder(name, help, MetricType::Counter);
    builder.Add({}, static_cast<double>(value));
    builder.MoveTo(families);
  };
  append("gradgate_rpc_connections", "Connections of gRPC clients that are open.", MetricType::Gauge, "listener",
         counts.connections);
  append("gradgate_rpc_connections_refused_total", "Connections beyond --max_connections, or beyond one peer's share of it.",
         MetricType::Counter, "listener", counts.refused_connections);
  append_one("gradgate_rpc_answers_refused_total", "Answers not sent, since too much was waiting to be read already.",
             counts.refused_answers);
  append("gradgate_policy_calls_total", "Calls that change a policy, or try to, by what became of them.", MetricType::Counter,
         "outcome", counts.policy_calls);
  append_one("gradgate_audit_lost_total", "Records of the audit log that were left out, or could not be written.",
             counts.audit_lost);
  append("gradgate_certificate_expiry_timestamp_seconds", "When the certificate of a flag ends, as it was read at the start.",
         MetricType::Gauge, "flag", counts.certificate_ends);
}

}  // namespace gradgate
