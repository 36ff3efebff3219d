#include "daemon/store/store_address.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gradgate {
namespace {

constexpr absl::string_view kForms = "memory, file:PATH, etcd://HOST:PORT[,HOST:PORT…] or, with TLS, etcds://…";
constexpr absl::string_view kEtcdPort = ":2379";
constexpr size_t kMaxEndpoints = 32;
constexpr size_t kMaxNodeNameBytes = 128;

absl::Status Wrong(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--store=", text, ": ", why, "; it may be ", kForms));
}

// Splits off the port; both are empty if the text is neither host:port nor [v6]:port.
std::pair<absl::string_view, absl::string_view> SplitPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return {};
  const absl::string_view host = text.substr(0, colon);
  const bool is_v6 = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!is_v6 && absl::StrContains(host, ":")) return {};
  return {host, text.substr(colon + 1)};
}

bool IsHost(absl::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(".-_:[]%", absl::string_view(&c, 1));
  });
}

bool IsHostPort(absl::string_view text, int least_port) {
  const auto [host, port_text] = SplitPort(text);
  int port;
  return IsHost(host) && absl::SimpleAtoi(port_text, &port) && port >= least_port && port <= 65535;
}

absl::StatusOr<StoreAddress> ParseEtcd(absl::string_view text, absl::string_view hosts, bool tls) {
  StoreAddress address;
  address.kind = StoreAddress::Kind::kEtcd;
  address.tls = tls;
  for (const absl::string_view host : absl::StrSplit(absl::StripSuffix(hosts, "/"), ',')) {
    const bool has_port = absl::StrContains(host.substr(host.rfind(']') == absl::string_view::npos ? 0 : host.rfind(']')), ":");
    std::string endpoint = absl::StrCat(host, has_port ? "" : kEtcdPort);
    if (!IsHostPort(endpoint, 1)) return Wrong(text, absl::StrCat("\"", host, "\" is not HOST:PORT"));
    address.endpoints.push_back(std::move(endpoint));
  }
  if (address.endpoints.size() > kMaxEndpoints) return Wrong(text, absl::StrCat("more than ", kMaxEndpoints, " endpoints"));
  return address;
}

}  // namespace

absl::StatusOr<StoreAddress> ParseStoreAddress(absl::string_view text) {
  StoreAddress address;
  absl::string_view rest = text;
  if (text.empty()) return address;
  if (text == "memory" || text == "memory:") {
    address.kind = StoreAddress::Kind::kMemory;
    return address;
  }
  if (absl::ConsumePrefix(&rest, "file:")) {
    if (absl::StartsWith(rest, "///")) rest.remove_prefix(2);  // a URL
    if (rest.empty() || rest.back() == '/') return Wrong(text, "there is no file name");
    address.kind = StoreAddress::Kind::kFile;
    address.path = std::string(rest);
    return address;
  }
  if (absl::ConsumePrefix(&rest, "etcds://")) return ParseEtcd(text, rest, true);
  if (absl::ConsumePrefix(&rest, "etcd://")) return ParseEtcd(text, rest, false);
  if (absl::ConsumePrefix(&rest, "https://")) return Wrong(text, absl::StrCat("write etcds://", rest));
  if (absl::ConsumePrefix(&rest, "http://")) return Wrong(text, absl::StrCat("write etcd://", rest));
  return Wrong(text, "it is no kind of store");
}

absl::Status CheckNodeName(absl::string_view name) {
  const bool is_good = !name.empty() && name.size() <= kMaxNodeNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
  if (is_good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the node's name \"", name.substr(0, 2 * kMaxNodeNameBytes),
                                                 "\" must be 1 to ", kMaxNodeNameBytes,
                                                 " letters, digits, '.', '_' and '-'; give another --node_name"));
}

absl::Status CheckAdvertiseAddress(absl::string_view address) {
  const absl::string_view host = SplitPort(address).first;
  if (!IsHostPort(address, 0)) {
    return absl::InvalidArgumentError(absl::StrCat("--advertise=", address, " is not HOST:PORT; give node7.example:9768, say"));
  }
  if (host == "0.0.0.0" || host == "[::]") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--advertise=", address, " is no address that other daemons could connect to; give this node's name or address"));
  }
  return absl::OkStatus();
}

}  // namespace gradgate
