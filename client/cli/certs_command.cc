#include "client/cli/certs_command.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/certificates.h"

namespace gradgate::cli {
namespace {

constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 3653);
constexpr size_t kMaxNameBytes = 64;  // of a common name
constexpr char kAuthorityName[] = "ca";
constexpr char kClientName[] = "client";

struct Node {
  std::string name;
  std::vector<std::string> hosts;
};

bool IsName(absl::string_view text, absl::string_view others) {
  return !text.empty() && text.front() != '.' && text.front() != '-' && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(others, absl::string_view(&c, 1));
  });
}

bool IsHost(const std::string& host) {
  unsigned char address[16];
  return inet_pton(AF_INET6, host.c_str(), address) == 1 || (IsName(host, ".-*_") && host.size() <= 253);
}

absl::StatusOr<Node> ParseNode(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  Node node;
  node.name = parts.first;
  if (!IsName(node.name, "._-") || node.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("--node \"", text, "\": the name must be 1 to ", kMaxNameBytes,
                                                   " letters, digits, '.', '_' and '-'; write NAME or NAME=HOST,HOST…"));
  }
  if (node.name == kAuthorityName || node.name == kClientName) {
    return absl::InvalidArgumentError(
        absl::StrCat("--node \"", text, "\": that name is taken by the file of the authority or the client"));
  }
  node.hosts =
      absl::StrContains(text, "=") ? std::vector<std::string>(absl::StrSplit(parts.second, ',')) : std::vector{node.name};
  for (const std::string& host : node.hosts) {
    if (!IsHost(host)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--node \"", text, "\": \"", host,
                       "\" is no host name or address; give what other daemons will connect to, without a port"));
    }
  }
  return node;
}

absl::Status SystemError(absl::string_view what, const std::string& path) {
  const int error = errno;
  const std::string text = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  if (error == EEXIST) return absl::AlreadyExistsError(absl::StrCat(path, " is there already and is not overwritten"));
  return error == EACCES || error == EPERM || error == EROFS ? absl::PermissionDeniedError(text) : absl::InternalError(text);
}

absl::Status WriteNew(const std::string& path, absl::string_view text, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return SystemError("make", path);
  absl::Status status;
  for (absl::string_view rest = text; status.ok() && !rest.empty();) {
    const ssize_t written = write(fd, rest.data(), rest.size());
    if (written < 0) status = SystemError("write", path);
    if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
  }
  if (status.ok() && fsync(fd) != 0) status = SystemError("write", path);
  close(fd);
  if (!status.ok()) unlink(path.c_str());
  return status;
}

class Directory {
 public:
  explicit Directory(std::string path) : path_(std::move(path)) {}

  std::string CertificatePath(absl::string_view name) const { return absl::StrCat(path_, "/", name, ".pem"); }
  std::string KeyPath(absl::string_view name) const { return absl::StrCat(path_, "/", name, "-key.pem"); }
  bool Has(const std::string& path) const { return access(path.c_str(), F_OK) == 0; }

  absl::Status Make() const {
    if (mkdir(path_.c_str(), 0755) != 0 && errno != EEXIST) return SystemError("make directory", path_);
    return absl::OkStatus();
  }
  absl::Status Write(absl::string_view name, const CertificateAndKey& pair) const {
    if (absl::Status s = WriteNew(KeyPath(name), pair.key, 0600); !s.ok()) return s;
    absl::Status status = WriteNew(CertificatePath(name), pair.certificate, 0644);
    if (!status.ok()) unlink(KeyPath(name).c_str());
    return status;
  }
  absl::StatusOr<CertificateAndKey> ReadAuthority() const {
    CertificateAndKey pair;
    for (auto [path, text] :
         {std::pair{CertificatePath(kAuthorityName), &pair.certificate}, {KeyPath(kAuthorityName), &pair.key}}) {
      errno = 0;
      std::ifstream file(path, std::ios::binary);
      std::ostringstream read;
      if (!file || !(read << file.rdbuf())) {
        return absl::FailedPreconditionError(
            absl::StrCat("cannot read ", path, ": ", std::strerror(errno),
                         "; the authority needs ca.pem and ca-key.pem: put both there, or take another directory"));
      }
      *text = read.str();
    }
    return pair;
  }
  // An absolute path, so that the commands work anywhere.
  std::string Shown(const std::string& path) const {
    char* real = realpath(path.c_str(), nullptr);
    const std::string shown = real == nullptr ? path : real;
    free(real);
    return shown;
  }

 private:
  const std::string path_;
};

absl::StatusOr<CertificateAndKey> Authority(const Directory& directory, absl::Time now) {
  if (directory.Has(directory.CertificatePath(kAuthorityName)) || directory.Has(directory.KeyPath(kAuthorityName))) {
    return directory.ReadAuthority();
  }
  absl::StatusOr<CertificateAndKey> made = MakeAuthority("gradgate authority", now, kAuthorityLifetime);
  if (!made.ok()) return made;
  if (absl::Status s = directory.Write(kAuthorityName, *made); !s.ok()) return s;
  return made;
}

absl::Status MakeOne(const Directory& directory, const CertificateAndKey& authority, const CertificateRequest& request,
                     absl::Time now) {
  absl::StatusOr<CertificateAndKey> made = MakeCertificate(authority, request, now);
  if (absl::IsInvalidArgument(made.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory.CertificatePath(kAuthorityName), ": ", made.status().message()));
  }
  if (!made.ok()) return made.status();
  return directory.Write(request.name, *made);
}

std::string Commands(const Directory& directory, const std::vector<Node>& nodes, int days) {
  const auto shown = [&](const std::string& path) { return directory.Shown(path); };
  const std::string ca = shown(directory.CertificatePath(kAuthorityName));
  std::string text = absl::StrCat(
      "# valid for ", days, " days, from an hour ago by this machine's clock; those of the nodes may not differ by more\n",
      "# copy to each node its own two files and ", ca, "; keep ", shown(directory.KeyPath(kAuthorityName)),
      " off the nodes: it can make more\n");
  for (const Node& node : nodes) {
    const std::string& host = node.hosts.front();
    const std::string address = absl::StrCat(absl::StrContains(host, ":") ? absl::StrCat("[", host, "]") : host, ":9768");
    absl::StrAppend(
        &text, "\n# on ", node.name, "\ngradgated --node_name=", node.name, " --grpc_listen=0.0.0.0:9768 --advertise=", address,
        " --tls_cert=", shown(directory.CertificatePath(node.name)), " --tls_key=", shown(directory.KeyPath(node.name)),
        " --tls_client_ca=", ca, " --store=etcd://HOST:2379\n", "# to ask it\ngradgatectl --target=", address, " --ca=", ca,
        " --cert=", shown(directory.CertificatePath(kClientName)), " --key=", shown(directory.KeyPath(kClientName)), " jobs\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> MakeCerts(const CertsOptions& options, absl::Time now) {
  const Directory directory(options.directory);
  std::vector<Node> nodes;
  std::set<std::string> names;
  for (const std::string& text : options.nodes) {
    absl::StatusOr<Node> node = ParseNode(text);
    if (!node.ok()) return node.status();
    if (!names.insert(node->name).second)
      return absl::InvalidArgumentError(absl::StrCat("--node ", node->name, " is given twice"));
    for (const std::string& path : {directory.CertificatePath(node->name), directory.KeyPath(node->name)}) {
      if (!directory.Has(path)) continue;
      return absl::AlreadyExistsError(
          absl::StrCat(path, " is there already and is not overwritten; remove it to renew ", node->name));
    }
    nodes.push_back(*std::move(node));
  }
  if (absl::Status s = directory.Make(); !s.ok()) return s;
  absl::StatusOr<CertificateAndKey> authority = Authority(directory, now);
  if (!authority.ok()) return authority.status();
  const absl::Duration lifetime = absl::Hours(24 * options.days);
  if (!directory.Has(directory.CertificatePath(kClientName))) {
    if (absl::Status s = MakeOne(directory, *authority, {kClientName, {}, CertificateUse::kClient, lifetime}, now); !s.ok())
      return s;
  }
  for (const Node& node : nodes) {
    std::vector<std::string> hosts = node.hosts;
    for (const char* own : {"localhost", "127.0.0.1", "::1"}) {
      if (std::find(hosts.begin(), hosts.end(), own) == hosts.end()) hosts.emplace_back(own);
    }
    if (absl::Status s = MakeOne(directory, *authority, {node.name, hosts, CertificateUse::kNode, lifetime}, now); !s.ok())
      return s;
  }
  return Commands(directory, nodes, options.days);
}

}  // namespace gradgate::cli
