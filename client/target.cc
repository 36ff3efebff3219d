#include "client/target.h"

#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/link/frames.h"

namespace gradgate::client {
namespace {

constexpr size_t kMaxSocketPathBytes = sizeof(sockaddr_un::sun_path) - 1;
constexpr char kForms[] = "; write unix:PATH, HOST:PORT or [V6]:PORT";

absl::StatusOr<Target> UnixTarget(absl::string_view path) {
  if (path.empty()) return absl::InvalidArgumentError(absl::StrCat("target has an empty socket path", kForms));
  if (path.size() > kMaxSocketPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat("socket path \"", path, "\" has ", path.size(), " bytes, the kernel takes ",
                                                   kMaxSocketPathBytes, "; use a shorter directory (GRADGATE_DIR)"));
  }
  return Target{Target::Kind::kUnix, std::string(path), false};
}

bool IsIpv4Loopback(absl::string_view host) {
  const std::vector<absl::string_view> parts = absl::StrSplit(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  for (absl::string_view part : parts) {
    int number;
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == absl::string_view::npos;
    if (!digits || !absl::SimpleAtoi(part, &number) || number > 255) return false;
  }
  return true;
}

bool Exists(const std::string& directory) {
  struct stat info;
  return !directory.empty() && stat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string Target::GrpcName() const { return absl::StrCat(kind == Kind::kUnix ? "unix:" : "dns:///", address); }

absl::StatusOr<Target> ParseTarget(absl::string_view text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    if (absl::StartsWith(rest, "//")) rest.remove_prefix(2);  // unix:///path, as a URI
    return UnixTarget(rest);
  }
  if (absl::StartsWith(text, "/")) return UnixTarget(text);
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("target \"", text, "\" ", why, kForms));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return bad("has no port");
  absl::string_view host = text.substr(0, colon);
  const absl::string_view port_text = text.substr(colon + 1);
  int port;
  if (!absl::SimpleAtoi(port_text, &port) || port < 1 || port > 65535) {
    return bad(absl::StrCat("has port \"", port_text, "\", not 1 to 65535"));
  }
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty()) return bad("has no host");
  if (host.find_first_of(bracketed ? "/[] " : ":/[] ") != absl::string_view::npos) return bad("is of no known form");
  const bool loopback = bracketed ? host == "::1" : host == "localhost" || IsIpv4Loopback(host);
  return Target{Target::Kind::kTcp, std::string(text), loopback};
}

absl::StatusOr<std::string> SocketDirectory(const DirectoryInputs& inputs) {
  if (!inputs.gradgate_dir.empty()) return inputs.gradgate_dir;
  if (Exists(inputs.system_dir)) return inputs.system_dir;
  if (!inputs.xdg_runtime_dir.empty()) return absl::StrCat(inputs.xdg_runtime_dir, "/gradgate");
  return absl::UnavailableError(absl::StrCat("no gradgated to be found: GRADGATE_DIR and XDG_RUNTIME_DIR are not set and ",
                                             inputs.system_dir,
                                             " does not exist; start one with `gradgated`, or say where one listens"));
}

absl::StatusOr<Target> DefaultTarget() {
  const auto directory = SocketDirectory({Env("GRADGATE_DIR"), "/run/gradgate", Env("XDG_RUNTIME_DIR")});
  if (!directory.ok()) return directory.status();
  return TargetInDirectory(*directory);
}

absl::StatusOr<Target> TargetInDirectory(absl::string_view directory) {
  if (directory.empty()) return absl::InvalidArgumentError("directory of gradgated's sockets is empty; name one");
  return UnixTarget(absl::StrCat(absl::StripSuffix(directory, "/"), "/", link::kApiSocketName));
}

}  // namespace gradgate::client
