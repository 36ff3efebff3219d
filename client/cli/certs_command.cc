#include "client/cli/certs_command.h"

#include <arpa/inet.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/certificates.h"
#include "client/cli/certs_directory.h"

namespace gradgate::cli {
namespace {

constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 3653);
constexpr size_t kMaxNameBytes = 64;  // of a common name
constexpr char kAuthority[] = "ca";
constexpr char kReader[] = "client";
constexpr char kOperator[] = "operator";
constexpr char kEtcdAuthority[] = "etcd-ca";
constexpr char kEtcd[] = "etcd";
constexpr char kEtcdClient[] = "etcd-client";
constexpr char kRoleUri[] = "spiffe://gradgate.local/gradgate/role/";

// A certificate that is to be made, and by which authority.
struct Wanted {
  std::string authority;
  CertificateRequest request;
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

absl::Status CheckHosts(absl::string_view option, const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    if (IsHost(host)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": \"", host, "\" is no host name or address; give what others will connect to, without a port"));
  }
  return absl::OkStatus();
}

// `option`: "--node \"a\"", say.
absl::Status CheckName(absl::string_view option, const std::string& name, absl::string_view form) {
  if (!IsName(name, "._-") || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": the name must be 1 to ", kMaxNameBytes, " letters, digits, '.', '_' and '-'; write ", form));
  }
  for (const char* taken : {kAuthority, kEtcdAuthority, kEtcd, kEtcdClient}) {
    if (name == taken) {
      return absl::InvalidArgumentError(absl::StrCat(option, ": that name is taken by the file of the authority, or of etcd"));
    }
  }
  if (!absl::EndsWith(name, "-key")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": a name may not end in -key, since the keys of others have such files"));
}

std::vector<std::string> WithLoopback(std::vector<std::string> hosts) {
  for (const char* own : {"localhost", "127.0.0.1", "::1"}) {
    if (std::find(hosts.begin(), hosts.end(), own) == hosts.end()) hosts.emplace_back(own);
  }
  return hosts;
}

std::string RoleUri(absl::string_view role, const std::string& name) { return absl::StrCat(kRoleUri, role, "/", name); }

absl::StatusOr<Wanted> ParseNode(const std::string& text, absl::Duration lifetime) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::string option = absl::StrCat("--node \"", text, "\"");
  if (absl::Status s = CheckName(option, parts.first, "NAME or NAME=HOST,HOST…"); !s.ok()) return s;
  if (parts.first == kReader || parts.first == kOperator) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": that name is taken by the file of a client"));
  }
  const std::vector<std::string> hosts =
      absl::StrContains(text, "=") ? std::vector<std::string>(absl::StrSplit(parts.second, ',')) : std::vector{parts.first};
  if (absl::Status s = CheckHosts(option, hosts); !s.ok()) return s;
  return Wanted{kAuthority, {parts.first, hosts, CertificateUse::kNode, lifetime, RoleUri("node", parts.first)}};
}

absl::StatusOr<Wanted> ParseClient(const std::string& text, absl::Duration lifetime) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::string option = absl::StrCat("--client \"", text, "\"");
  if (absl::Status s = CheckName(option, parts.first, "NAME, or NAME=operator"); !s.ok()) return s;
  const std::string role = absl::StrContains(text, "=") ? parts.second : "read";
  if (role != "read" && role != kOperator) {
    return absl::InvalidArgumentError(absl::StrCat(
        option, ": \"", role, "\" is no role; give read, which may ask, or operator, which may set policies as well"));
  }
  return Wanted{kAuthority, {parts.first, {}, CertificateUse::kClient, lifetime, RoleUri(role, parts.first)}};
}

using Parse = absl::StatusOr<Wanted> (*)(const std::string& text, absl::Duration lifetime);

// What the options ask for, first nodes, then clients; nothing of it is there yet.
absl::StatusOr<std::vector<Wanted>> ParseAll(const CertsOptions& options, const CertsDirectory& directory) {
  const absl::Duration lifetime = absl::Hours(24 * options.days);
  std::vector<Wanted> all;
  std::set<std::string> names;
  const auto add = [&](absl::string_view option, const std::vector<std::string>& texts, Parse parse) -> absl::Status {
    for (const std::string& text : texts) {
      absl::StatusOr<Wanted> wanted = parse(text, lifetime);
      if (!wanted.ok()) return wanted.status();
      const std::string& name = wanted->request.name;
      if (!names.insert(name).second) return absl::InvalidArgumentError(absl::StrCat(option, " ", name, " is given twice"));
      if (const std::string there = directory.Existing(name); !there.empty()) {
        return absl::AlreadyExistsError(
            absl::StrCat(there, " is there already and is not overwritten; remove it to renew ", name));
      }
      all.push_back(*std::move(wanted));
    }
    return absl::OkStatus();
  };
  if (absl::Status s = add("--node", options.nodes, ParseNode); !s.ok()) return s;
  if (absl::Status s = add("--client", options.clients, ParseClient); !s.ok()) return s;
  if (!options.nodes.empty()) {
    for (const std::string text : {kReader, "operator=operator"}) {
      absl::StatusOr<Wanted> wanted = ParseClient(text, lifetime);
      const bool is_new = names.insert(wanted->request.name).second && directory.Existing(wanted->request.name).empty();
      if (is_new) all.push_back(*std::move(wanted));
    }
  }
  if (options.etcd_hosts.empty()) return all;
  if (absl::Status s = CheckHosts("--etcd", options.etcd_hosts); !s.ok()) return s;
  for (const char* name : {kEtcd, kEtcdClient}) {
    if (const std::string there = directory.Existing(name); !there.empty()) {
      return absl::AlreadyExistsError(
          absl::StrCat(there, " is there already and is not overwritten; remove it to renew etcd's"));
    }
  }
  all.push_back({kEtcdAuthority, {kEtcd, options.etcd_hosts, CertificateUse::kNode, lifetime}});
  all.push_back({kEtcdAuthority, {kEtcdClient, {}, CertificateUse::kClient, lifetime}});
  return all;
}

// Makes those of one authority, and it as well if it is not there.
absl::Status MakeOf(const std::string& authority, const std::vector<Wanted>& all, const CertsDirectory& directory,
                    absl::Time now, std::vector<CertsDirectory::Named>* made) {
  const bool is_there = !directory.Existing(authority).empty();
  absl::StatusOr<CertificateAndKey> signer =
      is_there ? directory.Read(authority) : MakeAuthority(absl::StrCat("gradgate ", authority), now, kAuthorityLifetime);
  if (!signer.ok()) return signer.status();
  if (!is_there) made->emplace_back(authority, *signer);
  for (const Wanted& wanted : all) {
    if (wanted.authority != authority) continue;
    CertificateRequest request = wanted.request;
    if (request.use == CertificateUse::kNode) request.hosts = WithLoopback(request.hosts);
    absl::StatusOr<CertificateAndKey> pair = MakeCertificate(*signer, request, now);
    if (absl::IsInvalidArgument(pair.status())) {
      return absl::FailedPreconditionError(absl::StrCat(directory.CertificatePath(authority), ": ", pair.status().message()));
    }
    if (!pair.ok()) return pair.status();
    made->emplace_back(request.name, *std::move(pair));
  }
  return absl::OkStatus();
}

std::string WithPort(const std::string& host, absl::string_view port) {
  return absl::StrCat(absl::StrContains(host, ":") ? absl::StrCat("[", host, "]") : host, ":", port);
}

// The options that name a pair of files, "--tls_cert=… --tls_key=…".
std::string Files(const CertsDirectory& directory, absl::string_view name, absl::string_view cert, absl::string_view key) {
  return absl::StrCat(cert, "=", directory.CertificatePath(name), " ", key, "=", directory.KeyPath(name));
}

std::string EtcdCommand(const CertsDirectory& directory, const CertsOptions& options) {
  const std::string ca = directory.CertificatePath(kEtcdAuthority);
  return absl::StrCat("\n# etcd, which trusts ", kEtcdClient, " alone: whoever it trusts may set any policy\netcd ",
                      Files(directory, kEtcd, "--cert-file", "--key-file"), " --client-cert-auth --trusted-ca-file=", ca,
                      " --listen-client-urls=https://0.0.0.0:2379 --advertise-client-urls=https://",
                      WithPort(options.etcd_hosts.front(), "2379"), "\n");
}

std::string StoreFlags(const CertsDirectory& directory, const CertsOptions& options) {
  if (options.etcd_hosts.empty()) return "--store=etcd://HOST:2379";
  std::string endpoints;
  for (const std::string& host : options.etcd_hosts) {
    absl::StrAppend(&endpoints, endpoints.empty() ? "" : ",", WithPort(host, "2379"));
  }
  return absl::StrCat("--store=etcds://", endpoints, " --store_ca=", directory.CertificatePath(kEtcdAuthority), " ",
                      Files(directory, kEtcdClient, "--store_cert", "--store_key"));
}

std::string NodeCommands(const CertsDirectory& directory, const CertsOptions& options, const CertificateRequest& node) {
  const std::string ca = directory.CertificatePath(kAuthority);
  const std::string address = WithPort(node.hosts.front(), "9768");
  return absl::StrCat("\n# on ", node.name, "\ngradgated --node_name=", node.name,
                      " --grpc_listen=0.0.0.0:9768 --advertise=", address, " ",
                      Files(directory, node.name, "--tls_cert", "--tls_key"), " --tls_client_ca=", ca, " ",
                      StoreFlags(directory, options), "\n# to ask it; with ", directory.CertificatePath(kOperator),
                      " and its key to set policies as well\ngradgatectl --target=", address, " --ca=", ca, " ",
                      Files(directory, kReader, "--cert", "--key"), " jobs\n");
}

std::string Commands(const CertsDirectory& directory, const CertsOptions& options, const std::vector<Wanted>& all) {
  std::string text =
      absl::StrCat("# valid for ", options.days,
                   " days, from an hour ago by this machine's clock; those of the nodes may not differ by more\n",
                   "# copy to each node its own two files and ", directory.CertificatePath(kAuthority), "; keep ",
                   directory.KeyPath(kAuthority), " off the nodes: it can make more\n");
  if (options.etcd_hosts.empty() && !options.nodes.empty()) {
    absl::StrAppend(&text,
                    "# etcd without TLS lets whoever reaches it set any policy: --etcd HOST makes a set for it, and then ",
                    "--store=etcds://HOST:2379 with --store_ca, --store_cert and --store_key\n");
  }
  if (!options.etcd_hosts.empty()) absl::StrAppend(&text, EtcdCommand(directory, options));
  for (const Wanted& wanted : all) {
    const CertificateRequest& request = wanted.request;
    if (wanted.authority != kAuthority) continue;
    if (request.use == CertificateUse::kNode) absl::StrAppend(&text, NodeCommands(directory, options, request));
  }
  for (const std::string& client : options.clients) {
    const std::string name = client.substr(0, client.find('='));
    absl::StrAppend(&text, "\n# ", client, "\ngradgatectl --target=HOST:9768 --ca=", directory.CertificatePath(kAuthority), " ",
                    Files(directory, name, "--cert", "--key"), " jobs\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> MakeCerts(const CertsOptions& options, absl::Time now) {
  if (options.nodes.empty() && options.clients.empty() && options.etcd_hosts.empty()) {
    return absl::InvalidArgumentError("nothing to make; give --node NAME=HOST, --client NAME or --etcd HOST");
  }
  const CertsDirectory directory(options.directory);
  const absl::StatusOr<std::vector<Wanted>> all = ParseAll(options, directory);
  if (!all.ok()) return all.status();
  if (absl::Status s = directory.Make(); !s.ok()) return s;
  std::vector<CertsDirectory::Named> made;
  for (const char* authority : {kAuthority, kEtcdAuthority}) {
    const bool is_needed =
        std::any_of(all->begin(), all->end(), [&](const Wanted& wanted) { return wanted.authority == authority; });
    if (!is_needed) continue;
    if (absl::Status s = MakeOf(authority, *all, directory, now, &made); !s.ok()) return s;
  }
  if (absl::Status s = directory.Write(made); !s.ok()) return s;
  return Commands(directory, options, *all);
}

}  // namespace gradgate::cli
