#include "daemon/main/open_store.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/node/text_check.h"
#include "daemon/store/etcd/etcd_store.h"
#include "daemon/store/file_store.h"
#include "daemon/store/memory_store.h"
#include "gradgate/store/v1/store.pb.h"

namespace gradgate {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(3);
// Beyond the lease of a daemon that has just died.
constexpr absl::Duration kPatienceWithOther = absl::Seconds(15);
constexpr absl::Duration kLook = absl::Milliseconds(20);

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string StateDirectory(const std::string& run_directory) {
  const std::string state = Environment("STATE_DIRECTORY");
  if (!state.empty()) return state.substr(0, state.find(':'));
  if (run_directory == "/run/gradgate") return "/var/lib/gradgate";
  const std::string runtime = Environment("XDG_RUNTIME_DIR");
  if (runtime.empty() || run_directory != absl::StrCat(runtime, "/gradgate")) return run_directory;
  const std::string home = Environment("XDG_STATE_HOME");
  if (!home.empty()) return absl::StrCat(home, "/gradgate");
  return absl::StrCat(Environment("HOME"), "/.local/state/gradgate");
}

std::unique_ptr<Store> OpenDefaultStore(const std::string& run_directory, const LogLine& log) {
  const std::string directory = StateDirectory(run_directory);
  std::error_code ignored;  // the file tells
  std::filesystem::create_directories(directory, ignored);
  absl::StatusOr<std::unique_ptr<Store>> store = OpenFileStore(absl::StrCat(directory, "/store"), log);
  if (store.ok()) return *std::move(store);
  log(absl::StrCat("policies are kept in memory, and gone when this daemon ends: ", store.status().message()));
  return std::make_unique<MemoryStore>();
}

absl::StatusOr<std::string> ReadPassword(const std::string& path) {
  if (path.empty()) return "";
  errno = 0;
  std::ifstream file(path);
  std::string password;
  if (!file || !std::getline(file, password)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read a line from --store_password_file ", path,
                                                   errno != 0 ? absl::StrCat(": ", std::strerror(errno)) : ""));
  }
  return std::string(absl::StripTrailingAsciiWhitespace(password));
}

absl::StatusOr<std::unique_ptr<Store>> OpenEtcd(const StoreOptions& options, const std::string& run_directory,
                                                const LogLine& log) {
  if (options.user.empty() != options.password_file.empty()) {
    return absl::InvalidArgumentError("--store_user and --store_password_file go together; give both");
  }
  if (options.cert_file.empty() != options.key_file.empty()) {
    return absl::InvalidArgumentError("--store_cert and --store_key go together; give both");
  }
  absl::StatusOr<std::string> password = ReadPassword(options.password_file);
  if (!password.ok()) return password.status();
  EtcdOptions etcd;
  etcd.name = options.shown;
  etcd.endpoints = options.address.endpoints;
  etcd.tls = options.address.tls || !options.ca_file.empty() || !options.cert_file.empty();
  etcd.ca_file = options.ca_file;
  etcd.cert_file = options.cert_file;
  etcd.key_file = options.key_file;
  etcd.user = options.user;
  etcd.password = *std::move(password);
  etcd.log = log;
  etcd.may_replace = [place = PlaceOf(run_directory)](absl::string_view, absl::string_view value) {
    store::v1::StoredNode other;
    return !place.empty() && other.ParseFromArray(value.data(), static_cast<int>(value.size())) && other.place() == place;
  };
  return OpenEtcdStore(etcd);
}

std::string NodeKey(const StoreOptions& options) { return absl::StrCat(kNodesPrefix, options.node_name); }

// Who keeps the name, for people.
std::string DescribeOther(const StoreOptions& options, const Store& store) {
  for (const StoredValue& value : store.List(NodeKey(options))) {
    store::v1::StoredNode other;
    if (value.key != NodeKey(options) || !other.ParseFromString(value.value)) continue;
    const std::string& at = other.advertise_address();
    const absl::Time start = absl::FromUnixSeconds(other.start_time().seconds());
    return absl::StrCat(at.empty() || !IsPrintableUtf8(at) ? "" : absl::StrCat(" at ", at), ", started ",
                        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", start, absl::UTCTimeZone()), ",");
  }
  return "";
}

}  // namespace

std::string PlaceOf(const std::string& run_directory) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat directory;
  if (!std::getline(file, boot) || stat(run_directory.c_str(), &directory) != 0) return "";
  return absl::StrCat(boot, " ", major(directory.st_dev), ":", minor(directory.st_dev), " ", directory.st_ino);
}

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const StoreOptions& options, const std::string& run_directory,
                                                 const LogLine& log) {
  switch (options.address.kind) {
    case StoreAddress::Kind::kMemory:
      return std::make_unique<MemoryStore>();
    case StoreAddress::Kind::kFile:
      return OpenFileStore(options.address.path, log);
    case StoreAddress::Kind::kEtcd:
      return OpenEtcd(options, run_directory, log);
    case StoreAddress::Kind::kDefault:
      break;
  }
  return OpenDefaultStore(run_directory, log);
}

void AnnounceNode(const StoreOptions& options, const std::string& run_directory, const std::string& version, int tcp_port,
                  bool tls, Store* store) {
  store::v1::StoredNode node;
  node.set_node_name(options.node_name);
  std::string address = options.advertise_address;
  if (const size_t colon = address.rfind(':'); colon != std::string::npos && address.substr(colon) == ":0") {
    address = absl::StrCat(address.substr(0, colon), ":", tcp_port);
  }
  node.set_advertise_address(address);
  node.set_version(version);
  node.mutable_start_time()->set_seconds(absl::ToUnixSeconds(absl::Now()));
  node.set_place(PlaceOf(run_directory));
  node.set_tls(tls);
  store->Announce(NodeKey(options), node.SerializeAsString());
}

absl::Status AwaitAnnounced(const StoreOptions& options, Store* store, const LogLine& log) {
  const absl::Time begin = absl::Now();
  absl::Status status;
  while (true) {
    status = store->AnnounceStatus();
    if (status.ok()) return status;
    if (absl::Now() - begin >= (absl::IsAlreadyExists(status) ? kPatienceWithOther : kPatience)) break;
    absl::SleepFor(kLook);
  }
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(absl::StrCat("another daemon", DescribeOther(options, *store), " is node \"",
                                                 options.node_name, "\" in ", options.shown,
                                                 "; give each daemon its own --node_name"));
  }
  log(absl::StrCat(options.shown, " does not answer; this daemon goes on alone and joins when it does: ", status.message()));
  return absl::OkStatus();
}

}  // namespace gradgate
