// gradgated: parses flags, starts the daemon, waits for a signal, shuts down.

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "daemon/main/daemon.h"
#include "daemon/main/flags.h"
#include "daemon/main/notify.h"
#include "daemon/node/descriptor_bin.h"
#include "google/protobuf/stubs/logging.h"

namespace gradgate {
namespace {

// A shutdown that takes longer is ended by SIGALRM.
constexpr unsigned kShutDownSeconds = 10;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "gradgated: %s\n", std::string(status.message()).c_str());
  return 1;
}

// One descriptor for each trainer and each gRPC connection, those that wait to be closed, and some for gRPC and the rest.
void RaiseOpenFileLimit(size_t max_clients, size_t max_connections) {
  rlimit limit;
  const rlim_t wanted = max_clients + 2 * max_connections + 2 * DescriptorBin::kFullCount + 256;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || wanted < limit.rlim_max ? wanted : limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted) {
    std::fprintf(
        stderr,
        "gradgated: only %llu files may be open, %llu are needed for --max_clients and --max_connections; raise the limit\n",
        static_cast<unsigned long long>(limit.rlim_cur), static_cast<unsigned long long>(wanted));
  }
}

// A core would have the keys and the password in it. Who wants one for debugging raises the limit with prlimit(1).
void ForbidCore() {
  rlimit limit;
  if (getrlimit(RLIMIT_CORE, &limit) != 0) return;
  limit.rlim_cur = 0;
  (void)setrlimit(RLIMIT_CORE, &limit);
}

int Main(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", 0);       // its errors come back as ours, in one line
  google::protobuf::SetLogHandler(nullptr);  // a line for each request with text that is no UTF-8
  absl::StatusOr<DaemonOptions> options = ParseFlags(argc, argv);
  if (!options.ok()) return Fail(options.status());

  const bool has_secrets = options->rpc.tls.any() || !options->store.key_file.empty() || !options->store.password_file.empty();
  if (has_secrets) ForbidCore();
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before there are threads, so that only sigwait below sees them
  RaiseOpenFileLimit(options->listener.max_clients, options->rpc.max_connections);

  ServiceManager manager;
  options->listener.alive = [&manager](uint64_t now_ns) { manager.Alive(now_ns); };
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(*options);
  if (!daemon.ok()) return Fail(daemon.status());
  const std::string ready = (*daemon)->ReadyLine();
  std::printf("%s\n", ready.c_str());
  std::fflush(stdout);
  manager.Tell("READY=1\nSTATUS=" + ready);

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  manager.Tell("STOPPING=1\nSTATUS=shutting down");
  alarm(kShutDownSeconds);
  (*daemon)->ShutDown();
  return 0;
}

}  // namespace
}  // namespace gradgate

int main(int argc, char** argv) { return gradgate::Main(argc, argv); }
