// Serves /metrics over HTTP. Each scrape takes one snapshot of the registry, and asks the store how it is.
//
// Thread class: Start() and the destructor from one thread; scrapes run on the server's own threads. The destructor takes up to
// two seconds (the library polls).

#ifndef GRADGATE_DAEMON_METRICS_METRICS_SERVER_H_
#define GRADGATE_DAEMON_METRICS_METRICS_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/metrics/security_families.h"
#include "daemon/metrics/verdict_families.h"
#include "daemon/node/registry.h"
#include "daemon/node/rejection.h"
#include "daemon/store/store.h"

namespace gradgate {

class MetricsServer {
 public:
  // `listen` is host:port or port; port 0: any. No pointer is owned; all outlive this. Without a `store`, `verdicts` or
  // `security`, their series are left out. UNAVAILABLE: the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen, const std::string& version,
                                                              Registry* registry, const RejectionCounts* rejections,
                                                              const Store* store = nullptr, VerdictSource verdicts = nullptr,
                                                              SecuritySource security = nullptr);
  virtual ~MetricsServer() = default;

  // The port in use.
  virtual int port() const = 0;
};

}  // namespace gradgate

#endif  // GRADGATE_DAEMON_METRICS_METRICS_SERVER_H_
