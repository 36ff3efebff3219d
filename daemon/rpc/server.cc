#include "daemon/rpc/server.h"

#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/rpc/answer_budget.h"
#include "daemon/rpc/caller.h"
#include "daemon/rpc/diagnosis_service.h"
#include "daemon/rpc/front_door.h"
#include "daemon/rpc/method_gate.h"
#include "daemon/rpc/peers.h"
#include "daemon/rpc/policy_audit.h"
#include "daemon/rpc/policy_service.h"
#include "daemon/rpc/stats_service.h"
#include "daemon/rpc/watch_hub.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_posix.h"

namespace gradgate {
namespace {

constexpr int kMaxRequestBytes = 64 * 1024;
constexpr int kMaxStreamsPerConnection = 128;
constexpr int kMaxIdleMs = 10 * 60 * 1000;  // a connection without calls
constexpr int kKeepaliveMs = 60 * 1000;     // a watcher whose machine is gone is noticed
constexpr int kKeepaliveTimeoutMs = 20 * 1000;
constexpr size_t kTransportBytes = size_t{64} << 20;

uint64_t RandomKey() {
  std::random_device random;
  return static_cast<uint64_t>(random()) << 32 | random();
}

// A daemon is a client of the others by the certificate with which it serves.
PeersOptions ToPeers(const RpcOptions& options) {
  return {.node_name = options.node_name,
          .address = options.advertise,
          .tls = {.ca_file = options.tls.client_ca, .cert_file = options.tls.cert, .key_file = options.tls.key}};
}

class GrpcRpcServer final : public RpcServer {
 public:
  GrpcRpcServer(const RpcOptions& options, Registry* registry, PolicyDesk* desk)
      : audit_(options.audit),
        budget_(options.max_answer_bytes),
        door_(options.max_connections, options.log),
        hub_(options.max_watchers),
        peers_(Peers::Create(options.store, ToPeers(options))),
        service_(registry, &hub_, peers_.get(), options.store, PageTokens(RandomKey()), {options.version, absl::Now()}),
        diagnosis_(registry, peers_.get(), options.store, PageTokens(RandomKey())) {
    if (desk == nullptr) return;
    policy_reader_.emplace(registry, desk, peers_.get(), options.node_name);
    const auto caller_of = [this](const grpc::CallbackServerContext& context) {
      return CallerOf(context.auth_context().get(), context.peer(), door_.sockets());
    };
    policy_service_.emplace(&*policy_reader_, desk, PolicyService::Options{options.max_watchers, caller_of, options.audit});
  }
  ~GrpcRpcServer() override { ShutDown(absl::ZeroDuration()); }

  absl::Status Listen(const RpcOptions& options);

  int tcp_port() const override { return door_.tcp_port(); }
  RpcCounts counts() override;
  void WakeWatchers() override { hub_.WakeAll(); }
  void ShutDown(absl::Duration grace) override;

 private:
  void Limit(const RpcOptions& options, grpc::ServerBuilder* builder);
  absl::Status PrepareTcp(const RpcOptions& options, grpc::ServerBuilder* builder);
  void Denied(const Caller& caller, const std::string& method, const absl::Status& why);
  std::string PeerName(const std::string& grpc_peer);

  AuditLog* const audit_;
  AnswerBudget budget_;
  FrontDoor door_;
  WatchHub hub_;
  const std::unique_ptr<Peers> peers_;
  StatsService service_;
  std::optional<PolicyReader> policy_reader_;
  std::optional<PolicyService> policy_service_;
  DiagnosisService diagnosis_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;  // null: no TCP
  std::unique_ptr<grpc::Server> server_;
};

void GrpcRpcServer::Limit(const RpcOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(options.handshake_timeout)));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->SetResourceQuota(grpc::ResourceQuota("gradgated").Resize(kTransportBytes));
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(budget_.MakeInterceptors([this](const std::string& peer) { return PeerName(peer); }));
  builder->experimental().SetInterceptorCreators(std::move(interceptors));
}

absl::Status GrpcRpcServer::PrepareTcp(const RpcOptions& options, grpc::ServerBuilder* builder) {
  absl::StatusOr<HostPort> address = ParseHostPort(options.tcp_listen);
  if (!address.ok()) return absl::InvalidArgumentError(absl::StrCat("--grpc_listen: ", address.status().message()));
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials = MakeTcpCredentials(*address, options.tls);
  if (!credentials.ok()) return credentials.status();
  if (options.tls.any()) {
    (*credentials)->SetAuthMetadataProcessor(std::make_shared<MethodGate>([this](const auto&... refusal) {
      Denied(refusal...);
    }));
  }
  if (absl::Status s = door_.BindTcp(*address); !s.ok()) return s;
  acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, *credentials);
  return absl::OkStatus();
}

absl::Status GrpcRpcServer::Listen(const RpcOptions& options) {
  grpc::ServerBuilder builder;
  Limit(options, &builder);
  builder.RegisterService(&service_);
  if (policy_service_) builder.RegisterService(&*policy_service_);
  builder.RegisterService(&diagnosis_);
  if (absl::Status s = door_.BindSocket(options.socket_path); !s.ok()) return s;
  if (!options.tcp_listen.empty()) {
    if (absl::Status s = PrepareTcp(options, &builder); !s.ok()) return s;
  }
  server_ = builder.BuildAndStart();
  if (!server_) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve gRPC on ", options.tcp_listen, ": the certificates do not fit, or are none"));
  }
  for (const char* service : {v1::SyncStatsService::service_full_name(), v1::DiagnosisService::service_full_name()}) {
    server_->GetHealthCheckService()->SetServingStatus(service, true);
  }
  if (policy_service_) server_->GetHealthCheckService()->SetServingStatus(v1::PolicyService::service_full_name(), true);
  return door_.Open([this](int fd) { grpc::AddInsecureChannelFromFd(server_.get(), fd); },
                    [this](int fd) {
                      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
                      connection.fd = fd;
                      acceptor_->HandleNewConnection(&connection);
                    });
}

// Over TLS, of a method that access.h does not let the caller have; what SetPolicy refuses it tells itself.
void GrpcRpcServer::Denied(const Caller& caller, const std::string& method, const absl::Status& why) {
  if (audit_ == nullptr) return;
  v1::AuditRecord record;
  *record.mutable_caller() = ToMessage(caller);
  record.set_method(method);
  NoteDenied(why, &record);
  audit_->Add(std::move(record));
}

std::string GrpcRpcServer::PeerName(const std::string& grpc_peer) {
  if (const std::optional<uint32_t> uid = door_.sockets()->UidOf(grpc_peer)) return absl::StrCat("uid ", *uid);
  return grpc_peer.substr(0, grpc_peer.rfind(':'));
}

RpcCounts GrpcRpcServer::counts() {
  RpcCounts counts;
  counts.socket_connections = door_.sockets()->Count();
  counts.tcp_connections = door_.tcp()->Count();
  counts.refused_socket_connections = door_.sockets()->refused_count();
  counts.refused_tcp_connections = door_.tcp()->refused_count();
  counts.refused_answers = budget_.refused_count();
  return counts;
}

void GrpcRpcServer::ShutDown(absl::Duration grace) {
  door_.Close();
  if (!server_) return;
  server_->GetHealthCheckService()->Shutdown();
  hub_.ShutDown();
  if (policy_service_) policy_service_->ShutDown();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  server_.reset();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcOptions& options, Registry* registry, PolicyDesk* desk) {
  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto server = std::make_unique<GrpcRpcServer>(options, registry, desk);
  if (absl::Status s = server->Listen(options); !s.ok()) return s;
  return server;
}

}  // namespace gradgate
