#include "daemon/metrics/metrics_server.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/metrics/families.h"
#include "daemon/metrics/store_families.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"

namespace gradgate {
namespace {

class RegistryCollectable final : public prometheus::Collectable {
 public:
  RegistryCollectable(std::string version, Registry* registry, const RejectionCounts* rejections, const Store* store,
                      VerdictSource verdicts, SecuritySource security)
      : version_(std::move(version)),
        registry_(registry),
        rejections_(rejections),
        store_(store),
        verdicts_(std::move(verdicts)),
        security_(std::move(security)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families = BuildFamilies(registry_->GetNode(), *rejections_, version_);
    if (store_ != nullptr) AppendStoreFamilies(store_->Health(), families);
    if (verdicts_) families.push_back(BuildVerdictFamily(verdicts_()));
    if (security_) AppendSecurityFamilies(security_(), families);
    return families;
  }

 private:
  const std::string version_;
  Registry* const registry_;
  const RejectionCounts* const rejections_;
  const Store* const store_;
  const VerdictSource verdicts_;
  const SecuritySource security_;
};

// A scraper that stops talking holds one of the server's threads for two seconds at most.
std::vector<std::string> ServerOptions(const std::string& listen) {
  return {"listening_ports", listen, "num_threads", "4", "request_timeout_ms", "2000", "keep_alive_timeout_ms", "500"};
}

class ExposerMetricsServer final : public MetricsServer {
 public:
  ExposerMetricsServer(const std::string& listen, const std::string& version, Registry* registry,
                       const RejectionCounts* rejections, const Store* store, VerdictSource verdicts, SecuritySource security)
      : collectable_(std::make_shared<RegistryCollectable>(version, registry, rejections, store, std::move(verdicts),
                                                           std::move(security))),
        exposer_(ServerOptions(listen)) {
    exposer_.RegisterCollectable(collectable_);
  }

  int port() const override { return exposer_.GetListeningPorts().front(); }

 private:
  const std::shared_ptr<RegistryCollectable> collectable_;
  prometheus::Exposer exposer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& listen, const std::string& version,
                                                                    Registry* registry, const RejectionCounts* rejections,
                                                                    const Store* store, VerdictSource verdicts,
                                                                    SecuritySource security) {
  // The library's only way to say that it cannot listen.
  try {
    auto server = std::make_unique<ExposerMetricsServer>(listen, version, registry, rejections, store, std::move(verdicts),
                                                         std::move(security));
    return server;
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", listen, ": ", error.what(),
                                               "; choose another --metrics_listen, port 0 for any, or \"\" for none"));
  }
}

}  // namespace gradgate
