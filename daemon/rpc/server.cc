#include "daemon/rpc/server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/socket_file.h"
#include "daemon/rpc/diagnosis_service.h"
#include "daemon/rpc/peers.h"
#include "daemon/rpc/policy_service.h"
#include "daemon/rpc/stats_service.h"
#include "daemon/rpc/watch_hub.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"

namespace gradgate {
namespace {

constexpr int kMaxRequestBytes = 64 * 1024;
constexpr int kMaxStreamsPerConnection = 128;

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
      : socket_path_(options.socket_path),
        hub_(options.max_watchers),
        peers_(Peers::Create(options.store, ToPeers(options))),
        service_(registry, &hub_, peers_.get(), options.store, PageTokens(RandomKey()), {options.version, absl::Now()}),
        diagnosis_(registry, peers_.get(), options.store, PageTokens(RandomKey())) {
    if (desk == nullptr) return;
    policy_reader_.emplace(registry, desk, peers_.get(), options.node_name);
    policy_service_.emplace(&*policy_reader_, desk, options.max_watchers);
  }
  ~GrpcRpcServer() override { ShutDown(absl::ZeroDuration()); }

  absl::Status Listen(const RpcOptions& options);

  int tcp_port() const override { return tcp_port_; }
  void WakeWatchers() override { hub_.WakeAll(); }
  void ShutDown(absl::Duration grace) override;

 private:
  const std::string socket_path_;
  ino_t socket_inode_ = 0;
  WatchHub hub_;
  const std::unique_ptr<Peers> peers_;
  StatsService service_;
  std::optional<PolicyReader> policy_reader_;
  std::optional<PolicyService> policy_service_;
  DiagnosisService diagnosis_;
  std::unique_ptr<grpc::Server> server_;
  int tcp_port_ = 0;
};

// gRPC removes what lies at its path when it ends, even if that is a younger daemon's. So it gets another path, which the file
// has left by then: only rename() ever puts a file at socket_path, and only its own inode is taken away from there.
absl::Status GrpcRpcServer::Listen(const RpcOptions& options) {
  if (absl::Status s = RemoveStaleSocket(options.socket_path, SOCK_STREAM); !s.ok()) return s;
  const std::string birth_path = absl::StrCat(options.socket_path, ".", getpid());
  if (absl::Status s = RemoveStaleSocket(birth_path, SOCK_STREAM); !s.ok()) return s;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&service_);
  if (policy_service_) builder.RegisterService(&*policy_service_);
  builder.RegisterService(&diagnosis_);
  builder.AddListeningPort(absl::StrCat("unix:", birth_path), grpc::InsecureServerCredentials());
  if (!options.tcp_listen.empty()) {
    absl::StatusOr<HostPort> address = ParseHostPort(options.tcp_listen);
    if (!address.ok()) return absl::InvalidArgumentError(absl::StrCat("--grpc_listen: ", address.status().message()));
    absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials = MakeTcpCredentials(*address, options.tls);
    if (!credentials.ok()) return credentials.status();
    builder.AddListeningPort(options.tcp_listen, *credentials, &tcp_port_);
  }
  const mode_t former = umask(0117);  // the socket file is born with mode 0660
  server_ = builder.BuildAndStart();
  umask(former);
  if (!server_) {
    return absl::UnavailableError(absl::StrCat("cannot serve gRPC on ", options.socket_path,
                                               options.tcp_listen.empty() ? "" : " and ", options.tcp_listen,
                                               ": an address is in use or not this machine's, or the certificates do not fit"));
  }
  struct stat file;
  if (stat(birth_path.c_str(), &file) != 0 || rename(birth_path.c_str(), socket_path_.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot put the socket at ", socket_path_, ": ", std::strerror(errno)));
  }
  socket_inode_ = file.st_ino;
  for (const char* service : {v1::SyncStatsService::service_full_name(), v1::DiagnosisService::service_full_name()}) {
    server_->GetHealthCheckService()->SetServingStatus(service, true);
  }
  if (policy_service_) server_->GetHealthCheckService()->SetServingStatus(v1::PolicyService::service_full_name(), true);
  return absl::OkStatus();
}

void GrpcRpcServer::ShutDown(absl::Duration grace) {
  if (!server_) return;
  server_->GetHealthCheckService()->Shutdown();
  hub_.ShutDown();
  if (policy_service_) policy_service_->ShutDown();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  server_.reset();
  struct stat file;
  if (lstat(socket_path_.c_str(), &file) == 0 && file.st_ino == socket_inode_) unlink(socket_path_.c_str());
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
