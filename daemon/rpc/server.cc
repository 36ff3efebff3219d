#include "daemon/rpc/server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/socket_file.h"
#include "daemon/rpc/stats_service.h"
#include "daemon/rpc/window_watch.h"
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

class GrpcRpcServer final : public RpcServer {
 public:
  GrpcRpcServer(const RpcOptions& options, Registry* registry)
      : socket_path_(options.socket_path),
        hub_(registry, options.max_watchers),
        service_(registry, &hub_, PageTokens(RandomKey())) {}
  ~GrpcRpcServer() override { ShutDown(absl::ZeroDuration()); }

  absl::Status Listen(const RpcOptions& options);

  int tcp_port() const override { return tcp_port_; }
  void WakeWatchers() override { hub_.WakeAll(); }
  void ShutDown(absl::Duration grace) override;

 private:
  const std::string socket_path_;
  WatchHub hub_;
  StatsService service_;
  std::unique_ptr<grpc::Server> server_;
  int tcp_port_ = 0;
};

absl::Status GrpcRpcServer::Listen(const RpcOptions& options) {
  if (absl::Status s = RemoveStaleSocket(options.socket_path, SOCK_STREAM); !s.ok()) return s;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&service_);
  builder.AddListeningPort(absl::StrCat("unix:", options.socket_path), grpc::InsecureServerCredentials());
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
  server_->GetHealthCheckService()->SetServingStatus(v1::SyncStatsService::service_full_name(), true);
  return absl::OkStatus();
}

void GrpcRpcServer::ShutDown(absl::Duration grace) {
  if (!server_) return;
  server_->GetHealthCheckService()->Shutdown();
  hub_.ShutDown();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  server_.reset();
  unlink(socket_path_.c_str());
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcOptions& options, Registry* registry) {
  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto server = std::make_unique<GrpcRpcServer>(options, registry);
  if (absl::Status s = server->Listen(options); !s.ok()) return s;
  return server;
}

}  // namespace gradgate
