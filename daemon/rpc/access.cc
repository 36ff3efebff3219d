#include "daemon/rpc/access.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/rpc/presentable.h"

namespace gradgate {
namespace {

constexpr MethodAccess kMethods[] = {
    {"/gradgate.v1.SyncStatsService/ListJobs", Role::kRead},
    {"/gradgate.v1.SyncStatsService/GetJobStats", Role::kRead},
    {"/gradgate.v1.SyncStatsService/ListWindows", Role::kRead},
    {"/gradgate.v1.SyncStatsService/WatchWindows", Role::kRead},
    {"/gradgate.v1.SyncStatsService/ListNodes", Role::kRead},
    {"/gradgate.v1.PolicyService/GetPolicy", Role::kRead},
    {"/gradgate.v1.PolicyService/SetPolicy", Role::kOperator},
    {"/gradgate.v1.PolicyService/WatchPolicy", Role::kRead},
    {"/gradgate.v1.DiagnosisService/Diagnose", Role::kRead},
    {"/gradgate.v1.DiagnosisService/PlanSync", Role::kRead},
    {"/grpc.health.v1.Health/Check", Role::kRead},
    {"/grpc.health.v1.Health/Watch", Role::kRead},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Role::kRead},
};
constexpr Role kRoles[] = {Role::kRead, Role::kNode, Role::kOperator};
constexpr absl::string_view kScheme = "spiffe://";
constexpr absl::string_view kRolePath = "/gradgate/role/";

// The segment behind the role path; nothing where the URI names no role.
std::optional<absl::string_view> RoleNameIn(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, kScheme)) return std::nullopt;
  const size_t slash = uri.find('/');
  if (slash == absl::string_view::npos || slash == 0) return std::nullopt;
  absl::string_view path = uri.substr(slash);
  if (!absl::ConsumePrefix(&path, kRolePath)) return std::nullopt;
  return path.substr(0, path.find('/'));
}

std::string Describe(const Caller& caller) {
  switch (caller.transport) {
    case Transport::kSocket:
      return caller.uid ? absl::StrCat("uid ", *caller.uid, " by api.sock") : "a caller by api.sock";
    case Transport::kPlainTcp:
      return absl::StrCat("a caller by TCP without TLS (", caller.address, ")");
    case Transport::kTls:
      break;
  }
  return absl::StrCat("the certificate \"", caller.subject, "\"");
}

std::string Remedy(const Caller& caller, Role least) {
  if (caller.transport == Transport::kTls) {
    const std::string wanted = absl::StrCat("spiffe://DOMAIN/gradgate/role/", Name(least));
    return absl::StrCat("use a certificate with the URI ", wanted, " (gradgatectl certs DIR --client NAME=", Name(least),
                        "), or api.sock on the node");
  }
  return "use api.sock on the node, as its owner or in its group, or TLS with an operator's certificate";
}

}  // namespace

absl::string_view Name(Role role) {
  switch (role) {
    case Role::kRead:
      return "read";
    case Role::kNode:
      return "node";
    case Role::kOperator:
      break;
  }
  return "operator";
}

absl::Span<const MethodAccess> ListMethods() { return kMethods; }

Role LeastRoleFor(absl::string_view method) {
  const auto* at = std::find_if(std::begin(kMethods), std::end(kMethods),
                                [method](const MethodAccess& listed) { return listed.method == method; });
  return at == std::end(kMethods) ? Role::kOperator : at->least;
}

Role RoleOf(const std::vector<std::string>& uris_untrusted, std::string* unknown) {
  Role role = Role::kRead;
  for (const std::string& uri : uris_untrusted) {
    const std::optional<absl::string_view> name = RoleNameIn(uri);
    if (!name) continue;
    const auto* known = std::find_if(std::begin(kRoles), std::end(kRoles), [&](Role one) { return Name(one) == *name; });
    if (known == std::end(kRoles)) {
      *unknown = Presentable(*name);
    } else {
      role = std::max(role, *known);
    }
  }
  return role;
}

absl::Status CheckAccess(const Caller& caller, absl::string_view method) {
  const Role least = LeastRoleFor(method);
  if (caller.role >= least) return absl::OkStatus();
  const std::string unknown =
      caller.unknown_role.empty() ? "" : absl::StrCat(" (its \"", caller.unknown_role, "\" is none that gradgated knows)");
  return absl::PermissionDeniedError(absl::StrCat(Describe(caller), " has the role ", Name(caller.role), unknown, ", and ",
                                                  Presentable(method), " needs ", Name(least), "; ", Remedy(caller, least)));
}

}  // namespace gradgate
