#include "daemon/main/daemon.h"

#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/metrics/metrics_server.h"
#include "daemon/node/clock.h"
#include "daemon/node/rejection.h"
#include "daemon/policy/audit_log.h"
#include "daemon/policy/policy_desk.h"
#include "daemon/policy/policy_keeper.h"
#include "daemon/rpc/certificate.h"
#include "daemon/rpc/diagnosis_answer.h"

namespace gradgate {
namespace {

constexpr absl::Duration kRpcGrace = absl::Seconds(1);

void LogToStderr(absl::string_view line) { std::fprintf(stderr, "gradgated: %s\n", std::string(line).c_str()); }

class WiredDaemon final : public Daemon {
 public:
  explicit WiredDaemon(const DaemonOptions& options) : options_(options), registry_(options.registry, &clock_) {}
  ~WiredDaemon() override { ShutDown(); }

  absl::Status Listen();
  void LookAtCertificates();
  SecurityCounts CountSecurity();
  std::string ReadyLine() const override;
  void ShutDown() override;

 private:
  DaemonOptions options_;
  SystemClock clock_;
  RejectionCounts rejections_;
  Registry registry_;
  std::unique_ptr<PolicyDesk> desk_;
  std::unique_ptr<Store> store_;  // behind the desk, which it calls until it is gone
  std::unique_ptr<PolicyKeeper> keeper_;
  std::unique_ptr<ShimListener> listener_;
  std::vector<std::pair<std::string, double>> certificate_ends_;
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<MetricsServer> metrics_;
  std::thread loop_;
};

absl::Status WiredDaemon::Listen() {
  options_.listener.socket_path = absl::StrCat(options_.directory, "/", link::kShimSocketName);
  options_.listener.version = options_.version;
  options_.rpc.version = options_.version;
  options_.rpc.socket_path = absl::StrCat(options_.directory, "/", link::kApiSocketName);

  ListenerCallbacks callbacks;
  callbacks.changed = [this] { rpc_->WakeWatchers(); };
  callbacks.log = LogToStderr;
  auto listener = ShimListener::Create(options_.listener, &clock_, &registry_, &rejections_, std::move(callbacks));
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);

  // After the socket: whoever has that is the only daemon of the directory.
  auto store = OpenStore(options_.store, options_.directory, LogToStderr);
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  desk_ = std::make_unique<PolicyDesk>(store_.get(), &clock_, options_.store.node_name);
  store_->OnChange([desk = desk_.get()](const std::vector<std::string>&) { desk->Refresh(); });
  desk_->Refresh();
  listener_->Offer(desk_.get());
  keeper_ = std::make_unique<PolicyKeeper>(&registry_, desk_.get());
  options_.rpc.store = store_.get();
  options_.rpc.node_name = options_.store.node_name;
  options_.rpc.advertise = options_.store.advertise_address;

  auto audit = AuditLog::Open(options_.audit_log, options_.store.node_name, LogToStderr, &clock_);
  if (!audit.ok()) return audit.status();
  audit_ = *std::move(audit);
  options_.rpc.audit = audit_.get();
  options_.rpc.log = LogToStderr;
  LookAtCertificates();

  auto rpc = RpcServer::Start(options_.rpc, &registry_, desk_.get());
  if (!rpc.ok()) return rpc.status();
  rpc_ = *std::move(rpc);

  if (!options_.metrics_listen.empty()) {
    auto metrics = MetricsServer::Start(
        options_.metrics_listen, options_.version, &registry_, &rejections_, store_.get(),
        [this] { return CountVerdicts(registry_); }, [this] { return CountSecurity(); });
    if (!metrics.ok()) return metrics.status();
    metrics_ = *std::move(metrics);
  }
  loop_ = std::thread([this] { listener_->Run(); });
  AnnounceNode(options_.store, options_.directory, options_.version, rpc_->tcp_port(), options_.rpc.tls.any(), store_.get());
  return AwaitAnnounced(options_.store, store_.get(), LogToStderr);
}

// One that cannot be read is told by who needs it.
void WiredDaemon::LookAtCertificates() {
  const absl::Time now = clock_.Now();
  for (const auto& [flag, path] : {std::pair{"tls_cert", options_.rpc.tls.cert},
                                   {"tls_client_ca", options_.rpc.tls.client_ca},
                                   {"store_cert", options_.store.cert_file},
                                   {"store_ca", options_.store.ca_file}}) {
    if (path.empty()) continue;
    const absl::StatusOr<CertificateLife> life = ReadCertificateLife(path);
    if (!life.ok()) continue;
    certificate_ends_.emplace_back(flag, absl::ToDoubleSeconds(life->end - absl::UnixEpoch()));
    if (const std::string warning = CertificateWarning(flag, path, *life, now); !warning.empty()) LogToStderr(warning);
  }
}

SecurityCounts WiredDaemon::CountSecurity() {
  const RpcCounts rpc = rpc_->counts();
  const AuditCounts audit = audit_->counts();
  SecurityCounts counts;
  counts.connections = {{"api.sock", rpc.socket_connections}, {"tcp", rpc.tcp_connections}};
  counts.refused_connections = {{"api.sock", rpc.refused_socket_connections}, {"tcp", rpc.refused_tcp_connections}};
  counts.refused_answers = rpc.refused_answers;
  counts.policy_calls = {{"accepted", audit.accepted}, {"rejected", audit.rejected}, {"denied", audit.denied}};
  counts.audit_lost = audit.lost;
  counts.certificate_ends = certificate_ends_;
  return counts;
}

std::string WiredDaemon::ReadyLine() const {
  std::string line = absl::StrCat("gradgated ", options_.version, " ready: shim ", options_.listener.socket_path, ", api ",
                                  options_.rpc.socket_path);
  if (rpc_->tcp_port() != 0) {
    const absl::string_view listen = options_.rpc.tcp_listen;
    absl::StrAppend(&line, ", grpc ", listen.substr(0, listen.rfind(':')), ":", rpc_->tcp_port());
  }
  if (metrics_) {
    const absl::string_view listen = options_.metrics_listen;
    const size_t colon = listen.rfind(':');
    const absl::string_view host = colon == absl::string_view::npos ? "127.0.0.1" : listen.substr(0, colon);
    absl::StrAppend(&line, ", metrics http://", host, ":", metrics_->port(), "/metrics");
  }
  return line;
}

// The loop first: its thread wakes watchers until it has ended. Then trainers are let go at once, since the rest takes seconds.
void WiredDaemon::ShutDown() {
  if (loop_.joinable()) {
    listener_->Stop();
    loop_.join();
  }
  listener_.reset();
  if (rpc_) rpc_->ShutDown(kRpcGrace);
  metrics_.reset();
  keeper_.reset();
  store_.reset();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonOptions& options) {
  auto daemon = std::make_unique<WiredDaemon>(options);
  if (absl::Status s = daemon->Listen(); !s.ok()) return s;
  return daemon;
}

}  // namespace gradgate
