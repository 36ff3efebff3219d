#include "daemon/main/flags.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "daemon/main/run_dir.h"
#include "daemon/rpc/listen_address.h"
#include "daemon/store/store_address.h"

ABSL_FLAG(std::string, dir, "",
          "Directory of shim.sock (trainers) and api.sock (gRPC). Default: $GRADGATE_DIR, else /run/gradgate if it can be "
          "written, else $XDG_RUNTIME_DIR/gradgate.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9767",
          "Address of http://…/metrics, as host:port; port 0 takes any free one; empty: no metrics.");
ABSL_FLAG(
    std::string, grpc_listen, "",
    "Also serve gRPC on this TCP address, as host:port; port 0 takes any free one. Beyond loopback the three --tls flags are "
    "needed. Empty: only api.sock.");
ABSL_FLAG(
    std::string, audit_log, "",
    "File to which a line of JSON is appended for each change of a policy, and for each try. Made with mode 0640; when it is "
    "moved away, a new one is made. Empty: the lines are in the daemon's log alone.");
ABSL_FLAG(std::string, tls_cert, "", "PEM file with the certificate that --grpc_listen shows.");
ABSL_FLAG(std::string, tls_key, "", "PEM file with the private key of --tls_cert.");
ABSL_FLAG(std::string, tls_client_ca, "", "PEM file with the authority that must have signed the certificates of callers.");
ABSL_FLAG(std::string, store, "",
          "What daemons share: memory, file:PATH, etcd://HOST:PORT[,HOST:PORT…], or etcds://… for TLS. Daemons with the same "
          "etcd answer "
          "for each other's nodes. Default: a file in a state directory, else memory.");
ABSL_FLAG(std::string, store_ca, "",
          "PEM file with the authority that must have signed etcd's certificate. Empty: the system's.");
ABSL_FLAG(std::string, store_cert, "", "PEM file with the certificate that is shown to etcd.");
ABSL_FLAG(std::string, store_key, "", "PEM file with the private key of --store_cert.");
ABSL_FLAG(std::string, store_user, "", "User that etcd knows, where it asks for one.");
ABSL_FLAG(std::string, store_password_file, "", "File with the password of --store_user in its first line.");
ABSL_FLAG(std::string, node_name, "", "Name of this node; each daemon of a store has its own. Default: the host's name.");
ABSL_FLAG(
    std::string, advertise, "",
    "HOST:PORT at which other daemons reach --grpc_listen; port 0: the one it got. Default: the address of --grpc_listen, "
    "unless that is a wildcard or loopback.");
ABSL_FLAG(bool, grpc_reflection, true, "Serve gRPC reflection, so that grpcurl and the like need no .proto files.");
ABSL_FLAG(uint32_t, max_clients, 256, "Trainer connections served at once; more are refused. Also the ranks kept of one job.");
ABSL_FLAG(uint32_t, max_clients_per_user, 0,
          "Of --max_clients, how many connections one user may have; more are refused. 0: three quarters of --max_clients.");
ABSL_FLAG(
    uint32_t, max_ranks, 0,
    "Ranks kept of all jobs, running or ended. Ended jobs go first, then new ranks are refused; one user's running jobs may "
    "have three quarters of them. 0: four times --max_clients.");
ABSL_FLAG(uint32_t, max_window_records, 262144,
          "Windows of single ranks kept of all jobs, some 230 bytes each. Ended jobs go first, then the oldest windows.");
ABSL_FLAG(uint32_t, max_connections, 256,
          "Connections of gRPC clients served at once by api.sock, and as many by TCP; of each one user, or one address, may "
          "have three "
          "quarters. More are refused.");
ABSL_FLAG(uint32_t, max_watchers, 64, "WatchWindows streams served at once; more are refused.");
ABSL_FLAG(absl::Duration, hello_timeout, absl::Seconds(5), "A connection that has not said Hello after this long is dropped.");
ABSL_FLAG(absl::Duration, poll_interval, absl::Milliseconds(100),
          "How often windows and events are read from the trainers' pages; 1ms to 10s.");
ABSL_FLAG(uint32_t, window_history, 1024,
          "Closed windows kept per job, fewer for a job with more than 64 ranks here; the oldest go first.");
ABSL_FLAG(uint32_t, max_ended_jobs, 64, "Ended jobs kept; the one that ended first goes first.");
ABSL_FLAG(absl::Duration, keep_ended, absl::Hours(1), "How long an ended job is kept for queries.");
ABSL_FLAG(absl::Duration, metrics_linger, absl::Minutes(5), "How long the series of an ended rank stay in /metrics.");

namespace gradgate {
namespace {

constexpr char kUsage[] =
    "gradgated: counts the gradient reductions of the trainers on this node, and\n"
    "answers for them.\n"
    "\n"
    "Trainers that link the gradgate shim find it through shim.sock; gradgatectl and\n"
    "other gRPC clients ask api.sock; Prometheus scrapes /metrics. Training never\n"
    "depends on it: it may be started, stopped and replaced at any time.\n"
    "\n"
    "Usage: gradgated [--flag=value …]\n";

std::map<std::string, const absl::CommandLineFlag*> OwnFlags() {
  std::map<std::string, const absl::CommandLineFlag*> own;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::EndsWith(flag->Filename(), "daemon/main/flags.cc")) own.emplace(std::string(name), flag);
  }
  return own;
}

// Broken between words into lines that fit a terminal.
std::string Indented(const std::string& help) {
  constexpr size_t kColumns = 80;
  std::string text, line = "     ";
  for (const absl::string_view word : absl::StrSplit(help, ' ')) {
    if (line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&text, line, "\n");
      line = "     ";
    }
    absl::StrAppend(&line, " ", word);
  }
  return absl::StrCat(text, line, "\n");
}

absl::Status CheckAtLeastOne(absl::string_view name, uint32_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", name, " is 0, must be at least 1"));
}

absl::Status CheckDuration(absl::string_view name, absl::Duration value, absl::Duration least, absl::Duration most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", name, " is ", absl::FormatDuration(value), ", must be between ",
                                                 absl::FormatDuration(least), " and ", absl::FormatDuration(most)));
}

size_t OrDefault(uint32_t value, size_t otherwise) { return value != 0 ? value : otherwise; }

absl::Status CheckValues() {
  for (const absl::Status& status : {
           CheckAtLeastOne("max_clients", absl::GetFlag(FLAGS_max_clients)),
           CheckAtLeastOne("max_connections", absl::GetFlag(FLAGS_max_connections)),
           CheckAtLeastOne("max_window_records", absl::GetFlag(FLAGS_max_window_records)),
           CheckAtLeastOne("window_history", absl::GetFlag(FLAGS_window_history)),
           CheckDuration("hello_timeout", absl::GetFlag(FLAGS_hello_timeout), absl::Milliseconds(10), absl::Hours(1)),
           CheckDuration("poll_interval", absl::GetFlag(FLAGS_poll_interval), absl::Milliseconds(1), absl::Seconds(10)),
           CheckDuration("keep_ended", absl::GetFlag(FLAGS_keep_ended), absl::ZeroDuration(), absl::Hours(24 * 365)),
           CheckDuration("metrics_linger", absl::GetFlag(FLAGS_metrics_linger), absl::ZeroDuration(), absl::Hours(24 * 365)),
       }) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

absl::StatusOr<std::string> AdvertiseAddress() {
  const std::string given = absl::GetFlag(FLAGS_advertise);
  const std::string listen = absl::GetFlag(FLAGS_grpc_listen);
  if (!given.empty()) {
    if (listen.empty()) return absl::InvalidArgumentError("--advertise needs --grpc_listen: nothing would answer there");
    if (absl::Status s = CheckAdvertiseAddress(given); !s.ok()) return s;
    return given;
  }
  const absl::StatusOr<HostPort> address = ParseHostPort(listen);
  const bool can_be_reached = address.ok() && !IsLoopback(address->host) && CheckAdvertiseAddress(listen).ok();
  return can_be_reached ? listen : "";
}

absl::StatusOr<StoreOptions> ParseStoreFlags() {
  StoreOptions options;
  absl::StatusOr<StoreAddress> address = ParseStoreAddress(absl::GetFlag(FLAGS_store));
  if (!address.ok()) return address.status();
  options.address = *std::move(address);
  options.shown = absl::GetFlag(FLAGS_store);
  options.ca_file = absl::GetFlag(FLAGS_store_ca);
  options.cert_file = absl::GetFlag(FLAGS_store_cert);
  options.key_file = absl::GetFlag(FLAGS_store_key);
  options.user = absl::GetFlag(FLAGS_store_user);
  options.password_file = absl::GetFlag(FLAGS_store_password_file);
  options.node_name = absl::GetFlag(FLAGS_node_name).empty() ? HostName() : absl::GetFlag(FLAGS_node_name);
  if (absl::Status s = CheckNodeName(options.node_name); !s.ok()) return s;
  absl::StatusOr<std::string> advertise = AdvertiseAddress();
  if (!advertise.ok()) return advertise.status();
  options.advertise_address = *std::move(advertise);
  if (options.address.kind == StoreAddress::Kind::kEtcd && options.advertise_address.empty()) {
    std::fprintf(stderr, "gradgated: other daemons of %s cannot ask this one: give --grpc_listen and --advertise=HOST:PORT\n",
                 options.shown.c_str());
  }
  return options;
}

}  // namespace

std::string HelpText() {
  std::string text = absl::StrCat(kUsage, "\nFlags:\n");
  for (const auto& [name, flag] : OwnFlags()) {
    const std::string value = flag->DefaultValue();
    absl::StrAppendFormat(&text, "  --%s  (default: %s)\n%s", name, value.empty() ? "empty" : value, Indented(flag->Help()));
  }
  absl::StrAppend(&text, "  --help\n      Print this text.\n  --version\n      Print the version.\n");
  return text;
}

absl::StatusOr<DaemonOptions> ParseFlags(int argc, char** argv) {
  // The library's own --help lists no defaults of ours first and exits 1.
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-help" || argument == "-h") {
      std::fputs(HelpText().c_str(), stdout);
      std::exit(0);
    }
    if (argument == "--version" || argument == "-version") {
      std::printf("gradgated %s\n", GRADGATE_VERSION);
      std::exit(0);
    }
  }
  absl::SetProgramUsageMessage(kUsage);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) return absl::InvalidArgumentError(absl::StrCat("\"", rest[1], "\" is no flag; see gradgated --help"));
  if (absl::Status s = CheckValues(); !s.ok()) return s;

  absl::StatusOr<std::string> directory = ChooseRunDirectory(absl::GetFlag(FLAGS_dir));
  if (!directory.ok()) return directory.status();
  absl::StatusOr<StoreOptions> store = ParseStoreFlags();
  if (!store.ok()) return store.status();
  DaemonOptions options;
  options.store = *std::move(store);
  options.version = GRADGATE_VERSION;
  options.directory = *directory;
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  options.rpc.tcp_listen = absl::GetFlag(FLAGS_grpc_listen);
  options.rpc.tls = {absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key), absl::GetFlag(FLAGS_tls_client_ca)};
  options.rpc.reflection = absl::GetFlag(FLAGS_grpc_reflection);
  options.audit_log = absl::GetFlag(FLAGS_audit_log);
  options.rpc.max_connections = absl::GetFlag(FLAGS_max_connections);
  options.rpc.max_watchers = absl::GetFlag(FLAGS_max_watchers);
  const size_t max_clients = absl::GetFlag(FLAGS_max_clients);
  options.listener.max_clients = max_clients;
  options.listener.max_clients_per_user = OrDefault(absl::GetFlag(FLAGS_max_clients_per_user), max_clients - max_clients / 4);
  options.listener.hello_timeout = absl::GetFlag(FLAGS_hello_timeout);
  options.listener.poll_interval = absl::GetFlag(FLAGS_poll_interval);
  options.registry.window_history = absl::GetFlag(FLAGS_window_history);
  options.registry.max_ended_jobs = absl::GetFlag(FLAGS_max_ended_jobs);
  options.registry.keep_ended = absl::GetFlag(FLAGS_keep_ended);
  options.registry.series_linger = absl::GetFlag(FLAGS_metrics_linger);
  options.registry.max_ranks_per_job = max_clients;
  options.registry.max_ranks = OrDefault(absl::GetFlag(FLAGS_max_ranks), 4 * max_clients);
  options.registry.max_window_records = absl::GetFlag(FLAGS_max_window_records);
  return options;
}

}  // namespace gradgate
